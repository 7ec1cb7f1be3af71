/* `quire bench lora`: the cost of adapters, paired within one run: a decode batch in
 * which each row has its own, a prompt with one, and a batch without any in a backend
 * that has some; and how long requests wait if many adapters are known and few are
 * loaded. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "base/mem.h"
#include "base/ring.h"
#include "base/rng.h"
#include "base/str.h"
#include "core/half.h"
#include "lab/bench/model_runner.h"
#include "lab/bench/model_shape.h"
#include "lab/bench/temporary.h"
#include "lab/commands/measures.h"
#include "model/arch.h"
#include "model/model.h"
#include "model/model_adapter.h"
#include "setup/adapter_store.h"

/* How long requests wait for their adapters if many are known and few are loaded: an
 * adapter_store over a model, with adapters drawn by Zipf's law.
 *
 * Everything runs on one thread, except the store's own. */

typedef struct bench_lora_options {
    cli_options cli;
    const char *shape, *type; /* random weights, if no model is named */
    int32_t rank;             /* of the adapters: random f16 on all linears of the layers */
    int32_t n_adapters, n_prompt, n_runs;
    int32_t n_known;  /* known adapters, all of the same file */
    int32_t n_in_use; /* requests with an adapter at any time, and most adapters loaded */
    int32_t n_draws;  /* requests, each of which starts when an earlier one ends */
} bench_lora_options;

LAB_DEFAULTS(bench_lora, .shape = "1.1b", .type = "q4_0", .rank = 16, .n_adapters = 8, .n_prompt = 512,
             .n_runs = 15, .n_known = 1000, .n_in_use = 64, .n_draws = 400)

/* Longest waits, in ms, and the file reads in them. */
typedef struct adapter_loads {
    /* of a request that comes alone: the one with the longest wait relative to its
     * read */
    double one_wait, one_read;
    double all_wait, all_read; /* of the last of n_in_use requests that come at once, with none loaded */
    adapter_bounds bounds;     /* at the end */
} adapter_loads;

/* ---- the file ---- */

/* A matrix of the file: A or B of a module. */
typedef struct loads_matrix {
    str module;
    int64_t rows, columns;
    char part;
} loads_matrix;

/* Calls write for A and B of each module of the layers, once for each of the model's
 * linears. */
static quire_err loads_each_matrix(const model *m, int32_t rank,
                                   quire_err (*write)(void *context, const loads_matrix *t), void *context) {
    const weight_table *t = &m->weights;
    bool *is_done = mem_new(t->n, sizeof *is_done);
    quire_err e = mem_check(is_done);
    for (int32_t i = 0; e == QUIRE_OK && i < t->n_names[0]; i++) {
        const weight_ref *ref = &t->refs[t->by_name[0][i].i];
        const weight_entry *w = &t->entries[ref->entry];
        const str name = t->by_name[0][i].name;
        const bool is_whole = w->part.n_rows == 0 || ref->whole;
        if (w->w == NULL || w->turned || !is_whole || is_done[ref->entry] ||
            !str_contains(name, str_of("layers."))) {
            continue;
        }
        is_done[ref->entry] = true;
        TRY_DONE(e, write(context, &(loads_matrix){name, rank, w->n_in, 'A'}));
        TRY_DONE(e, write(context, &(loads_matrix){name, w->n_out, rank, 'B'}));
    }
done:
    mem_free(is_done);
    return e;
}

typedef struct loads_file {
    strbuf header, numbers;
    uint64_t seed;
} loads_file;

