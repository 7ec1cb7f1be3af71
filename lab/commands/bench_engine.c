/* `quire bench engine`: the engine's own work in a step (intake, planning, reserving
 * pages, filling the batch, sampling, notifying readers), with its real thread and steps
 * over a model that does nothing. */
#include "base/rng.h"
#include "lab/bench/lab.h"
#include "lab/bench/null_model.h"
#include "lab/commands/lab_commands.h"

typedef struct bench_engine_options {
    cli_options cli;
    const char *running; /* numbers of running sequences: "1,16,64,256" */
    int32_t n_prompt;    /* tokens of each prompt */
} bench_engine_options;

enum {
    MAX_RUNNING = 4096,
    PAGE_TOKENS = 16,
    N_STEPS = 3000,    /* steps measured */
    SHORT_OUTPUT = 48, /* mean tokens of an answer when requests come and go */
    MAX_STEPS = 20000,
    N_VOCAB = 32
};

LAB_DEFAULTS(bench_engine, .running = "1,16,64,256", .n_prompt = 128)

typedef enum load { LOAD_DECODE, LOAD_TURNOVER } load;

static const char *const load_names[] = {"decode", "turnover"};

typedef struct engine_bench {
    const bench_engine_options *options;
    int32_t n;
    load load;
    null_model *null;
    kv_layout layout;
    lab_engine x;
    uint64_t draw;
} engine_bench;

static int32_t longest_of(const engine_bench *w) {
    return w->options->n_prompt + N_STEPS + N_STEPS / 2;
}

static quire_err bench_engine_open(engine_bench *w, quire_error *err) {
    int32_t rows = w->n + 16 * w->options->n_prompt;
    int32_t n_output = w->load == LOAD_DECODE ? longest_of(w) : w->options->n_prompt + 2 * SHORT_OUTPUT;
    TRY(err_set(err, null_model_open(MAX_STEPS, &w->null), -1, "out of memory for the notes of steps"));
    TRY(kv_layout_init(model_description(w->null->m), kv_both(DTYPE_F32), PAGE_TOKENS, &w->layout, err));
    engine_options o = {.prefix_cache = PREFIX_CACHE_TOKEN,
                        .page_tokens = PAGE_TOKENS,
                        .n_pages = (int32_t)kv_pages_for(n_output, PAGE_TOKENS) * w->n + 1024,
                        .max_model_len = longest_of(w),
                        .max_batched_tokens = rows,
                        .max_seqs = w->n,
                        .max_requests = 4 * w->n,
                        .starts_paused = true};
    return lab_engine_open(w->null->m, w->null->b, &w->layout, &o, &w->x, err);
}

static void bench_engine_close(engine_bench *w) {
    lab_engine_close(&w->x);
    null_model_close(w->null);
}

static quire_err bench_engine_submit(engine_bench *w, quire_error *err) {
    int32_t n = w->options->n_prompt;
    engine_request r = {.tokens = mem_new((size_t)n, sizeof *r.tokens),
                        .n_tokens = n,
                        .namespace = "bench",
                        .n_namespace = 5};
    TRY(mem_check_for(r.tokens, "a prompt", err));
    for (int32_t i = 0; i < n; i++) {
        r.tokens[i] = (int32_t)(rng_next(&w->draw) % N_VOCAB);
    }
    int32_t n_output = w->load == LOAD_DECODE
                           ? N_STEPS + N_STEPS / 4
                           : SHORT_OUTPUT / 2 + (int32_t)(rng_next(&w->draw) % SHORT_OUTPUT);
    return lab_engine_send(&w->x, &r, n_output, err);
}

/* Runs the load to its end. */
static quire_err bench_engine_run_load(engine_bench *w, quire_error *err) {
    int32_t n_left = w->load == LOAD_DECODE ? 0 : w->n * (N_STEPS / SHORT_OUTPUT), n_running = 0;
    quire_err e = QUIRE_OK;
    /* under a load of short requests, others are already waiting */
    int32_t n_first = w->load == LOAD_DECODE ? w->n : 2 * w->n;
    for (; n_running < n_first && e == QUIRE_OK; n_running++) {
        e = bench_engine_submit(w, err);
    }
    engine_release(w->x.e);
    while (e == QUIRE_OK && n_running > 0) {
        engine_event ev;
        if (!engine_out_pop(w->x.out, &ev)) {
            wake_wait(&w->x.reader, -1);
            continue;
        }
        if (ev.finish == FINISH_NONE) {
            continue;
        }
        n_running--;
        if (ev.finish == FINISH_ERROR) {
            return err_set(err, ev.error, -1, "a request failed: %s", quire_err_text(ev.error));
        }
        if (n_left > 0) {
            n_left--;
            n_running++;
            e = bench_engine_submit(w, err);
        }
    }
    return e;
}

