/* bench workload --as: programs of common shapes, run as programs and as the separate
 * requests of an application that does not use programs. All ways give the same tokens,
 * which is checked. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "lab/bench/lab.h"
#include "lab/bench/model_shape.h"
#include "lab/bench/program_tasks.h"
#include "lab/commands/measures.h"
#include "program/program_state.h"

/* ---- separate requests ---- */

/* The tokens that a request computed: its prompt, and its output without the last
 * token. */
typedef struct request_ids {
    int32_t *ids; /* [n] */
    size_t n, n_prompt;
} request_ids;

/* Executes gens as plain requests with all of a state's ids, a few at a time. */
typedef struct request_executor {
    quire_engine *e;
    quire_queue *q;
    int32_t most, n_running;
    struct request_call *first, **last; /* waiting calls */
    request_ids *kept;                  /* [n_kept] for all requests so far */
    size_t n_kept, cap_kept;
} request_executor;

typedef struct request_call {
    struct request_call *next;
    program_call *c;
    quire_request *request;
    size_t kept; /* index in `kept` */
    quire_error error;
} request_call;

static quire_err request_add_ids(program_output *o, const int32_t *ids, size_t n) {
    TRY(mem_grow(&o->ids, &o->cap_ids, o->n_ids + n, sizeof *o->ids));
    mem_copy(o->ids + o->n_ids, ids, n * sizeof *ids);
    o->n_ids += n;
    return QUIRE_OK;
}

/* Keeps all ids of a state as the prompt of a request. */
static quire_err request_keep_prompt(request_executor *x, const quire_state *s) {
    program_output all = {0};
    quire_err e = mem_grow(&x->kept, &x->cap_kept, x->n_kept + 1, sizeof *x->kept);
    for (size_t i = 0; i < s->n_parts && e == QUIRE_OK; i++) {
        const program_part *part = &s->parts[i];
        e = part->kind == PART_TOKENS ? request_add_ids(&all, part->step->ids, part->step->n_ids)
                                      : request_add_ids(&all, part->value->ids, part->value->n_ids);
    }
    if (e != QUIRE_OK) {
        mem_free(all.ids);
        return e;
    }
    x->kept[x->n_kept++] = (request_ids){all.ids, all.n_ids, all.n_ids};
    return QUIRE_OK;
}

/* Adds the computed tokens of a request's output. */
static quire_err request_keep_output(request_ids *r, const program_output *o) {
    size_t cap = r->n;
    if (o->n_ids > 1) {
        TRY(mem_grow(&r->ids, &cap, r->n + o->n_ids - 1, sizeof *r->ids));
        mem_copy(r->ids + r->n, o->ids, (o->n_ids - 1) * sizeof *o->ids);
        r->n += o->n_ids - 1;
    }
    return QUIRE_OK;
}

static size_t request_count_common(const request_ids *p, const request_ids *q) {
    size_t n = p->n < q->n ? p->n : q->n, i = 0;
    while (i < n && p->ids[i] == q->ids[i]) {
        i++;
    }
    return i;
}

static int request_compare_ids(const void *a, const void *b) {
    const request_ids *p = a, *q = b;
    size_t i = request_count_common(p, q);
    return i == p->n || i == q->n ? (p->n > q->n) - (p->n < q->n) : p->ids[i] < q->ids[i] ? -1 : 1;
}

/* Whether request i, or one with the same first n ids, generated the last of these. */
static bool request_has_generated(const request_executor *x, size_t i, size_t n) {
    for (size_t k = i; k < x->n_kept && request_count_common(&x->kept[i], &x->kept[k]) >= n; k++) {
        if (x->kept[k].n_prompt < n) {
            return true;
        }
    }
    return false;
}

/* Counts the distinct pairs of a prefix and its next token in the prompts, except those
 * whose token a request generated and computed: in sorted order, the tokens that each
 * prompt does not share with the previous one. */
