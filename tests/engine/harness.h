/* Runs an engine over a small model in a test: opens it with options, submits requests,
 * waits for them, and collects logits and tokens. */
#ifndef TESTS_ENGINE_HARNESS_H
#define TESTS_ENGINE_HARNESS_H

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "engine/explain.h"
#include "engine/output.h"
#include "engine/state.h"
#include "file/model_file.h"
#include "spec/draft.h"
#include "test.h"

#define BUILTIN "models/builtin.gguf"
/* random weights: tools/make_llama.py --preset tiny-2k --tied --sharpness 4 --seed 2 */
#define TINY "tests/engine/tiny.gguf"
/* MODEL defaults to the small built-in model, whose responses may end early. A test that
 * needs long responses defines MODEL as FLUENT; one that also needs accepted drafts, as
 * DRAFTED, for which SIBLING drafts (the tiny model with --layers 1). Under
 * ThreadSanitizer, which makes products a hundred times slower, FLUENT is the tiny model.
 * With QUIRE_TEST_LARGER (make test-long) all of them are the larger built-in model. */
#if defined(QUIRE_TEST_LARGER) && !defined(__SANITIZE_THREAD__)
#define DRAFTED BUILTIN
#define SIBLING "models/builtin-small.gguf"
#else
#define DRAFTED TINY
#define SIBLING "tests/engine/tiny-sibling.gguf"
#endif
#if defined(__SANITIZE_THREAD__)
#define FLUENT TINY
#else
#define FLUENT BUILTIN
#endif
#if !defined(MODEL)
#if defined(QUIRE_TEST_LARGER)
#define MODEL BUILTIN
#else
#define MODEL "models/builtin-small.gguf"
#endif
#endif

struct harness;

typedef struct harness_options {
    const char *path, *isa;
    compute_mode compute;
    dtype kv, state; /* state: F32 or BF16 */
    int32_t page_tokens, n_pages, chunk, max_rows, max_seqs, n_threads;
    prefix_cache prefix_cache;
    kv_policy eviction;
    const engine_prefix *prefixes;
    int32_t n_prefixes;
    const char *audit_path;
    /* [layers] kinds by which pages are laid out and freed, without effect on the model's
     * own masks; NULL: the model's */
    layer_kind *layer_kinds;
    int32_t window, max_model_len;
    engine_tiers tiers;
    int64_t swap_bytes;
    preempt_mode preempt;
    admission_policy schedule;
    double schedule_lambda; /* 0: the default, 500.0 */
    int64_t step_target_us;
    draft_options draft;
    bool shares_budget; /* the draft model's pages use the memory of the engine's n_pages */
    /* if floor_pages > 0: bytes of the memory budget to open, unless `beside` has one;
     * bytes that weights and buffers take from the budget */
    int64_t budget_bytes, fixed_bytes;
    int32_t floor_pages;
    engine_ablations ablations;
    bool no_cascade;
    bool no_chunked_prefill, starts_paused;
    bool two_sided;        /* open a Llama GGUF with attention that is not causal */
    bool no_head;          /* open the model without its head */
    int32_t n_token_types; /* token types that the model has; 0: unchanged */
    int32_t max_requests;  /* 0: 256 */
    int32_t max_adapters;  /* most adapters in a step; 0: requests have none */
    int64_t parked_bytes, parked_tenant_bytes;
    /* the engine whose thread and compute threads this one shares; NULL: none */
    const struct harness *beside;
    /* returns ops that replace the backend's before the engine starts; NULL: unchanged */
    const backend_ops *(*wrap)(const backend_ops *ops, const model_desc *d);
} harness_options;

static const harness_options harness_defaults = {.path = MODEL,
                                                 .isa = "auto",
                                                 .compute = COMPUTE_F32,
                                                 .kv = DTYPE_F32,
                                                 .page_tokens = 16,
                                                 .n_pages = 1024,
                                                 .max_rows = 128,
                                                 .max_seqs = 16,
                                                 .n_threads = 1,
                                                 .prefix_cache = PREFIX_CACHE_TOKEN};

typedef struct harness {
    backend *b;
    model *m;
    kv_budget *budget; /* opened by this harness; NULL: none */
    kv_layout layout;
    engine *e;
    engine_out *out;
    wake reader;
    int32_t n_vocab;
} harness;

