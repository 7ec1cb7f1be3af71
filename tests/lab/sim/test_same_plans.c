/* The simulator plans as the engine does: both serve one trace, the engine with the null
 * model, and their plans are compared step by step. */
#include <stdio.h>
#include <time.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/state.h"
#include "kv/index_impl.h"
#include "lab/bench/null_model.h"
#include "lab/sim/serving.h"
#include "lab/sim/trace_read.h"
#include "test.h"

enum { PAGE = 16, N_REQUESTS = 40, MAX_LEN = 256, MAX_RECORDS = 1 << 16 };

/* What a step plans, as numbers: items, preemptions so far, cached pages, and for each
 * item its request, first position and rows. */
typedef struct record {
    int32_t v[MAX_RECORDS], n, n_steps;
} record;

static record of_engine, of_sim;
static engine *running;

static void note(void *context, const scheduler *s) {
    record *r = context;
    assert_true(r->n + 3 + 3 * s->plan.n_items <= MAX_RECORDS);
    r->v[r->n++] = s->plan.n_items;
    r->v[r->n++] = (int32_t)s->counts.preemptions;
    r->v[r->n++] = kv_pool_counts(s->kv->pool).n_cached;
    for (int32_t i = 0; i < s->plan.n_items; i++) {
        r->v[r->n++] = (int32_t)s->tasks[i]->arrival;
        r->v[r->n++] = s->tasks[i]->kv.n_computed;
        r->v[r->n++] = s->plan.items[i].n_rows;
    }
    r->n_steps++;
}

static void (*null_wait)(backend *b);

static void noted_wait(backend *b) {
    note(&of_engine, &running->sched);
    null_wait(b);
}

enum { VOCAB = 32 }; /* of the null model */

/* Requests of three tenants that begin with their tenant's text and go on with one of
 * their own, all at once. */
static void random_trace(uint64_t *seed, char *text, size_t size) {
    size_t at = 0;
    for (int i = 0; i < N_REQUESTS; i++) {
        int tenant = (int)(rng_next(seed) % 3), shared = (int)(rng_next(seed) % 70),
            own = 2 + (int)(rng_next(seed) % 60);
        int out = 1 + (int)(rng_next(seed) % 50);
        at += (size_t)snprintf(text + at, size - at, "{\"t\": 0, \"tenant\": \"t%d\", \"prompt\": [", tenant);
        for (int k = 0; k < shared + own; k++) { /* its own text begins with its number */
            int token = k < shared        ? (k * 7 + tenant) % VOCAB
                        : k == shared     ? i / VOCAB
                        : k == shared + 1 ? i % VOCAB
                                          : k % VOCAB;
            at += (size_t)snprintf(text + at, size - at, "%s%d", k > 0 ? ", " : "", token);
        }
        at += (size_t)snprintf(text + at, size - at, "], \"output\": %d}\n", out);
    }
}