static int64_t request_count_distinct(request_executor *x) {
    int64_t distinct = 0;
    if (x->n_kept > 0) {
        qsort(x->kept, x->n_kept, sizeof *x->kept, request_compare_ids);
    }
    for (size_t i = 0; i < x->n_kept; i++) {
        size_t n = i > 0 ? request_count_common(&x->kept[i - 1], &x->kept[i]) : 0;
        for (; n < x->kept[i].n_prompt; n++) {
            distinct += request_has_generated(x, i, n + 1) ? 0 : 1;
        }
    }
    return distinct;
}

/* Makes the request of a gen. */
static quire_err request_make(request_executor *x, const program_call *c, quire_request **out,
                              quire_error *err) {
    const program_steps *p = &c->state->root->program;
    TRY(err_set(err, request_keep_prompt(x, c->state), -1, "out of memory for a request"));
    const request_ids *all = &x->kept[x->n_kept - 1];
    TRY(quire_request_ids(x->e, all->ids, all->n, out, err));
    quire_err e = quire_request_set_all(*out, p->fields, p->n_fields, err);
    TRY_DONE(e, quire_request_set_all(*out, c->step->fields, c->step->n_fields, err));
    char seed[32];
    (void)snprintf(seed, sizeof seed, "%llu", (unsigned long long)c->seed);
    TRY_DONE(e, quire_request_set(*out, "seed", seed, err));
done:
    if (e != QUIRE_OK) {
        quire_request_free(*out);
    }
    return e;
}

static quire_err request_gen(void *executor, program_call *c, quire_error *err) {
    request_executor *x = executor;
    request_call *k = mem_new(1, sizeof *k);
    c->outputs = mem_new(1, sizeof *c->outputs);
    c->n_outputs = c->outputs != NULL ? 1 : 0;
    quire_err e = mem_check_for(c->outputs != NULL ? k : NULL, "a request", err);
    TRY_DONE(e, request_make(x, c, &k->request, err));
done:
    if (e != QUIRE_OK) {
        mem_free(k);
        return e;
    }
    k->c = c;
    k->kept = x->n_kept - 1;
    *x->last = k;
    x->last = &k->next;
    return QUIRE_OK;
}

static quire_err request_select(void *executor, program_call *c, quire_error *err) {
    (void)executor, (void)c;
    return err_set(err, QUIRE_UNSUPPORTED, -1, "these programs have no select");
}

/* Submits requests up to the limit. */
static void request_submit_some(request_executor *x) {
    while (x->first != NULL && x->n_running < x->most) {
        request_call *k = x->first;
        quire_stream *s;
        x->first = k->next;
        x->last = x->first == NULL ? &x->first : x->last;
        if (quire_submit(x->q, k->request, k, &s, &k->error) == QUIRE_OK) {
            x->n_running++;
            continue;
        }
        program_call *c = k->c;
        const quire_error why = k->error;
        mem_free(k);
        program_call_end(c, &why);
    }
}

static void request_take_done(request_executor *x, request_call *k, const quire_event *ev) {
    program_call *c = k->c;
    if (request_keep_output(&x->kept[k->kept], &c->outputs[0]) != QUIRE_OK) {
        err_set(&k->error, QUIRE_NO_MEMORY, -1, "out of memory for an output");
    }
    const quire_error why = ev->error != NULL ? *ev->error : k->error;
    c->prompt_tokens = ev->prompt_tokens;
    c->computed_tokens = ev->prompt_tokens - ev->cached_tokens;
    c->completion_tokens = ev->completion_tokens;
    quire_stream_release(ev->stream);
    mem_free(k);
    x->n_running--;
    program_call_end(c, why.code != QUIRE_OK ? &why : NULL);
}