/* A request and its result. */
typedef struct harness_run {
    const int32_t *prompt;
    int32_t n_prompt, n_tokens;
    sampling_params sampling;
    float *logits; /* [n_prompt, n_vocab] from position logits_first on; NULL: not wanted */
    int32_t logits_first;
    int32_t tokens[512];
    token_logprob *logprobs; /* [512, logprobs_width], the test's; NULL: not wanted */
    int32_t logprobs_width;
    /* [n_prompt - prompt_logprobs_start, prompt_width], the test's; NULL: not wanted */
    token_logprob *prompt_logprobs;
    int32_t prompt_width, prompt_logprobs_start;
    constraint *constraint; /* the test's; NULL: none */
    engine_outside outside; /* runs the constraint's work outside of steps; zero: nothing does */
    attn_mods *mods;        /* mask and score change; NULL: none */
    int32_t mods_b;
    bool mods_are_common;
    adapter_ref *adapter; /* the test's; NULL: none */
    int32_t adapter_from;
    const char *namespace; /* NULL: "test" */
    bool retains;
    kv_retention retention;
    int32_t priority, n_cached, retry_after_s, n_preempted;
    int64_t whole_us; /* microseconds from submission to end */
    int64_t deadline_us;
    int32_t place; /* number of the engine's requests that ended before this one */
    finish_reason finish;
    quire_err error;
    request_id id;
    bool explain, shows_progress;
    pooling_params pooling;
    const int32_t *types;
    float *row; /* [n_row] pooled row of the end event; the test frees it with mem_free */
    int32_t n_row;
    int32_t marks[ENGINE_MARKS], n_marks;
    engine_park *park; /* the test's; NULL: none */
    bool no_tokens;
    uint64_t tree;
    int32_t depth;
    engine_fork *fork_from;      /* the request to fork, after its prompt; the test's; NULL: none */
    prediction *prediction;      /* the test's; NULL: none */
    prediction_counts predicted; /* counts in the last event */
    explain *report;             /* report of the end event, if `explain`; the test frees it with mem_free */
} harness_run;

/* Opens an engine. On failure *h is closed again. */
static inline quire_err harness_try_open(const harness_options *o, harness *h, quire_error *out) {
    quire_error err = {0};
    *h = (harness){0};
    model_file *f;
    backend_options bo = {.compute = o->compute, .isa = o->isa, .n_threads = o->n_threads};
    const model_overrides both_ways = {.kv = "llama.attention.causal=bool:false"};
    quire_err r = model_file_open_with(o->path, o->two_sided ? &both_ways : NULL, &f, &err);
    r = r ? r : backend_cpu_open(&bo, &h->b, &err);
    r = r ? r : model_open(f, h->b, o->max_model_len > 2048 ? o->max_model_len : 2048, &h->m, &err);
    if (r == QUIRE_OK) {
        model_file_close(f);
        h->n_vocab = model_description(h->m)->n_vocab;
    }
    if (r == QUIRE_OK) {
        /* changed here, while no engine runs the model */
        model_desc *own = (model_desc *)(uintptr_t)model_description(h->m);
        own->no_head = own->no_head || o->no_head;
        own->embed.n_token_types = o->n_token_types > 0 ? o->n_token_types : own->embed.n_token_types;
    }
    step_limits limits = {.max_rows = o->max_rows,
                          .max_seqs = o->max_seqs,
                          .max_out = draft_max_out(&o->draft, o->max_seqs, o->max_rows),
                          .max_adapters = o->max_adapters,
                          .max_rank = o->max_adapters > 0 ? 16 : 0};
    engine_options eo = {.page_tokens = o->page_tokens,
                         .n_pages = o->n_pages,
                         .max_model_len = o->max_model_len > 0                 ? o->max_model_len
                                          : o->n_pages * o->page_tokens < 2048 ? o->n_pages * o->page_tokens
                                                                               : 2048,
                         .max_batched_tokens = o->max_rows,
                         .max_seqs = o->max_seqs,
                         .max_adapters = o->max_adapters,
                         .prefill_chunk = o->chunk,
                         .max_requests = o->max_requests > 0 ? o->max_requests : 256,
                         .prefix_cache = o->prefix_cache,
                         .eviction = o->eviction,
                         .prefixes = o->prefixes,
                         .n_prefixes = o->n_prefixes,
                         .audit_path = o->audit_path,
                         .tiers = o->tiers,
                         .draft = o->draft,
                         .swap_bytes = o->swap_bytes,
                         .parked_bytes = o->parked_bytes,
                         .parked_tenant_bytes = o->parked_tenant_bytes,
                         .preempt = o->preempt,
                         .no_chunked_prefill = o->no_chunked_prefill,
                         .ablations = o->ablations,
                         .no_cascade = o->no_cascade,
                         .starts_paused = o->starts_paused,
                         .team = o->beside != NULL ? o->beside->e->team : NULL,
                         .schedule = o->schedule,
                         .step_target_us = o->step_target_us,
                         .schedule_lambda = o->schedule_lambda > 0 ? o->schedule_lambda : 500.0};
    model_desc d = r ? (model_desc){0} : *model_description(h->m);
    for (int32_t i = 0; o->layer_kinds != NULL && i < d.n_caches; i++) {
        d.caches[i].kind = o->layer_kinds[i];
        d.caches[i].window = o->layer_kinds[i] == LAYER_WINDOW ? o->window : 0;
    }
    r = r ? r : kv_layout_init(&d, (kv_types){o->kv, o->kv, o->state}, o->page_tokens, &h->layout, &err);
    if (r == QUIRE_OK && o->beside != NULL) {
        h->b->ops->share_threads(h->b, o->beside->b);
    }
    r = r ? r : h->b->ops->step_open(h->b, &limits, &h->layout, h->n_vocab, &err);
    r = r ? r : h->b->ops->kv_open(h->b, o->n_pages, &err);
    if (r == QUIRE_OK && o->wrap != NULL) {
        h->b->ops = o->wrap(h->b->ops, &d);
    }
    if (r == QUIRE_OK && o->shares_budget) {
        draft_model_options *x = &eo.draft.model;
        int64_t bytes = o->n_pages * h->layout.page_bytes;
        r = kv_budget_open(bytes, &h->budget);
        eo.budget = x->budget = h->budget;
        x->n_pages = x->n_pages < bytes / x->layout->page_bytes ? x->n_pages
                                                                : (int32_t)(bytes / x->layout->page_bytes);
    }
    if (r == QUIRE_OK && o->floor_pages > 0) {
        r = o->beside == NULL ? kv_budget_open(o->budget_bytes, &h->budget) : QUIRE_OK;
        eo.budget = o->beside == NULL ? h->budget : o->beside->budget;
        eo.floor_pages = o->floor_pages;
        eo.fixed_bytes = o->fixed_bytes;
    }
    r = r ? r : engine_open(h->m, h->b, &h->layout, &eo, &h->e, &err);
    r = r ? r : wake_init(&h->reader);
    r = r ? r : engine_out_open(h->e, &h->reader, &h->out);
    *out = err;
    return r;
}

