#include "bench/stall.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "bench/figures.h"
#include "bench/sheet.h"

enum {
    N_WARM = 32,         /* tokens of each stream before gaps are measured: the engine learns what steps cost */
    N_ALONE = 256,       /* tokens of each stream undisturbed */
    MAX_GAPS = 1 << 20,
    N_LEARN = 4,         /* shorter prompts before the measured one, which teach the engine what rows cost */
    STREAM_PROMPT = 32
};

void bench_stall_options_init(bench_stall_options *o) {
    *o = (bench_stall_options){.n_streams = 4, .n_prompt = 32768};
    quire_options_init(&o->engine);
}

typedef struct gaps {
    double *ms; /* [MAX_GAPS] */
    int32_t n;
} gaps;

typedef struct stall {
    const bench_stall_options *options;
    quire_engine *engine;
    quire_queue *queue;
    int32_t n_vocab, n_longest; /* tokens a stream may produce */
    uint64_t draw;
    gaps gaps;
} stall;

/* A request while it runs. */
typedef struct stall_stream {
    quire_stream *stream;
    int64_t last_us; /* when its last token came; 0: none yet */
    int32_t n_tokens;
    bool is_done;
} stall_stream;

static quire_err submit(stall *b, int32_t n_prompt, int32_t n_tokens, stall_stream *s, quire_error *err) {
    int32_t *ids = mem_new((size_t)n_prompt, sizeof *ids);
    if (!ids) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a prompt of %d tokens", (int)n_prompt);
    }
    for (int32_t i = 0; i < n_prompt; i++) {
        ids[i] = (int32_t)(rng_next(&b->draw) % (uint64_t)b->n_vocab);
    }
    quire_request *request;
    quire_err e = quire_request_ids(b->engine, ids, (size_t)n_prompt, &request, err);
    mem_free(ids);
    TRY(e);
    char number[16];
    snprintf(number, sizeof number, "%d", (int)n_tokens);
    e = quire_request_set(request, "max_tokens", number, err);
    e = e == QUIRE_OK ? quire_request_set(request, "ignore_eos", "true", err) : e;
    e = e == QUIRE_OK ? quire_request_set(request, "temperature", "0", err) : e;
    if (e != QUIRE_OK) {
        quire_request_free(request);
        return e;
    }
    *s = (stall_stream){0};
    return quire_submit(b->queue, request, s, &s->stream, err);
}

static quire_err take(stall *b, const quire_event *ev, quire_error *err) {
    stall_stream *s = ev->user;
    int64_t now = clock_us();
    if (ev->kind == QUIRE_EVENT_DELTA && ev->n_tokens > 0) {
        if (s->last_us > 0 && b->gaps.n < MAX_GAPS) {
            b->gaps.ms[b->gaps.n++] = (double)(now - s->last_us) * 1e-3;
        }
        s->last_us = now;
        s->n_tokens += ev->n_tokens;
    } else if (ev->kind == QUIRE_EVENT_DONE) {
        s->is_done = true;
        if (ev->finish == QUIRE_FINISH_ERROR && ev->error) {
            *err = *ev->error;
            return err->code;
        }
    }
    return QUIRE_OK;
}

/* Reads events until s has n tokens or is done. */
static quire_err read_until(stall *b, const stall_stream *s, int32_t n, quire_error *err) {
    while (s->n_tokens < n && !s->is_done) {
        quire_event ev;
        if (!quire_queue_next(b->queue, &ev)) {
            quire_queue_wait(b->queue, -1);
            continue;
        }
        TRY(take(b, &ev, err));
    }
    return QUIRE_OK;
}

static double gap_at(gaps *g, double part) {
    return g->n > 0 ? figures_percentile(g->ms, g->n, part) : SHEET_ABSENT;
}

static double mean_gap(const gaps *g) {
    double sum = 0.0;
    for (int32_t i = 0; i < g->n; i++) {
        sum += g->ms[i];
    }
    return g->n > 0 ? sum / g->n : SHEET_ABSENT;
}

static void report(const sheet *t, double target_ms, double alone_ms, gaps *beside, double first_ms) {
    double mean = mean_gap(beside);
    sheet_row(t, (sheet_cell[]){{NULL, target_ms}, {NULL, alone_ms}, {NULL, mean}, {NULL, mean / alone_ms}, {NULL, gap_at(beside, 0.5)},
                                {NULL, gap_at(beside, 0.99)}, {NULL, gap_at(beside, 1.0)}, {NULL, first_ms}});
}