static bool request_poll(void *executor) {
    request_executor *x = executor;
    quire_event ev;
    bool had = false;
    request_submit_some(x);
    while (quire_queue_next(x->q, &ev)) {
        request_call *k = ev.user;
        had = true;
        if (ev.kind == QUIRE_EVENT_DELTA &&
            request_add_ids(&k->c->outputs[0], ev.tokens, (size_t)ev.n_tokens) != QUIRE_OK) {
            err_set(&k->error, QUIRE_NO_MEMORY, -1, "out of memory for an output");
        } else if (ev.kind == QUIRE_EVENT_DONE) {
            request_take_done(x, k, &ev);
        }
    }
    return had;
}

static quire_err request_fork(void *executor, const quire_state *from, quire_state *to) {
    (void)executor, (void)from, (void)to;
    return QUIRE_OK;
}

static void request_drop(void *executor, quire_state *s) {
    (void)executor, (void)s;
}

/* Runs programs to their ends. */
static void request_cancel(void *executor, program_call *c) {
    (void)executor, (void)c;
}

static const int32_t *request_tokens(void *executor, const quire_state *s, size_t *n) {
    (void)executor, (void)s;
    *n = 0;
    return NULL;
}

static int request_fd(void *executor) {
    return quire_queue_fd(((request_executor *)executor)->q);
}

static void request_wait(void *executor, int64_t timeout_us) {
    quire_queue_wait(((request_executor *)executor)->q, timeout_us);
}

static void request_close(void *executor) {
    request_executor *x = executor;
    quire_queue_close(x->q);
    for (size_t i = 0; i < x->n_kept; i++) {
        mem_free(x->kept[i].ids);
    }
    mem_free(x->kept);
    mem_free(x);
}

static const program_ops request_ops = {.gen = request_gen,
                                        .select = request_select,
                                        .cancel = request_cancel,
                                        .fork = request_fork,
                                        .drop = request_drop,
                                        .tokens = request_tokens,
                                        .poll = request_poll,
                                        .fd = request_fd,
                                        .wait = request_wait,
                                        .close = request_close};

static quire_err requests_open(quire_engine *e, int32_t most, request_executor **executor,
                               quire_programs **out) {
    request_executor *x = *executor = mem_new(1, sizeof *x);
    TRY(mem_check(x));
    x->e = e;
    x->most = most;
    x->last = &x->first;
    quire_err r = quire_queue_open(e, &x->q);
    if (r != QUIRE_OK) {
        mem_free(x);
        return r;
    }
    return programs_open(&request_ops, x, out);
}

/* ---- ways ---- */

typedef enum programs_way {
    WAY_PROGRAM,
    WAY_AT_ONCE,
    WAY_REQUESTS,
    WAY_NO_CACHE,
    N_PROGRAM_WAYS
} programs_way;

static const char *const way_names[N_PROGRAM_WAYS] = {"program", "at-once", "requests", "no-cache"};

typedef struct programs_result {
    int64_t n_prompt, n_computed, n_calls;
    int64_t n_distinct; /* from request_count_distinct; 0 when run as a program */
    double seconds;     /* minimum over the runs; 0: none yet */
    uint64_t digest;
} programs_result;

static int32_t programs_n_runs(const experiment_options *o) {
    return o->n_runs > 0 ? o->n_runs : 1;
}