static void serve_by_engine(const trace *t, const serving_options *o) {
    null_model *null;
    kv_layout layout;
    engine_out *out;
    wake reader;
    quire_error err;
    assert_int_equal(null_model_open(1, &null), QUIRE_OK);
    assert_int_equal(kv_layout_init(model_description(null->m), kv_both(DTYPE_F32), PAGE, &layout, &err),
                     QUIRE_OK);
    backend_ops ops = *null->b->ops;
    null_wait = ops.step_wait;
    ops.step_wait = noted_wait;
    const backend_ops *own = null->b->ops;
    null->b->ops = &ops;
    engine_options k = {.prefix_cache = o->cache == SERVING_CACHE_NONE   ? PREFIX_CACHE_NONE
                                        : o->cache == SERVING_CACHE_PAGE ? PREFIX_CACHE_PAGE
                                                                         : PREFIX_CACHE_TOKEN,
                        .page_tokens = PAGE,
                        .n_pages = (int32_t)(o->kv_tokens / PAGE),
                        .max_model_len = MAX_LEN,
                        .max_batched_tokens = o->max_rows,
                        .prefill_chunk = o->max_chunk,
                        .max_seqs = o->max_seqs,
                        .max_requests = N_REQUESTS,
                        .starts_paused = true};
    assert_int_equal(engine_open(null->m, null->b, &layout, &k, &running, &err), QUIRE_OK);
    if (running->kv.index != NULL) {
        /* the simulator's seed: it decides between equally long partial matches */
        running->kv.index->tree.random = 1;
    }
    assert_int_equal(wake_init(&reader), QUIRE_OK);
    assert_int_equal(engine_out_open(running, &reader, &out), QUIRE_OK);
    for (int32_t i = 0; i < t->n_requests; i++) {
        const trace_request *q = &t->requests[i];
        engine_request r = {.tokens = mem_new((size_t)(q->n_prompt + q->n_output), sizeof(int32_t)),
                            .n_tokens = q->n_prompt,
                            .out = out};
        request_id id;
        trace_tokens(t, q, r.tokens);
        r.namespace = &q->tenant;
        r.n_namespace = sizeof q->tenant;
        sampling_params_init(&r.sampling);
        r.sampling.temperature = 0;
        r.sampling.has_seed = true;
        r.sampling.ignore_eos = true;
        r.sampling.max_tokens = q->n_output;
        if (engine_submit(running, &r, &id, &err) != QUIRE_OK) {
            fail_msg("%s", err.message);
        }
    }
    engine_release(running);
    for (int32_t n_ended = 0; n_ended < t->n_requests;) {
        engine_event ev;
        if (engine_out_pop(out, &ev)) {
            n_ended += ev.finish != FINISH_NONE;
        } else {
            wake_wait(&reader, -1);
        }
    }
    engine_out_close(out);
    engine_close(running);
    wake_deinit(&reader);
    null->b->ops = own;
    null_model_close(null);
}

/* Serves one trace both ways. Returns how often a request was preempted. */
static int32_t compare(uint64_t *seed, serving_options o) {
    static char text[1 << 16];
    trace t = {0};
    quire_error err = {.message = ""};
    serving_result result = {0};
    of_engine = of_sim = (record){0};
    random_trace(seed, text, sizeof text);
    assert_int_equal(trace_parse(str_of(text), "t", 0, &t, &err), QUIRE_OK);
    o.on_plan = note;
    o.context = &of_sim;
    assert_int_equal(serving_run(&t, &o, &result, &err), QUIRE_OK);
    serve_by_engine(&t, &o);
    assert_int_equal(result.times.n, N_REQUESTS);
    assert_int_equal(of_engine.n_steps, of_sim.n_steps);
    assert_int_equal(of_engine.n, of_sim.n);
    assert_memory_equal(of_engine.v, of_sim.v, (size_t)of_sim.n * sizeof of_sim.v[0]);
    int32_t n_preempted = (int32_t)result.n_preemptions;
    serving_result_deinit(&result);
    trace_deinit(&t);
    return n_preempted;
}

TEST(engine_and_simulator_plan_the_same_steps) {
    static const cost_model cost = {.model = "m",
                                    .device = "d",
                                    .n_points = 2,
                                    .rows = {0, 1},
                                    .us = {10, 11},
                                    .kv_tokens = 1 << 20,
                                    .token_bytes = 1,
                                    .max_model_len = MAX_LEN};
    uint64_t seed = (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)seed);
    int32_t n_preempted = 0;
    for (int round = 0; round < 30; round++) {
        serving_options o = {.cost = &cost,
                             .batching = BATCH_ITERATION,
                             .reservation = RESERVE_PAGED,
                             .cache = (serving_cache)(round % 3),
                             .kv_tokens = PAGE * (16 + (int64_t)(rng_next(&seed) % 40)),
                             .page_tokens = PAGE,
                             .max_model_len = MAX_LEN,
                             .max_rows = 16 + (int32_t)(rng_next(&seed) % 64),
                             .max_chunk = round % 2 == 0 ? 0 : 16,
                             .max_seqs = 2 + (int32_t)(rng_next(&seed) % 8),
                             .speed = 1,
                             .checks = true};
        n_preempted += compare(&seed, o);
    }
    assert_true(n_preempted > 0);
}

TEST_MAIN(NULL, NULL)
