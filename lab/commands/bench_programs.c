/* bench workload --as: programs of common shapes, run as programs and as the requests that
 * an application sends which knows nothing of programs. All ways give the same tokens,
 * which is checked. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "lab/bench/lab.h"
#include "lab/commands/experiment.h"
#include "program/program_values.h"
#include "json/json_out.h"

/* ---- requests without programs ---- */

/* Executes gens as plain requests of all of a state's ids, at most so many at a time. */
typedef struct request_executor {
    quire_engine *e;
    quire_queue *q;
    int32_t most, n_running;
    struct request_call *first, **last; /* that wait */
} request_executor;

typedef struct request_call {
    struct request_call *next;
    program_call *c;
    quire_request *request;
    quire_error error;
} request_call;

static quire_err request_add_ids(program_output *o, const int32_t *ids, size_t n) {
    TRY(mem_grow(&o->ids, &o->cap_ids, o->n_ids + n, sizeof *o->ids));
    mem_copy(o->ids + o->n_ids, ids, n * sizeof *ids);
    o->n_ids += n;
    return QUIRE_OK;
}

/* Makes the request of a gen, with the ids of all that its state has. */
static quire_err request_make(const request_executor *x, const program_call *c, quire_request **out,
                              quire_error *err) {
    const quire_state *s = c->state;
    const program_steps *p = &s->root->program;
    program_output all = {0};
    quire_err e = QUIRE_OK;
    for (size_t i = 0; i < s->n_parts && e == QUIRE_OK; i++) {
        const program_part *part = &s->parts[i];
        e = part->kind == PART_TOKENS ? request_add_ids(&all, part->step->ids, part->step->n_ids)
                                      : request_add_ids(&all, part->value->ids, part->value->n_ids);
    }
    e = e == QUIRE_OK ? quire_request_ids(x->e, all.ids, all.n_ids, out, err)
                      : err_set(err, e, -1, "out of memory for a request");
    mem_free(all.ids);
    TRY(e);
    e = quire_request_set_all(*out, p->fields, p->n_fields, err);
    e = e == QUIRE_OK ? quire_request_set_all(*out, c->step->fields, c->step->n_fields, err) : e;
    char seed[32];
    (void)snprintf(seed, sizeof seed, "%llu", (unsigned long long)c->seed);
    e = e == QUIRE_OK ? quire_request_set(*out, "seed", seed, err) : e;
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
    e = e == QUIRE_OK ? request_make(x, c, &k->request, err) : e;
    if (e != QUIRE_OK) {
        mem_free(k);
        return e;
    }
    k->c = c;
    *x->last = k;
    x->last = &k->next;
    return QUIRE_OK;
}

static quire_err request_select(void *executor, program_call *c, quire_error *err) {
    (void)executor, (void)c;
    return err_set(err, QUIRE_UNSUPPORTED, -1, "these programs have no select");
}

/* Submits what may run. */
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

/* Programs are run to their ends here. */
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