static quire_err loads_add(void *context, const loads_matrix *t) {
    loads_file *w = context;
    const size_t at = w->numbers.n, n = (size_t)(t->rows * t->columns);
    TRY(strbuf_addf(&w->header,
                    "%s\"base_model.model.%.*s.lora_%c.weight\":{\"dtype\":\"F16\",\"shape\":[%lld,%lld],"
                    "\"data_offsets\":[%zu,%zu]}",
                    at > 0 ? "," : "{", (int)t->module.n, t->module.p, t->part, (long long)t->rows,
                    (long long)t->columns, at, at + n * sizeof(uint16_t)));
    TRY(strbuf_reserve(&w->numbers, n * sizeof(uint16_t)));
    for (size_t i = 0; i < n; i++) {
        uint16_t half = f32_to_f16((rng_uniform((uint32_t)(rng_next(&w->seed) >> 32)) - 0.5f) * 0.02f);
        TRY(strbuf_add(&w->numbers, &half, sizeof half));
    }
    return QUIRE_OK;
}

/* Makes the two files of an adapter. */
static quire_err loads_make(const model *m, int32_t rank, strbuf *about, strbuf *weights) {
    loads_file w = {.seed = 3};
    quire_err e = loads_each_matrix(m, rank, loads_add, &w);
    TRY_DONE(e, strbuf_add_str(&w.header, w.numbers.n > 0 ? "}" : "{}"));
    TRY_DONE(e, strbuf_add(weights, &(uint64_t){w.header.n}, sizeof(uint64_t)));
    TRY_DONE(e, strbuf_add(weights, w.header.p, w.header.n));
    TRY_DONE(e, strbuf_add(weights, w.numbers.p, w.numbers.n));
    e = strbuf_addf(about, "{\"peft_type\":\"LORA\",\"r\":%d,\"lora_alpha\":%d}", (int)rank, (int)rank);
done:
    strbuf_deinit(&w.header);
    strbuf_deinit(&w.numbers);
    return e;
}

static quire_err loads_write(const model *m, int32_t rank, const char *dir, quire_error *err) {
    strbuf about = {0}, weights = {0};
    char path[128];
    quire_err e = err_set(err, loads_make(m, rank, &about, &weights), -1, "out of memory for an adapter");
    if (e == QUIRE_OK) {
        (void)snprintf(path, sizeof path, "%s/adapter_config.json", dir);
        e = figures_write_file(path, &about, err);
    }
    if (e == QUIRE_OK) {
        (void)snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
        e = figures_write_file(path, &weights, err);
    }
    strbuf_deinit(&about);
    strbuf_deinit(&weights);
    return e;
}

/* ---- the store's loader ---- */

typedef struct loads_model {
    const model *m;
    backend *b;
    int32_t rank;
} loads_model;

static quire_err loads_load(void *context, const char *path, loaded_adapter *out, quire_error *err) {
    const loads_model *l = context;
    const adapter_limits limits = {.max_rank = l->rank, .max_bytes = INT64_MAX};
    model_adapter *own = mem_new(1, sizeof *own);
    TRY(mem_check_for(own, "an adapter", err));
    const quire_err e = model_adapter_open(l->m, l->b, path, &limits, own, err);
    if (e != QUIRE_OK) {
        mem_free(own);
        return e;
    }
    *out = (loaded_adapter){.weights = own->weights, .rank = own->rank, .n_bytes = own->n_bytes, .own = own};
    return QUIRE_OK;
}

static void loads_free(void *context, loaded_adapter *a) {
    const loads_model *l = context;
    model_adapter_close(l->b, a->own);
    mem_free(a->own);
}

/* ---- requests ---- */

/* A request, which acquires an adapter and holds it until another takes its place. */
typedef struct loads_request {
    adapter_want want; /* first member */
    char name[32];
    wake answered;
} loads_request;

static void loads_answered(adapter_want *w) {
    wake_ring(&((loads_request *)(void *)w)->answered);
}

/* A number below n drawn by Zipf's law: i has weight 1 / (i + 1). */
static int32_t loads_draw(uint64_t *seed, int32_t n) {
    double sum = 0.0;
    for (int32_t i = 0; i < n; i++) {
        sum += 1.0 / (i + 1);
    }
    double left = (double)rng_uniform((uint32_t)(rng_next(seed) >> 32)) * sum;
    int32_t i = 0;
    while (i + 1 < n && left > 1.0 / (i + 1)) {
        left -= 1.0 / (i++ + 1);
    }
    return i;
}