static quire_err programs_run_to_end(quire_programs *ps, const strbuf *json, programs_result *r,
                                     quire_error *err) {
    quire_state *s;
    quire_program_event ev = {0};
    quire_program_usage u = {.size = sizeof u};
    const int64_t begin = clock_us();
    TRY(quire_program_open(ps, json->p, json->n, NULL, &s, err));
    while (ev.kind != QUIRE_PROGRAM_IDLE) {
        if (!quire_programs_next(ps, &ev)) {
            ev.kind = QUIRE_PROGRAM_TEXT;
            quire_programs_wait(ps, -1);
        } else if (ev.kind == QUIRE_PROGRAM_FAILED) {
            *err = *ev.error;
        }
    }
    const double seconds = (double)(clock_us() - begin) / 1e6;
    quire_state_usage(s, &u);
    r->n_prompt = u.prompt_tokens;
    r->n_computed = u.computed_tokens;
    r->n_calls = u.n_calls;
    r->seconds = r->seconds == 0 || seconds < r->seconds ? seconds : r->seconds;
    r->digest = 0;
    for (size_t i = 0; i < s->root->n_records && u.n_failed == 0; i++) {
        const program_value *v = s->root->records[i].value;
        /* in order of ending; the prefix of a fork has no value */
        r->digest += v != NULL ? lab_digest(v->ids, (int32_t)v->n_ids) : 0;
    }
    quire_state_close(s);
    return u.n_failed > 0 ? err->code : QUIRE_OK;
}

/* Runs a task in one way, on a new engine with an empty cache. */
static quire_err programs_run_on(quire_engine *e, programs_way way, const strbuf *json, programs_result *r,
                                 quire_error *err) {
    quire_programs *ps;
    request_executor *x = NULL;
    quire_err r_open = way == WAY_PROGRAM ? quire_programs_open(e, &ps)
                                          : requests_open(e, way == WAY_REQUESTS ? 1 : INT32_MAX, &x, &ps);
    if (r_open != QUIRE_OK) {
        TRY(err_set(err, r_open, -1, "out of memory for a program"));
    }
    quire_err ran = programs_run_to_end(ps, json, r, err);
    r->n_distinct = x != NULL ? request_count_distinct(x) : 0;
    quire_programs_close(ps);
    return ran;
}

static quire_err programs_run_once(const experiment_options *o, programs_way way, const program_task *t,
                                   const task_texts *texts, programs_result *r, quire_error *err) {
    quire_options own = o->cli.engine;
    quire_engine *e;
    strbuf json = {0};
    own.prefix_cache = way == WAY_NO_CACHE ? QUIRE_PREFIX_CACHE_NONE : QUIRE_PREFIX_CACHE_TOKEN;
    own.max_model_len = 2048;
    TRY(quire_engine_open(&own, &e, err));
    quire_err ran = program_task_write(t, texts, e, &json, err);
    TRY_DONE(ran, programs_run_on(e, way, &json, r, err));
done:
    strbuf_deinit(&json);
    quire_engine_close(e);
    return ran;
}

static quire_err programs_run_task(const experiment_options *o, const program_task *t,
                                   const task_texts *texts, const bool wants[N_PROGRAM_WAYS],
                                   const bench_table *s, quire_error *err) {
    programs_result results[N_PROGRAM_WAYS] = {{0}};
    int first = N_PROGRAM_WAYS;
    int64_t distinct = 0;
    for (int32_t i = 0; i < programs_n_runs(o) * N_PROGRAM_WAYS; i++) {
        const int way = i % N_PROGRAM_WAYS;
        if (!wants[way]) {
            continue;
        }
        first = way < first ? way : first;
        TRY(programs_run_once(o, (programs_way)way, t, texts, &results[way], err));
        if (results[way].digest != results[first].digest) {
            return err_set(err, QUIRE_INTERNAL, -1, "%s as %s gives other tokens", t->name, way_names[way]);
        }
        distinct = results[way].n_distinct > 0 ? results[way].n_distinct : distinct;
    }
    for (int way = 0; way < N_PROGRAM_WAYS; way++) {
        const programs_result *r = &results[way], *requests = &results[WAY_REQUESTS],
                              *uncached = &results[WAY_NO_CACHE];
        if (wants[way]) {
            TABLE_ROW(s, TXT(t->name), TXT(way_names[way]), NUM(r->n_calls), NUM(r->n_prompt),
                      NUM(distinct > 0 ? (double)distinct : TABLE_ABSENT), NUM(r->n_computed),
                      NUM(1e3 * r->seconds),
                      NUM(wants[WAY_REQUESTS] ? requests->seconds / r->seconds : TABLE_ABSENT),
                      NUM(wants[WAY_NO_CACHE] ? uncached->seconds / r->seconds : TABLE_ABSENT),
                      NUM(way == WAY_PROGRAM && t->published > 0 ? t->published : TABLE_ABSENT));
        }
    }
    return QUIRE_OK;
}