static quire_err requests_open(quire_engine *e, int32_t most, quire_programs **out) {
    request_executor *x = mem_new(1, sizeof *x);
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

/* ---- tasks ---- */

/* A kind of application. `outer` branches go on from a prompt; each adds tokens of its own,
 * generates, and so on for its rounds; each round then has `inner` branches, which add and
 * generate once. */
typedef struct task {
    const char *name;
    double published; /* SGLang's times vLLM's throughput (docs/lab/experiments.md); 0: none */
    int32_t n_prompt, outer, n_added, n_generated, rounds, inner;
    double temperature;
} task;

static const task tasks[] = {
    {"mmlu5", 4.4, 600, 24, 60, 2, 1, 0, 0},         /* one question's five shots, many questions */
    {"gsm8k", 4.5, 500, 16, 50, 48, 1, 0, 0},        /* the same, with reasoning */
    {"react", 5.6, 400, 6, 40, 24, 5, 0, 0},         /* agents that share their instructions */
    {"self-consistency", 0, 300, 8, 1, 64, 1, 0, 1}, /* answers to one question */
    {"tree-of-thought", 0, 160, 4, 8, 24, 2, 3, 1},  /* branches of branches */
    {"json-form", 0, 240, 8, 8, 6, 6, 0, 0},         /* fields between constant text */
    {"chats", 0, 120, 4, 40, 48, 6, 0, 0},           /* users of one system prompt */
    {"one-chat", 0, 120, 1, 40, 48, 6, 0, 0},        /* nothing to share, and nothing beside it */
};

static void task_add_tokens(json_out *o, uint64_t *seed, int32_t n, int32_t n_vocab) {
    json_begin(json_item(o), '{');
    json_begin(json_name(o, "tokens"), '[');
    for (int32_t i = 0; i < n; i++) {
        /* the first ids of a vocabulary are its special tokens and bytes */
        json_int(json_item(o), 300 + (int64_t)(rng_next(seed) % (uint64_t)(n_vocab - 300)));
    }
    json_end(o, ']');
    json_end(o, '}');
}

static void task_add_gen(json_out *o, int32_t round, int32_t n) {
    char name[16];
    (void)snprintf(name, sizeof name, "x%d", (int)round);
    json_begin(json_item(o), '{');
    json_cstr(json_name(o, "gen"), name);
    json_int(json_name(o, "max_tokens"), n);
    json_end(o, '}');
}

static void task_add_branch(json_out *o, const task *t, uint64_t *seed, int32_t n_vocab) {
    json_begin(json_item(o), '[');
    for (int32_t i = 0; i < t->rounds; i++) {
        task_add_tokens(o, seed, t->n_added, n_vocab);
        task_add_gen(o, i, t->n_generated);
        if (t->inner > 0) {
            json_begin(json_item(o), '{');
            json_begin(json_name(o, "fork"), '[');
            for (int32_t k = 0; k < t->inner; k++) {
                json_begin(json_item(o), '[');
                task_add_tokens(o, seed, t->n_added, n_vocab);
                task_add_gen(o, 0, t->n_generated);
                json_end(o, ']');
            }
            json_end(o, ']');
            json_end(o, '}');
        }
    }
    json_end(o, ']');
}

/* Writes the program of a task: of token ids, since models of random weights have no
 * vocabulary. */
static quire_err task_write(const task *t, int32_t n_vocab, strbuf *to) {
    json_out o = {.to = to};
    uint64_t seed = 17;
    json_begin(&o, '{');
    json_int(json_name(&o, "seed"), 7);
    json_begin(json_name(&o, "fields"), '{');
    json_number(json_name(&o, "temperature"), t->temperature);
    json_bool(json_name(&o, "ignore_eos"), true);
    json_end(&o, '}');
    json_begin(json_name(&o, "steps"), '[');
    task_add_tokens(&o, &seed, t->n_prompt, n_vocab);
    json_begin(json_item(&o), '{');
    json_begin(json_name(&o, "fork"), '[');
    for (int32_t i = 0; i < t->outer; i++) {
        task_add_branch(&o, t, &seed, n_vocab);
    }
    json_end(&o, ']');
    json_end(&o, '}');
    json_end(&o, ']');
    json_end(&o, '}');
    return o.err;
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
    double seconds; /* the least of the runs; 0: none yet */
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
        /* in whatever order they ended; a prefix for forks has no value */
        r->digest += v != NULL ? lab_digest(v->ids, (int32_t)v->n_ids) : 0;
    }
    quire_state_close(s);
    return u.n_failed > 0 ? err->code : QUIRE_OK;
}

/* One run of a task in a way, on an engine of its own, whose cache is empty. */
static quire_err programs_run_on(quire_engine *e, programs_way way, const strbuf *json, programs_result *r,
                                 quire_error *err) {
    quire_programs *ps;
    quire_err r_open = way == WAY_PROGRAM ? quire_programs_open(e, &ps)
                                          : requests_open(e, way == WAY_REQUESTS ? 1 : INT32_MAX, &ps);
    TRY(r_open == QUIRE_OK ? QUIRE_OK : err_set(err, r_open, -1, "out of memory for a program"));
    quire_err ran = programs_run_to_end(ps, json, r, err);
    quire_programs_close(ps);
    return ran;
}

static quire_err programs_run_once(const experiment_options *o, programs_way way, const task *t,
                                   programs_result *r, quire_error *err) {
    quire_options own = o->cli.engine;
    quire_engine *e;
    strbuf json = {0};
    own.prefix_cache = way == WAY_NO_CACHE ? QUIRE_PREFIX_CACHE_NONE : QUIRE_PREFIX_CACHE_TOKEN;
    own.max_model_len = 2048;
    TRY(quire_engine_open(&own, &e, err));
    quire_err ran = task_write(t, quire_engine_info(e)->n_vocab, &json);
    ran = ran == QUIRE_OK ? programs_run_on(e, way, &json, r, err)
                          : err_set(err, ran, -1, "out of memory for a program");
    strbuf_deinit(&json);
    quire_engine_close(e);
    return ran;
}