/* Streams alone, then beside the prompt. */
static quire_err measure(stall *b, const sheet *t, double target_ms, stall_stream *streams, quire_error *err) {
    const bench_stall_options *o = b->options;
    if (target_ms == 0.0) {
        sheet_begin(t, "gaps between tokens of streams, alone and beside a prompt");
    }
    stall_stream prompt;
    for (int32_t i = 0; i < o->n_streams; i++) {
        TRY(submit(b, STREAM_PROMPT, b->n_longest, &streams[i], err));
    }
    for (int32_t i = 0; i < N_LEARN; i++) {
        TRY(submit(b, o->n_prompt / 16 + 1, 1, &prompt, err));
        TRY(read_until(b, &prompt, 1, err));
        TRY(read_until(b, &prompt, INT32_MAX, err));
        quire_stream_release(prompt.stream);
    }
    TRY(read_until(b, &streams[0], streams[0].n_tokens + N_WARM, err));
    b->gaps.n = 0;
    TRY(read_until(b, &streams[0], streams[0].n_tokens + N_ALONE, err));
    double alone = mean_gap(&b->gaps);
    b->gaps.n = 0;
    int64_t start = clock_us();
    TRY(submit(b, o->n_prompt, 1, &prompt, err));
    TRY(read_until(b, &prompt, 1, err));
    report(t, target_ms, alone, &b->gaps, (double)(clock_us() - start) * 1e-3);
    TRY(read_until(b, &prompt, INT32_MAX, err));
    quire_stream_release(prompt.stream);
    for (int32_t i = 0; i < o->n_streams; i++) {
        quire_stream_release(streams[i].stream);
    }
    return QUIRE_OK;
}

static quire_err measure_target(const bench_stall_options *o, const sheet *t, double target_ms, stall *b, stall_stream *streams, quire_error *err) {
    quire_options engine = o->engine;
    engine.step_target_us = (int64_t)(target_ms * 1e3);
    engine.prefix_cache = "none";
    TRY(quire_engine_open(&engine, &b->engine, err));
    const quire_info *info = quire_engine_info(b->engine);
    quire_err e = QUIRE_OK;
    b->n_vocab = info->n_vocab;
    b->n_longest = info->max_model_len - STREAM_PROMPT;
    if (o->n_prompt + 2 > info->max_model_len) {
        e = err_set(err, QUIRE_INVALID, -1, "--prompt %d: the model takes %d tokens; ask for less", (int)o->n_prompt, (int)info->max_model_len);
    } else if ((e = quire_queue_open(b->engine, &b->queue)) != QUIRE_OK) {
        err_set(err, e, -1, "the engine's queue could not be opened: %s", quire_err_text(e));
    } else {
        e = measure(b, t, target_ms, streams, err);
        quire_queue_close(b->queue);
    }
    quire_engine_close(b->engine);
    return e;
}

quire_err bench_stall_run(const bench_stall_options *o, quire_error *err) {
    static const sheet_column columns[] = {{"target_ms", "target ms", 9, 0},   {"gap_alone_ms", "alone ms", 9, 2}, {"gap_ms", "beside ms", 9, 2},
                                           {"ratio", "ratio", 6, 2},           {"gap_p50_ms", "p50 ms", 8, 2},     {"gap_p99_ms", "p99 ms", 8, 2},     {"gap_max_ms", "longest", 8, 2},
                                           {"first_token_ms", "first token of the prompt, ms", 30, 0}};
    sheet t = {.what = "stall", .columns = columns, .n_columns = (int32_t)(sizeof columns / sizeof *columns), .json = o->json};
    const double targets[] = {0.0, (double)o->engine.step_target_us * 1e-3};
    stall b = {.options = o, .draw = 1, .gaps = {.ms = mem_new(MAX_GAPS, sizeof(double))}};
    stall_stream *streams = mem_new((size_t)o->n_streams, sizeof *streams);
    quire_err e = b.gaps.ms && streams ? QUIRE_OK : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for %d streams", (int)o->n_streams);
    for (int32_t i = 0; e == QUIRE_OK && i < (targets[1] > 0.0 ? 2 : 1); i++) {
        e = measure_target(o, &t, targets[i], &b, streams, err);
    }
    if (e == QUIRE_OK) {
        sheet_note(&t, "%d streams of %s decode; then a prompt of %d tokens comes. Mean gaps, their ratio, and how long gaps beside the prompt were, as a client sees them.",
                   (int)o->n_streams, o->engine.model, (int)o->n_prompt);
    }
    mem_free(streams);
    mem_free(b.gaps.ms);
    return e;
}