/* Requests the adapter. True: it is loaded. */
static bool loads_want(adapter_store *s, loads_request *r, int32_t number) {
    const adapter_source from = adapter_store_source(s);
    (void)snprintf(r->name, sizeof r->name, "adapter-%d", (int)number);
    r->want =
        (adapter_want){.parts = {{.name = r->name, .scale = 1.0f}}, .n_parts = 1, .ready = loads_answered};
    return from.want(from.context, &r->want);
}

static quire_err loads_result(const loads_request *r, quire_error *err) {
    const quire_error *why = &r->want.error;
    return r->want.ref != NULL ? QUIRE_OK : err_set(err, why->code, -1, "%s", why->message);
}

/* Read times of one adapter, or of all. */
typedef struct loads_read {
    const adapter_ref *of; /* NULL: all */
    int64_t us;
} loads_read;

static void loads_add_read(void *context, const adapter_about *a) {
    loads_read *r = context;
    r->us += r->of == NULL || r->of == a->ref ? a->load_us : 0;
}

static double loads_read_ms(adapter_store *s, const adapter_ref *of) {
    loads_read r = {.of = of};
    adapter_store_visit(s, loads_add_read, &r);
    return (double)r.us * 1e-3;
}

/* Starts a request in every place at once. */
static quire_err loads_fill(adapter_store *s, const bench_lora_options *o, loads_request *all, uint64_t *seed,
                            adapter_loads *out, quire_error *err) {
    bool *is_there = mem_new((size_t)o->n_in_use, sizeof *is_there);
    quire_err e = mem_check_for(is_there, "requests", err);
    for (int32_t i = 0; e == QUIRE_OK && i < o->n_in_use; i++) {
        is_there[i] = loads_want(s, &all[i], loads_draw(seed, o->n_known));
    }
    /* waits for all of them, even if one failed */
    for (int32_t i = 0; is_there != NULL && i < o->n_in_use; i++) {
        if (!is_there[i]) {
            (void)wake_wait(&all[i].answered, -1);
        }
        if (e == QUIRE_OK) {
            e = loads_result(&all[i], err);
        }
        out->all_wait = fmax(out->all_wait, (double)all[i].want.load_us * 1e-3);
    }
    mem_free(is_there);
    out->all_read = loads_read_ms(s, NULL);
    return e;
}

/* Runs one request after another, each in the place of one drawn at random. */
static quire_err loads_replace(adapter_store *s, const bench_lora_options *o, loads_request *all,
                               uint64_t *seed, adapter_loads *out, quire_error *err) {
    for (int32_t i = 0; i < o->n_draws; i++) {
        loads_request *r = &all[rng_next(seed) % (uint64_t)o->n_in_use];
        adapter_ref_drop(r->want.ref);
        r->want.ref = NULL;
        if (!loads_want(s, r, loads_draw(seed, o->n_known))) {
            (void)wake_wait(&r->answered, -1);
        }
        TRY(loads_result(r, err));
        const double wait = (double)r->want.load_us * 1e-3, read = loads_read_ms(s, r->want.ref);
        if (wait > 0.0 && wait * out->one_read >= out->one_wait * read) {
            out->one_wait = wait;
            out->one_read = read;
        }
    }
    return QUIRE_OK;
}

static quire_err loads_run(adapter_store *s, const bench_lora_options *o, const char *path,
                           loads_request *all, adapter_loads *out, quire_error *err) {
    uint64_t seed = 17;
    for (int32_t i = 0; i < o->n_in_use; i++) {
        TRY(err_set(err, wake_init(&all[i].answered), -1, "no wake-up"));
    }
    for (int32_t i = 0; i < o->n_known; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "adapter-%d", (int)i);
        TRY(adapter_store_add(s, name, path, true, err));
    }
    TRY(loads_fill(s, o, all, &seed, out, err));
    return loads_replace(s, o, all, &seed, out, err);
}