/* Runs all tasks, or the named one. */
static quire_err programs_run_tasks(const experiment_options *o, const task_texts *texts,
                                    const bool wants[N_PROGRAM_WAYS], const bench_table *s,
                                    quire_error *err) {
    const char *name = o->cli.argument;
    bool any = false;
    for (size_t i = 0; i < N_PROGRAM_TASKS; i++) {
        const program_task *t = &program_tasks[i];
        if (name != NULL && strcmp(name, t->name) != 0) {
            continue;
        }
        if (!any) {
            table_begin(s, "Programs, and the same calls as requests; all give the same tokens (checked)");
        }
        any = true;
        TRY(programs_run_task(o, t, texts, wants, s, err));
    }
    return any ? QUIRE_OK
               : err_set(err, QUIRE_INVALID, -1,
                         "%s: no such program; there are mmlu5, gsm8k, questions, react, self-consistency, "
                         "tree-of-thought, json-form, chats and one-chat",
                         name);
}

/* Runs on o's model, with the texts of o->data. */
static quire_err programs_run_on_model(const experiment_options *o, quire_error *err) {
    bool wants[N_PROGRAM_WAYS] = {false};
    int32_t ways[N_PROGRAM_WAYS], n_ways;
    char machine[160];
    task_texts *texts = NULL;
    TABLE(s, "workload", o->cli.json, WORD("workload", "workload", 16), WORD("as", "as", 8),
          FIGURE("calls", "calls", 6, 0, "calls"), FIGURE("prompt", "prompt", 7, 0, "tokens"),
          FIGURE("distinct", "distinct", 8, 0, "tokens"), FIGURE("computed", "computed", 8, 0, "tokens"),
          FIGURE("time", "ms", 9, 1, "ms"), FIGURE("relative", "of requests", 11, 2, "x"),
          FIGURE("uncached", "of no-cache", 11, 2, "x"), KEY("published", "published", 9, 1));
    TRY(FIGURES_PARSE_NAMES("--as", o->as, way_names, ways, &n_ways, err));
    for (int32_t i = 0; i < n_ways; i++) {
        wants[ways[i]] = true;
    }
    TRY(lab_describe(&o->cli.engine, machine, sizeof machine, err));
    if (o->data != NULL) {
        TRY(task_texts_open(o->data, &texts, err));
    }
    quire_err e = programs_run_tasks(o, texts, wants, &s, err);
    task_texts_close(texts);
    TRY(e);
    table_note(
        &s,
        "requests: one call after another, as a script sends them; at-once: calls that wait for no other "
        "are sent together; no-cache: likewise, without a prefix cache; distinct: pairs of a prefix and a "
        "token after it in all prompts; published: SGLang's times the throughput of vLLM, which had no "
        "prefix "
        "cache then; texts: %s; %s; tokens counted, times the fastest of %d runs in turns (measured)",
        o->data != NULL ? o->data : "none, drawn tokens (--data has some)", machine, (int)programs_n_runs(o));
    return QUIRE_OK;
}

quire_err experiment_programs(const experiment_options *o, quire_error *err) {
    experiment_options own = *o;
    synthetic s;
    const shaped_use use = o->shape == NULL ? SHAPED_NOT : o->data == NULL ? SHAPED_IDS : SHAPED_TEXTS;
    TRY(shaped_open(&o->cli, o->shape, o->type, use, &own.cli.engine, &s, err));
    quire_err e = programs_run_on_model(&own, err);
    synthetic_close(&s);
    return e;
}