/* Reads --as. */
static quire_err programs_read_ways(const char *list, bool wants[N_PROGRAM_WAYS], quire_error *err) {
    for (const char *p = list; *p != 0;) {
        size_t n = strcspn(p, ",");
        bool is_known = false;
        for (int i = 0; i < N_PROGRAM_WAYS; i++) {
            bool is_it = str_is((str){p, n}, way_names[i]);
            wants[i] = wants[i] || is_it;
            is_known = is_known || is_it;
        }
        if (!is_known) {
            return err_set(err, QUIRE_INVALID, -1,
                           "--as %s: must be a list of program, at-once, requests and no-cache", list);
        }
        p += n + (p[n] == ',' ? 1 : 0);
    }
    return QUIRE_OK;
}

static quire_err programs_run_task(const experiment_options *o, const task *t,
                                   const bool wants[N_PROGRAM_WAYS], const bench_table *s, quire_error *err) {
    programs_result results[N_PROGRAM_WAYS] = {{0}};
    int first = N_PROGRAM_WAYS;
    for (int32_t i = 0; i < programs_n_runs(o) * N_PROGRAM_WAYS; i++) {
        const int way = i % N_PROGRAM_WAYS;
        if (!wants[way]) {
            continue;
        }
        first = way < first ? way : first;
        TRY(programs_run_once(o, (programs_way)way, t, &results[way], err));
        if (results[way].digest != results[first].digest) {
            return err_set(err, QUIRE_INTERNAL, -1, "%s as %s gives other tokens", t->name, way_names[way]);
        }
    }
    for (int way = 0; way < N_PROGRAM_WAYS; way++) {
        const programs_result *r = &results[way], *requests = &results[WAY_REQUESTS];
        if (wants[way]) {
            TABLE_ROW(s, TXT(t->name), TXT(way_names[way]), NUM(r->n_calls), NUM(r->n_prompt),
                      NUM(r->n_computed), NUM(1e3 * r->seconds),
                      NUM(wants[WAY_REQUESTS] ? requests->seconds / r->seconds : TABLE_ABSENT),
                      NUM(way == WAY_PROGRAM && t->published > 0 ? t->published : TABLE_ABSENT));
        }
    }
    return QUIRE_OK;
}

quire_err experiment_programs(const experiment_options *o, quire_error *err) {
    bool wants[N_PROGRAM_WAYS] = {false}, any = false;
    char machine[160];
    TABLE(s, "workload", o->cli.json, WORD("workload", "workload", 16), WORD("as", "as", 8),
          FIGURE("calls", "calls", 6, 0, "calls"), FIGURE("prompt", "prompt", 7, 0, "tokens"),
          FIGURE("computed", "computed", 8, 0, "tokens"), FIGURE("time", "ms", 9, 1, "ms"),
          FIGURE("relative", "of requests", 11, 2, "x"), KEY("published", "published", 9, 1));
    TRY(programs_read_ways(o->as, wants, err));
    TRY(lab_describe(&o->cli.engine, machine, sizeof machine, err));
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        if (o->cli.argument != NULL && strcmp(o->cli.argument, tasks[i].name) != 0) {
            continue;
        }
        if (!any) {
            table_begin(&s, "Programs, and the same calls as requests; all give the same tokens (checked)");
        }
        any = true;
        TRY(programs_run_task(o, &tasks[i], wants, &s, err));
    }
    if (!any) {
        return err_set(
            err, QUIRE_INVALID, -1,
            "%s: no such program; there are mmlu5, gsm8k, react, self-consistency, tree-of-thought, "
            "json-form, chats and one-chat",
            o->cli.argument);
    }
    table_note(
        &s,
        "requests: one call after another, as a script sends them; at-once: calls that wait for no other "
        "are sent together; no-cache: likewise, without a prefix cache; published: SGLang's times vLLM's "
        "throughput; %s; tokens counted, times the fastest of %d runs in turns (measured)",
        machine, (int)programs_n_runs(o));
    return QUIRE_OK;
}