/* Whether a step qualifies: all sequences took part (nearly all, if requests come and go)
 * and, for LOAD_DECODE, only decoded. */
static bool counts(const engine_bench *w, const null_step *s) {
    bool full = s->n_seqs >= (w->load == LOAD_DECODE ? w->n : w->n - w->n / 8);
    return full && (w->load == LOAD_TURNOVER || s->n_rows == w->n);
}

/* Prints the row of the steps that qualify, in microseconds. scratch: [2 * N_STEPS]. */
static void bench_engine_print(const engine_bench *w, const bench_table *t, double *scratch) {
    double *collect = scratch + N_STEPS, cpu = 0; /* cpu: a mean, since other work does not lengthen it */
    int32_t n = 0;
    for (int32_t i = 0; i < w->null->n_steps && n < N_STEPS; i++) {
        const null_step *s = &w->null->steps[i];
        if (counts(w, s)) {
            scratch[n] = (double)s->wall_ns / 1e3;
            collect[n++] = (double)s->collect_ns / 1e3;
            cpu += (double)s->cpu_ns / 1e3;
        }
    }
    double median = n > 0 ? figures_percentile(scratch, n, 0.5) : TABLE_ABSENT;
    TABLE_ROW(t, NUM(w->n), TXT(load_names[w->load]), NUM(w->options->n_prompt), NUM(PAGE_TOKENS), NUM(n),
              NUM(median), NUM(n > 0 ? figures_percentile(scratch, n, 0.95) : TABLE_ABSENT),
              NUM(n > 0 ? cpu / n : TABLE_ABSENT),
              NUM(n > 0 ? figures_percentile(collect, n, 0.5) : TABLE_ABSENT), NUM(median * 1e3 / w->n));
}

static quire_err bench_engine_run_one(const bench_engine_options *o, int32_t n, load kind,
                                      const bench_table *t, quire_error *err) {
    engine_bench w = {.options = o, .n = n, .load = kind, .draw = 1};
    double *scratch = mem_new((size_t)2 * N_STEPS, sizeof *scratch);
    quire_err e = scratch ? bench_engine_open(&w, err) : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    TRY_DONE(e, bench_engine_run_load(&w, err));
    bench_engine_print(&w, t, scratch);
done:
    bench_engine_close(&w);
    mem_free(scratch);
    return e;
}

static quire_err bench_engine_run(const cli_options *cli, quire_error *err) {
    const bench_engine_options *o = (const void *)cli;
    int32_t sizes[FIGURES_MAX_POINTS], n_sizes;
    TRY(figures_parse_list("--running", o->running, sizes, &n_sizes, err));
    if (figures_largest(sizes, n_sizes) > MAX_RUNNING) {
        return err_set(err, QUIRE_INVALID, -1, "--running %s: at most %d", o->running, (int)MAX_RUNNING);
    }
    TABLE(t, "engine", o->cli.json, KEY("running", "running", 8, 0), WORD("load", "load", 10),
          KEY("prompt_tokens", NULL, 0, 0), KEY("page_tokens", NULL, 0, 0), KEY("steps", "steps", 7, 0),
          FIGURE("step_median", "median us", 10, 1, "us"), FIGURE("step_p95", "95% us", 9, 1, "us"),
          FIGURE("step_cpu", "cpu us", 9, 1, "us"), FIGURE("collect", "collect us", 11, 1, "us"),
          FIGURE("", "ns/sequence", 13, 0, ""));
    char heading[512];
    snprintf(heading, sizeof heading,
             "The engine's own work in a step: no model, no logits; microseconds. Prompts of %d tokens, "
             "pages of %d, prefix cache on.\n"
             "decode: all sequences take a token each step. turnover: answers of %d tokens or so end and "
             "others begin.\n"
             "collect: from the pass's end to the last row looked at, the median. The goal is 100 us with "
             "256 running.\n",
             (int)o->n_prompt, (int)PAGE_TOKENS, (int)SHORT_OUTPUT);
    table_begin(&t, heading);
    for (int32_t i = 0; i < n_sizes; i++) {
        TRY(bench_engine_run_one(o, sizes[i], LOAD_DECODE, &t, err));
        TRY(bench_engine_run_one(o, sizes[i], LOAD_TURNOVER, &t, err));
    }
    return QUIRE_OK;
}

#define AT(member) .offset = offsetof(bench_engine_options, member)

static const flag bench_engine_flags[] = {
    {"--running", "LIST", "sequences that run at once", TEXT(running)},
    {"--prompt", "N", "tokens of each prompt", COUNT(n_prompt, 1, 65536)},
    {0},
};

LAB_COMMAND(bench_engine, "bench engine", "", ARGUMENT_NONE,
            "the engine's own work in a step, without a model",
            "  quire bench engine\n"
            "  quire bench engine --running 256 --prompt 4096 --json\n",
            bench_engine_flags, flags_json, flags_help);