/* path: of the adapter's directory. */
static quire_err adapter_loads_measure(model *m, backend *b, const bench_lora_options *o, const char *path,
                                       adapter_loads *out, quire_error *err) {
    adapter_store *s = NULL;
    loads_model l = {.m = m, .b = b, .rank = o->rank};
    loads_request *all = mem_new((size_t)o->n_in_use, sizeof *all);
    *out = (adapter_loads){0};
    TRY(mem_check_for(all, "requests", err));
    quire_err e =
        adapter_store_open(&(adapter_store_options){.max_resident = o->n_in_use, .max_rank = o->rank},
                           &(adapter_loader){.load = loads_load, .free = loads_free, .context = &l}, &s, err);
    TRY_DONE(e, loads_run(s, o, path, all, out, err));
    out->bounds = adapter_store_bounds(s);
done:
    for (int32_t i = 0; i < o->n_in_use; i++) {
        adapter_ref_drop(all[i].want.ref);
        wake_deinit(&all[i].answered);
    }
    mem_free(all);
    adapter_store_close(s);
    return e;
}

/* ---- passes ---- */

enum { MOST_ADAPTERS = 64, CONTEXT = 64, PAGE_TOKENS = 16, READ_MS = 300 };

/* Two backends with the same weights, one of them with adapters. */
typedef struct lora_run {
    const bench_lora_options *o;
    model_runner without, with;
    temporary directory; /* of the adapters' file */
    bool has_directory;
    model_adapter adapters[MOST_ADAPTERS];
    int32_t n_adapters;
    int64_t adapter_bytes; /* bytes of all adapters */
    int32_t *tokens, *pages;
    int32_t pages_a_seq;
} lora_run;

/* The passes that are timed. */
typedef enum lora_pass { PASS_WITHOUT, PASS_UNUSED, PASS_WITH, N_LORA_PASSES } lora_pass;

/* Writes the file, and loads as many adapters from it as sequences decode. UNSUPPORTED: no
 * adapter can be made for the model's linears. */
static quire_err load_adapters(lora_run *r, quire_error *err) {
    const adapter_limits limits = {.max_rank = r->o->rank, .max_bytes = INT64_MAX};
    TRY(temporary_make(&r->directory, err));
    r->has_directory = true;
    TRY(loads_write(r->with.m, r->o->rank, r->directory.path, err));
    for (; r->n_adapters < r->o->n_adapters; r->n_adapters++) {
        model_adapter *a = &r->adapters[r->n_adapters];
        TRY(model_adapter_open(r->with.m, r->with.b, r->directory.path, &limits, a, err));
        r->adapter_bytes += a->n_bytes;
    }
    return QUIRE_OK;
}

/* ---- models ---- */

static quire_err open_runner(const lora_run *r, const quire_options *options, bool has_adapters,
                             model_runner *out, quire_error *err) {
    const int32_t n = r->o->n_adapters;
    return MODEL_RUNNER_OPEN(out, err, .engine = options, .page_tokens = PAGE_TOKENS,
                             .n_pages = n * r->pages_a_seq,
                             .max_rows = r->o->n_prompt > n ? r->o->n_prompt : n, .max_seqs = n,
                             .max_len = r->pages_a_seq * PAGE_TOKENS, .max_adapters = has_adapters ? n : 0,
                             .max_rank = has_adapters ? r->o->rank : 0);
}

