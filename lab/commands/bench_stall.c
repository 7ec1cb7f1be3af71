/* `quire bench stall`: how much a long prompt slows down other streams, with and without
 * a step target. */

#include "base/clock.h"
#include "engine/ablations.h"
#include "lab/bench/client.h"
#include "lab/commands/lab_commands.h"

typedef struct bench_stall_options {
    cli_options cli;
    engine_ablations off;
    int32_t n_streams; /* streams that decode throughout */
    int32_t n_prompt;  /* tokens of the prompt that arrives meanwhile */
} bench_stall_options;

enum {
    /* tokens of each stream before gaps are measured, while the engine learns step
     * costs */
    N_WARM = 32,
    N_ALONE = 256, /* tokens of each stream without a prompt */
    MAX_GAPS = 1 << 20,
    N_LEARN = 4, /* shorter prompts before the measured one, from which the engine learns the cost of rows */
    STREAM_PROMPT = 32
};

LAB_DEFAULTS(bench_stall, .n_streams = 4, .n_prompt = 32768)

typedef struct gaps {
    double *ms; /* [MAX_GAPS] */
    int32_t n;
} gaps;

typedef struct stall {
    const bench_stall_options *options;
    client client;
    uint64_t draw;
    sent *streams;     /* [n_streams] */
    int64_t *times;    /* [n_streams, n_longest] arrival times of tokens */
    int32_t n_longest; /* most tokens of a stream */
    gaps gaps;
} stall;

/* Reads events until s has n tokens, or until it is done if it asked for no more. */
static quire_err read_until(stall *b, const sent *s, int32_t n, quire_error *err) {
    while (!s->done && (s->n_seen < n || n == s->n_output)) {
        client_receive(&b->client, -1);
        if (b->client.n_failed > 0) {
            *err = b->client.failure;
            return err->code;
        }
    }
    return QUIRE_OK;
}

/* Runs a prompt for its first token only. */
static quire_err run_prompt(stall *b, int32_t n_prompt, sent *s, quire_error *err) {
    TRY(client_send_random(&b->client, &b->draw, n_prompt, 1, s, err));
    return read_until(b, s, 1, err);
}

/* Collects the gaps of all streams that ended after from_us and up to to_us. */
static void take_gaps(stall *b, int64_t from_us, int64_t to_us) {
    b->gaps.n = 0;
    for (int32_t k = 0; k < b->options->n_streams; k++) {
        const sent *s = &b->streams[k];
        for (int32_t i = 1; i < s->n_seen; i++) {
            if (s->times_us[i] > from_us && s->times_us[i] <= to_us && b->gaps.n < MAX_GAPS) {
                b->gaps.ms[b->gaps.n++] = (double)(s->times_us[i] - s->times_us[i - 1]) * 1e-3;
            }
        }
    }
}

static double mean_gap(const gaps *g) {
    double sum = 0.0;
    for (int32_t i = 0; i < g->n; i++) {
        sum += g->ms[i];
    }
    return g->n > 0 ? sum / g->n : TABLE_ABSENT;
}

static void bench_stall_report(const bench_table *t, double target_ms, double alone_ms, gaps *beside,
                               double first_ms) {
    static const double parts[] = {0.5, 0.99, 1.0};
    double mean = mean_gap(beside), at[3];
    for (int i = 0; i < 3; i++) {
        at[i] = beside->n > 0 ? figures_percentile(beside->ms, beside->n, parts[i]) : TABLE_ABSENT;
    }
    TABLE_ROW(t, NUM(target_ms), NUM(alone_ms), NUM(mean), NUM(mean / alone_ms), NUM(at[0]), NUM(at[1]),
              NUM(at[2]), NUM(first_ms));
}

/* Measures streams alone, then with the prompt. */
static quire_err bench_stall_measure(stall *b, const bench_table *t, double target_ms, quire_error *err) {
    const bench_stall_options *o = b->options;
    sent prompt = {0};
    for (int32_t i = 0; i < o->n_streams; i++) {
        b->streams[i] = (sent){.times_us = b->times + (size_t)i * (size_t)b->n_longest};
        TRY(client_send_random(&b->client, &b->draw, STREAM_PROMPT, b->n_longest, &b->streams[i], err));
    }
    for (int32_t i = 0; i < N_LEARN; i++) {
        TRY(run_prompt(b, o->n_prompt / 16 + 1, &prompt, err));
    }
    TRY(read_until(b, &b->streams[0], b->streams[0].n_seen + N_WARM, err));
    int64_t from = clock_us();
    TRY(read_until(b, &b->streams[0], b->streams[0].n_seen + N_ALONE, err));
    take_gaps(b, from, clock_us());
    double alone = mean_gap(&b->gaps);
    from = clock_us();
    TRY(run_prompt(b, o->n_prompt, &prompt, err));
    for (int32_t i = 0; i < o->n_streams; i++) {
        if (b->streams[i].done) {
            return err_set(err, QUIRE_INVALID, -1,
                           "--prompt %d: a stream ended before its first token, since the model takes %d "
                           "tokens only; ask for less",
                           (int)o->n_prompt, (int)b->client.info->max_model_len);
        }
    }
    take_gaps(b, from, prompt.first_us);
    bench_stall_report(t, target_ms, alone, &b->gaps, (double)(prompt.first_us - from) * 1e-3);
    return QUIRE_OK;
}