static inline void harness_open(const harness_options *o, harness *h) {
    quire_error err = {0};
    if (harness_try_open(o, h, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
}

static inline void harness_close(harness *h) {
    if (h->e != NULL) {
        engine_out_close(h->out);
    }
    engine_close(h->e);
    kv_budget_close(h->budget); /* its users are closed */
    if (h->out != NULL) {
        wake_deinit(&h->reader);
    }
    model_close(h->m);
    h->b->ops->close(h->b);
}

static inline void harness_submit(harness *h, harness_run *r) {
    quire_error err = {0};
    int32_t *tokens = mem_new((size_t)r->n_prompt, sizeof *tokens);
    const char *namespace = r->namespace ? r->namespace : "test";
    memcpy(tokens, r->prompt, (size_t)r->n_prompt * sizeof *tokens);
    engine_request q = {.tokens = tokens,
                        .n_tokens = r->n_prompt,
                        .sampling = r->sampling,
                        .pooling = r->pooling,
                        .types = r->types,
                        .logits_out = r->logits,
                        .logits_first = r->logits_first,
                        .mods = r->mods,
                        .adapter = r->adapter,
                        .adapter_from = r->adapter_from,
                        .logprobs_width = r->logprobs_width,
                        .prompt_logprobs_width = r->prompt_width,
                        .prompt_logprobs_start = r->prompt_logprobs_start,
                        .constraint = r->constraint,
                        .outside = r->outside,
                        .prediction = r->prediction,
                        .mods_b = r->mods_b,
                        .mods_are_own = !r->mods_are_common,
                        .namespace = namespace,
                        .n_namespace = strlen(namespace),
                        .retains = r->retains,
                        .retention = r->retention,
                        .priority = r->priority,
                        .deadline_us = r->deadline_us,
                        .parks = r->park != NULL ? &r->park : NULL,
                        .no_tokens = r->no_tokens,
                        .tree = r->tree,
                        .depth = r->depth,
                        .fork_from = r->fork_from,
                        .fork_position = r->fork_from != NULL ? r->n_prompt : 0,
                        .explain = r->explain,
                        .shows_progress = r->shows_progress,
                        .out = h->out,
                        .user = r};
    q.n_marks = r->n_marks;
    memcpy(q.marks, r->marks, sizeof q.marks);
    r->n_tokens = 0;
    r->finish = FINISH_NONE;
    r->error = engine_submit(h->e, &q, &r->id, &err);
    if (r->error != QUIRE_OK) {
        mem_free(tokens);
        r->finish = FINISH_ERROR;
    }
}

/* Holds the engine: no step begins until harness_wait, as with starts_paused. For tests
 * of how requests share steps and pages: otherwise the first request might end before the
 * last is submitted. */
static inline void harness_hold(harness *h) {
    atomic_store(&h->e->paused, true);
}

/* Adds the next event to its request. False: there is no event now. *ended: the event
 * ended the request. */
static inline bool harness_read(harness *h, bool *ended) {
    engine_event ev;
    *ended = false;
    if (!engine_out_pop(h->out, &ev)) {
        return false;
    }
    harness_run *r = ev.user;
    *ended = ev.finish != FINISH_NONE;
    r->predicted = ev.predicted;
    if (!*ended) {
        if (r->n_tokens < (int32_t)(sizeof r->tokens / sizeof *r->tokens)) {
            r->tokens[r->n_tokens] = ev.token;
            if (ev.logprobs != NULL && r->logprobs != NULL) {
                memcpy(r->logprobs + r->n_tokens * r->logprobs_width, ev.logprobs,
                       (size_t)r->logprobs_width * sizeof *ev.logprobs);
            }
        }
        r->n_tokens++;
        return true;
    }
    if (r->prompt_logprobs != NULL && ev.prompt_logprobs != NULL) {
        memcpy(r->prompt_logprobs, ev.prompt_logprobs,
               (size_t)(r->n_prompt - r->prompt_logprobs_start) * (size_t)r->prompt_width *
                   sizeof *ev.prompt_logprobs);
    }
    r->finish = ev.finish;
    r->error = ev.error;
    r->n_cached = ev.n_cached;
    r->whole_us = ev.ended_us - (ev.admitted_us - ev.queue_us);
    r->report = ev.explain;
    r->row = ev.row;
    r->n_row = ev.n_row;
    r->retry_after_s = ev.retry_after_s;
    r->n_preempted = ev.n_preempted;
    r->place = (int32_t)ev.n_ended_before;
    return true;
}

/* Releases a held engine, and reads events until n requests have ended. */
static inline void harness_wait(harness *h, int32_t n) {
    engine_release(h->e);
    while (n > 0) {
        bool ended;
        if (!harness_read(h, &ended)) {
            wake_wait(&h->reader, -1);
        }
        n -= ended;
    }
}

/* Stops the engine's thread. The test's thread then runs steps with harness_step, and
 * chooses what happens between them. Before harness_close, every request must have ended
 * and its end event must have been read. */
static inline void harness_take_over(harness *h) {
    engine_stop(h->e);
}

/* Runs a step, which must not allocate, and the audit. False: there was nothing to do. */
static inline bool harness_step(harness *h) {
    mem_guard_enter();
    bool started = step_submit(h->e);
    if (started) {
        step_collect(h->e);
    }
    engine_audit(h->e);
    stats_publish(h->e);
    out_wake_readers(h->e);
    mem_guard_leave();
    return started;
}

/* Runs up to `most` steps while there is anything to do, and reads the events. Returns
 * the number of steps. */
static inline int32_t harness_steps(harness *h, int32_t most) {
    int32_t n = 0;
    bool ended;
    while (n < most && harness_step(h)) {
        n++;
    }
    while (harness_read(h, &ended)) {
    }
    return n;
}

/* Waits until nothing runs or waits and no page is held, and returns the counters. An
 * event may arrive before the step that sent it has published its counters. */
static inline quire_stats harness_idle_stats(harness *h) {
    quire_stats s = {0};
    for (int i = 0; i < 30000; i++) {
        engine_stats_read(h->e, &s);
        if (s.n_requests_running == 0 && s.n_requests_waiting == 0 && s.n_pages_held == 0) {
            return s;
        }
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    fail_msg("%lld sequences still run", (long long)s.n_requests_running);
    return s;
}

/* Fills out[0..n) with random ids other than 0, the end-of-text token. */
static inline void random_prompt(uint64_t *random, int32_t n_vocab, int32_t n, int32_t *out) {
    for (int32_t i = 0; i < n; i++) {
        out[i] = 1 + (int32_t)(rng_next(random) % (uint64_t)(n_vocab - 1));
    }
}

static inline sampling_params greedy(int32_t max_tokens) {
    sampling_params p;
    sampling_params_init(&p);
    p.temperature = 0;
    p.max_tokens = max_tokens;
    p.ignore_eos = true;
    p.has_seed = true;
    return p;
}

#endif