static quire_err lora_open(lora_run *r, quire_error *err) {
    const bench_lora_options *o = r->o;
    quire_options own = o->cli.engine;
    synthetic made = {.fd = -1};
    const int32_t length = o->n_prompt > CONTEXT + 1 ? o->n_prompt : CONTEXT + 1;
    r->pages_a_seq = (length + PAGE_TOKENS - 1) / PAGE_TOKENS;
    TRY(shaped_open(&o->cli, o->shape, o->type, own.model == NULL ? SHAPED_IDS : SHAPED_NOT, &own, &made,
                    err));
    quire_err e = open_runner(r, &own, false, &r->without, err);
    if (e == QUIRE_OK) {
        e = open_runner(r, &own, true, &r->with, err);
    }
    synthetic_close(&made);
    TRY(e);
    const size_t n_pages = (size_t)o->n_adapters * (size_t)r->pages_a_seq;
    r->tokens = mem_new((size_t)length + (size_t)o->n_adapters, sizeof *r->tokens);
    r->pages = mem_new(n_pages, sizeof *r->pages);
    TRY(mem_check_for(r->tokens && r->pages ? r->tokens : NULL, "the passes", err));
    model_runner_prompt(&r->with, 1, length + o->n_adapters, r->tokens);
    for (size_t i = 0; i < n_pages; i++) {
        r->pages[i] = (int32_t)i;
    }
    return load_adapters(r, err);
}

static void lora_close(lora_run *r) {
    for (int32_t i = 0; i < r->n_adapters; i++) {
        model_adapter_close(r->with.b, &r->adapters[i]);
    }
    if (r->has_directory) {
        temporary_remove(&r->directory);
    }
    model_runner_close(&r->without);
    model_runner_close(&r->with);
    mem_free(r->tokens);
    mem_free(r->pages);
}

/* ---- passes ---- */

/* Measures milliseconds of a pass: a row of each sequence after CONTEXT tokens, or a
 * prompt. */
static quire_err time_pass(lora_run *r, lora_pass pass, bool is_prompt, double *ms) {
    model_runner *m = pass == PASS_WITHOUT ? &r->without : &r->with;
    const int32_t n = is_prompt ? 1 : r->o->n_adapters;
    runner_part parts[MOST_ADAPTERS];
    for (int32_t i = 0; i < n; i++) {
        parts[i] = (runner_part){.tokens = r->tokens + i,
                                 .first = is_prompt ? 0 : CONTEXT,
                                 .n_rows = is_prompt ? r->o->n_prompt : 1,
                                 .pages = r->pages + (int64_t)i * r->pages_a_seq,
                                 .n_logits = 1,
                                 .adapter = pass == PASS_WITH ? r->adapters[i].weights : NULL};
    }
    const int64_t start = figures_time_us(r->o->cli.engine.n_threads);
    TRY(model_runner_forward(m, parts, n));
    *ms = (double)(figures_time_us(r->o->cli.engine.n_threads) - start) * 1e-3;
    return QUIRE_OK;
}

/* Times of each kind of pass, by run. */
typedef struct lora_times {
    double ms[N_LORA_PASSES][FIGURES_MAX_RUNS];
    double gb_s[FIGURES_MAX_RUNS]; /* best read rate, measured in the same run */
} lora_times;

static quire_err measure_read(lora_run *r, double *gb_s, quire_error *err) {
    roofline_rate ways[BANDWIDTH_WAYS];
    TRY(err_set(err, bandwidth_by_way(r->with.b, (int64_t)256 << 20, READ_MS * 1000 / BANDWIDTH_WAYS, ways),
                -1, "out of memory for the reading rate"));
    *gb_s = 0.0;
    for (int32_t i = 0; i < BANDWIDTH_WAYS; i++) {
        *gb_s = ways[i].best * 1e-9 > *gb_s ? ways[i].best * 1e-9 : *gb_s;
    }
    return QUIRE_OK;
}

/* Runs all passes alternately, in a different order each time. The first of each is not
 * counted. */