static quire_err measure_target(stall *b, const bench_table *t, double target_ms, quire_error *err) {
    const bench_stall_options *o = b->options;
    quire_options own = o->cli.engine;
    own.step_target_us = (int64_t)(target_ms * 1e3);
    own.prefix_cache = QUIRE_PREFIX_CACHE_NONE;
    TRY(client_open(&own, o->off, NULL, &b->client, err));
    const int32_t longest = b->client.info->max_model_len;
    const bool fits = o->n_prompt + 2 <= longest && STREAM_PROMPT + 2 <= longest;
    quire_err e = QUIRE_OK;
    TRY_DONE(e, fits ? QUIRE_OK
                     : err_set(err, QUIRE_INVALID, -1, "--prompt %d: the model takes %d tokens; ask for less",
                               (int)o->n_prompt, (int)longest));
    b->n_longest = longest - STREAM_PROMPT;
    b->times = mem_new((size_t)o->n_streams * (size_t)b->n_longest, sizeof *b->times);
    TRY_DONE(e, mem_check_for(b->times, "the streams", err));
    if (target_ms == 0.0) {
        table_begin(t, "gaps between tokens of streams, alone and beside a prompt");
    }
    e = bench_stall_measure(b, t, target_ms, err);
done:
    client_close(&b->client);
    mem_free(b->times);
    b->times = NULL;
    return e;
}

static quire_err bench_stall_run(const cli_options *cli, quire_error *err) {
    const bench_stall_options *o = (const void *)cli;
    TABLE(t, "stall", o->cli.json, KEY("target_ms", "target ms", 9, 0),
          FIGURE("gap_alone", "alone ms", 9, 2, "ms"), FIGURE("gap", "beside ms", 9, 2, "ms"),
          FIGURE("gap_ratio", "ratio", 6, 2, "x"), FIGURE("gap_p50", "p50 ms", 8, 2, "ms"),
          FIGURE("gap_p99", "p99 ms", 8, 2, "ms"), FIGURE("gap_max", "longest", 8, 2, "ms"),
          FIGURE("first_token", "first token of the prompt, ms", 30, 0, "ms"));
    const double targets[] = {0.0, (double)o->cli.engine.step_target_us * 1e-3};
    stall b = {.options = o, .draw = 1, .gaps = {.ms = mem_new(MAX_GAPS, sizeof(double))}};
    b.streams = mem_new((size_t)o->n_streams, sizeof *b.streams);
    quire_err e = mem_check_for(b.gaps.ms && b.streams ? b.gaps.ms : NULL, "the streams", err);
    for (int32_t i = 0; e == QUIRE_OK && i < (targets[1] > 0.0 ? 2 : 1); i++) {
        e = measure_target(&b, &t, targets[i], err);
    }
    if (e == QUIRE_OK) {
        table_note(&t,
                   "%d streams of %s decode; then a prompt of %d tokens comes. Mean gaps, their ratio, and "
                   "how long gaps beside the prompt were, as a client sees them.",
                   (int)o->n_streams, o->cli.engine.model, (int)o->n_prompt);
    }
    mem_free(b.streams);
    mem_free(b.gaps.ms);
    return e;
}

#define AT(member) .offset = offsetof(bench_stall_options, member)

static const flag bench_stall_flags[] = {
    {"--streams", "N", "streams that decode all the while", COUNT(n_streams, 1, 256)},
    {"--prompt", "N", "tokens of the prompt that comes in between", COUNT(n_prompt, 1, 1 << 20)},
    {0},
};

LAB_COMMAND(bench_stall, "bench stall", " MODEL", ARGUMENT_MODEL,
            "how much a long prompt slows other streams",
            "  quire bench stall model.gguf --step-target-ms 50 --prompt 8192\n", FLAGS_MODEL,
            flags_ablations, bench_stall_flags, flags_json, flags_compute, FLAGS_KV, flags_audit,
            flags_step_target, FLAGS_MACHINE, FLAGS_BATCH, FLAGS_MEMORY);
