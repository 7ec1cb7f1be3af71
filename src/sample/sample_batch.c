#include "sample/sample_batch.h"

#include <assert.h>

#include "base/mem.h"

enum { WORTH_IT = 1 << 14 }; /* least logits in all: fewer are sampled faster than workers wake up */

quire_err sample_pool_open(int32_t n_vocab, int32_t max_tokens, int32_t n_workers, sample_run run,
                           void *threads, sample_pool *out) {
    assert(n_vocab >= 0 && max_tokens >= 0 && (n_workers <= 1 || run != NULL));
    *out = (sample_pool){.n_vocab = n_vocab, .n_workers = n_workers, .run = run, .threads = threads};
    out->samplers = mem_new((size_t)n_workers, sizeof(sampler *));
    TRY(mem_check(out->samplers));
    for (int32_t i = 0; i < n_workers; i++) {
        TRY(sampler_open(n_vocab, max_tokens, &out->samplers[i]));
    }
    return QUIRE_OK;
}

void sample_pool_close(sample_pool *p) {
    assert(p != NULL);
    for (int32_t i = 0; p->samplers && i < p->n_workers; i++) {
        sampler_close(p->samplers[i]);
    }
    mem_free((void *)p->samplers);
}

/* What the workers share. */
typedef struct sample_job {
    const sample_pool *pool;
    sample_row *rows;
} sample_job;

void sample_on(const sample_pool *p, int32_t worker, sample_row *r) {
    assert(worker >= 0 && worker < p->n_workers);
    sampler *s = p->samplers[worker];
    sample_context *c = &r->context;
    /* greedy: nothing is drawn */
    c->noise = c->params->temperature > 0.0f ? sample_noise_of(sample_key_of(c)) : (sample_noise){0};
    switch (r->goal) {
    case SAMPLE_TOKEN:
        if (r->knows_argmax && sample_accept(c, r->argmax) == QUIRE_OK) {
            r->result->token = r->argmax;
        } else {
            r->result->error = sampler_sample(s, r->logits, c, &r->result->token);
        }
        break;
    case SAMPLE_DISTRIBUTION:
        r->result->error = sampler_distribution(s, r->logits, c, &r->probs);
        break;
    case SAMPLE_ADJUST:
        r->result->error = sampler_adjust(s, r->logits, c);
        break;
    }
}

static void sample_one(void *context, int32_t task, int32_t worker) {
    const sample_job *job = context;
    sample_on(job->pool, worker, &job->rows[task]);
}

void sample_tasks(const sample_pool *p, thread_pool_fn fn, void *context, int32_t n) {
    assert(n >= 0);
    if (p->n_workers > 1 && n > 1 && (int64_t)n * p->n_vocab >= WORTH_IT) {
        p->run(p->threads, fn, context, n);
        return;
    }
    for (int32_t task = 0; task < n; task++) {
        fn(context, task, 0);
    }
}

void sample_batch(const sample_pool *p, sample_row *rows, int32_t n) {
    assert(n >= 0);
    sample_tasks(p, sample_one, &(sample_job){p, rows}, n);
}