static quire_err measure(lora_run *r, bool is_prompt, lora_times *t, quire_error *err) {
    for (int32_t run = -1; run < r->o->n_runs; run++) {
        for (int32_t i = 0; i < N_LORA_PASSES; i++) {
            const lora_pass pass = (lora_pass)((run + 1 + i) % N_LORA_PASSES);
            if (time_pass(r, pass, is_prompt, &t->ms[pass][run > 0 ? run : 0]) != QUIRE_OK) {
                return err_set(err, QUIRE_INVALID, -1, "a pass failed");
            }
        }
        if (run >= 0 && !is_prompt) {
            TRY(measure_read(r, &t->gb_s[run], err));
        }
    }
    return QUIRE_OK;
}

static double median_of(const double *values, int32_t n) {
    double sorted[FIGURES_MAX_RUNS];
    memcpy(sorted, values, sizeof *values * (size_t)n);
    return figures_percentile(sorted, n, 0.5);
}

/* The median over runs of a pass's time relative to another pass, or to reading its
 * bytes. */
static double median_ratio(const lora_run *r, const lora_times *t, lora_pass of, lora_pass to, double bytes) {
    double ratios[FIGURES_MAX_RUNS];
    for (int32_t i = 0; i < r->o->n_runs; i++) {
        const double read_ms = bytes > 0.0 ? bytes / (t->gb_s[i] * 1e6) : 0.0;
        ratios[i] = t->ms[of][i] / (t->ms[to][i] + read_ms);
    }
    return figures_percentile(ratios, r->o->n_runs, 0.5);
}

static void lora_row(const lora_run *r, const bench_table *table, const lora_times *t, bool is_prompt) {
    const double bytes = is_prompt ? 0.0 : (double)r->adapter_bytes;
    const int32_t n = r->o->n_runs, rows = is_prompt ? r->o->n_prompt : r->o->n_adapters;
    const double base = median_of(t->ms[PASS_WITHOUT], n),
                 read_ms = bytes > 0.0 ? bytes / (median_of(t->gb_s, n) * 1e6) : 0.0;
    TABLE_ROW(table, TXT(is_prompt ? "prompt" : "decode"), TXT("none"), NUM(rows),
              NUM(median_of(t->ms[PASS_UNUSED], n)), NUM(base),
              NUM(median_ratio(r, t, PASS_UNUSED, PASS_WITHOUT, 0.0)), NUM(1.01));
    TABLE_ROW(table, TXT(is_prompt ? "prompt" : "decode"), TXT(is_prompt ? "one" : "one a row"), NUM(rows),
              NUM(median_of(t->ms[PASS_WITH], n)), NUM(base + read_ms),
              NUM(median_ratio(r, t, PASS_WITH, PASS_WITHOUT, bytes)), NUM(1.10));
}

/* Waits for adapters: of a request that comes alone, and of all that come at once. */
static quire_err lora_loads(lora_run *r, const bench_table *table, quire_error *err) {
    const bench_lora_options *o = r->o;
    adapter_loads l;
    TRY(adapter_loads_measure(r->with.m, r->with.b, o, r->directory.path, &l, err));
    TABLE_ROW(table, TXT("wait"), TXT("one"), NUM(1), NUM(l.one_wait), NUM(l.one_read),
              NUM(l.one_read > 0.0 ? l.one_wait / l.one_read : 0.0), NUM(1.05));
    TABLE_ROW(table, TXT("wait"), TXT("cold"), NUM(o->n_in_use), NUM(l.all_wait), NUM(l.all_read),
              NUM(l.all_wait / l.all_read), NUM(1.05));
    table_note(
        table,
        "Waits: %d adapters are known, %d requests have one at any time, drawn by Zipf's law, and at most as "
        "many are loaded: %d were, %.1f MB in the end, after %lld loads and %lld evictions. Of %d requests "
        "that "
        "came one by one, the longest wait to the reading of its own file; of %d that came at once, before "
        "any "
        "was loaded, the longest wait to the reading of all files.",
        (int)o->n_known, (int)o->n_in_use, (int)l.bounds.most_resident, (double)l.bounds.n_bytes * 1e-6,
        (long long)l.bounds.n_loads, (long long)l.bounds.n_evictions, (int)o->n_draws, (int)o->n_in_use);
    return l.bounds.most_resident <= o->n_in_use
               ? QUIRE_OK
               : err_set(err, QUIRE_INVALID, -1, "%d adapters were loaded at once, over the bound of %d",
                         (int)l.bounds.most_resident, (int)o->n_in_use);
}

#define AT(member) .offset = offsetof(bench_lora_options, member)

static const flag bench_lora_flags[] = {
    SHAPE_FLAGS,
    {"--rank", "N", "rank of the adapters", COUNT(rank, 1, 256)},
    {"--adapters", "N", "adapters, and sequences that decode", COUNT(n_adapters, 1, MOST_ADAPTERS)},
    {"--prompt", "N", "tokens of the prompt", COUNT(n_prompt, 1, 1 << 14)},
    {"--runs", "N", "runs of each pass, of which the median counts", COUNT(n_runs, 1, FIGURES_MAX_RUNS)},
    {"--known", "N", "adapters that requests may have, for the waits", COUNT(n_known, 1, 1 << 20)},
    {"--in-use", "N", "requests at a time, and most adapters that are loaded", COUNT(n_in_use, 1, 4096)},
    {"--draws", "N", "requests that come one by one", COUNT(n_draws, 1, 1 << 20)},
    {0},
};

static quire_err bench_lora_report(lora_run *r, const bench_table *table, quire_error *err) {
    lora_times decode, prompt;
    TRY(lora_open(r, err));
    TRY(measure(r, false, &decode, err));
    TRY(measure(r, true, &prompt, err));
    lora_row(r, table, &decode, false);
    lora_row(r, table, &prompt, true);
    table_note(
        table,
        "%s, %s weights, compute %s, %s; %d adapters of rank %d on all linears of the layers, f16, %.1f MB "
        "in all, read at %.1f GB/s. Held against: the same pass in a backend without adapters, and where "
        "each row has its own, the time that reading them takes. Medians of %d runs, of paired ratios (%s).",
        r->with.desc->name, r->o->cli.engine.model == NULL ? r->o->type : "its own",
        compute_name(r->with.b->compute), r->with.b->ops->describe(r->with.b), (int)r->o->n_adapters,
        (int)r->o->rank, (double)r->adapter_bytes * 1e-6, median_of(decode.gb_s, r->o->n_runs),
        (int)r->o->n_runs, figures_time_name(r->o->cli.engine.n_threads));
    return lora_loads(r, table, err);
}

static quire_err bench_lora_run(const cli_options *cli, quire_error *err) {
    const bench_lora_options *o = (const bench_lora_options *)(const void *)cli;
    TABLE(table, "lora", cli->json, WORD("pass", "pass", -8), WORD("adapters", "adapters", -10),
          KEY("rows", "rows", 5, 0), FIGURE("time", "ms", 9, 2, "ms"),
          FIGURE("against", "held against", 13, 2, "ms"), FIGURE("ratio", "ratio", 7, 3, "x"),
          KEY("at_most", "at most", 8, 2));
    lora_run r = {.o = o};
    table_begin(&table, NULL);
    const quire_err e = bench_lora_report(&r, &table, err);
    lora_close(&r);
    return e;
}

LAB_COMMAND(bench_lora, "bench lora", " [MODEL]", ARGUMENT_MODEL_OR_NONE,
            "what adapters cost in decode and prefill, and how long requests wait for them",
            "  quire bench lora\n"
            "  quire bench lora --type int8 --rank 32\n"
            "  quire bench lora model.gguf --adapters 4 --json\n",
            FLAGS_MODEL, bench_lora_flags, flags_json, flags_compute, flags_isa, flags_threads, flags_help,
            flags_help_all);
