/* `quire bench speed --shape`: models of published shapes compared with the Llama shape
 * in the same run. A pass may take as long as Llama's passes with as many bytes of
 * weights and as many operations.
 *
 * A product of B bytes and O operations is allowed B g(O / B), where g(i) is the time per
 * byte of the Llama model's layers in a pass with i operations per byte of weights. g is
 * measured in passes of 1 to 512 rows and interpolated linearly: it is constant at few
 * rows (memory-bound) and grows at many (compute-bound). Attention is excluded from both;
 * `quire bench attention` covers it. A shared machine's memory and clock change within
 * seconds, so g is measured anew right before each model's pass, and a row's ratio is the
 * median over such rounds. Bytes and operations are those that the ops report, so a
 * mixture counts only experts that have rows. */
#include <stdlib.h>

#include "kv/kv_seq.h"
#include "lab/bench/bench_speed_report.h"
#include "lab/bench/model_runner.h"
#include "lab/bench/model_shape.h"
#include "lab/commands/measures.h"

enum { CONTEXT = 128, PROMPT = 512, PAGE_TOKENS = 16, OPS_A_LAYER = 24, MAX_BATCH = 64 };
enum { MIN_PASSES = 3, SHORT_US = 30000, DECODE_ROUNDS = 4, MAX_ROUNDS = DECODE_ROUNDS * FIGURES_MAX_RUNS };

/* A model, its tokens and pages, and the trace of its last pass. */
typedef struct shape_model {
    model_runner b;
    op_trace trace;
    int32_t *tokens; /* [PROMPT] token ids */
    int32_t n_seqs;
    kv_seq seqs[MAX_BATCH]; /* each has pages for PROMPT tokens */
    runner_part parts[MAX_BATCH];
} shape_model;

/* The best time of a kind of pass in a round. */
typedef struct work {
    bool is_prompt;
    int32_t rows;                 /* rows of a prompt, or sequences that decode */
    double pass_us, attention_us; /* times of the pass with the least time outside attention */
    double bytes, operations;     /* work of its products */
    double head_us, head_bytes;   /* part of these in the head */
    double llama_us;              /* time that Llama's layers would take for them */
} work;

/* ---- a model that runs ---- */

static void shape_model_close(shape_model *r) {
    model_runner_close(&r->b);
    mem_free(r->trace.ops);
    mem_free(r->tokens);
    for (int32_t i = 0; i < r->n_seqs; i++) {
        kv_seq_deinit(&r->seqs[i]);
    }
}

/* Gives sequence i its own pages in each group. */
static quire_err open_sequence(shape_model *r, int32_t i, quire_error *err) {
    enum { PAGES = PROMPT / PAGE_TOKENS };
    int32_t n_groups = r->b.layout.n_groups;
    if (kv_seq_init(&r->seqs[i], n_groups, PAGES) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for block tables");
    }
    r->n_seqs++;
    for (int32_t k = 0; k < n_groups * PAGES; k++) {
        r->seqs[i].tables[k / PAGES].pages[k % PAGES].v = i * n_groups * PAGES + k;
    }
    return QUIRE_OK;
}

static quire_err open_passes(shape_model *r, int32_t most, quire_error *err) {
    r->trace.cap = r->b.desc->n_layers * OPS_A_LAYER + OPS_A_LAYER;
    r->trace.ops = mem_new((size_t)r->trace.cap, sizeof *r->trace.ops);
    r->tokens = mem_new(PROMPT, sizeof *r->tokens);
    TRY(mem_check_for(r->trace.ops && r->tokens ? r->trace.ops : NULL, "a trace", err));
    model_runner_prompt(&r->b, 1, PROMPT, r->tokens);
    for (int32_t i = 0; i < most; i++) {
        TRY(open_sequence(r, i, err));
    }
    /* different sequences, so that they use different experts */
    for (int32_t i = 0; i < most && !r->b.desc->no_head; i++) {
        const runner_part p = {.tokens = r->tokens + i, .n_rows = CONTEXT, .n_logits = 1, .seq = &r->seqs[i]};
        TRY(model_runner_forward(&r->b, &p, 1));
    }
    return QUIRE_OK;
}

static quire_err runner_open(const bench_speed_options *o, const model_shape *s, const speed_type *type,
                             int32_t most, shape_model *r, quire_error *err) {
    synthetic made;
    quire_options e;
    *r = (shape_model){.n_seqs = 0};
    quire_options_init(&e);
    TRY(synthetic_open(s, type->file, &made, err));
    e.model = made.path;
    e.compute = speed_type_compute(type);
    e.n_threads = o->n_threads;
    e.isa = o->isa;
    quire_err result = MODEL_RUNNER_OPEN(&r->b, err, .engine = &e, .page_tokens = PAGE_TOKENS,
                                         .n_pages = most * (PROMPT / PAGE_TOKENS), .max_rows = PROMPT,
                                         .max_seqs = most, .max_len = PROMPT, .has_groups = true);
    synthetic_close(&made);
    TRY(result);
    return open_passes(r, most, err);
}

/* ---- passes ---- */

static quire_err bench_shapes_pass(shape_model *r, const work *w) {
    int32_t n = w->is_prompt ? 1 : w->rows;
    for (int32_t i = 0; i < n; i++) {
        r->parts[i] = (runner_part){.tokens = r->tokens + i,
                                    .first = w->is_prompt ? 0 : CONTEXT,
                                    .n_rows = w->is_prompt ? w->rows : 1,
                                    .n_logits = r->b.desc->no_head ? 0 : 1,
                                    .seq = &r->seqs[i]};
    }
    r->trace.n = 0;
    r->b.b->ops->trace(r->b.b, &r->trace);
    quire_err e = model_runner_forward(&r->b, r->parts, n);
    r->b.b->ops->trace(r->b.b, NULL);
    return e;
}

static double op_us(const op_time *op) {
    return (double)op->ns * 1e-3;
}

/* Keeps the last pass if it is the best of the round so far. g NULL: Llama's time is not
 * computed. */
static void bench_shapes_keep_best(const shape_model *r, const shape_pace *g, work *w) {
    const op_time *ops = r->trace.ops, *last = &ops[r->trace.n - 1];
    work now = {.is_prompt = w->is_prompt, .rows = w->rows};
    now.pass_us = (double)(last->start_ns + last->ns - ops[0].start_ns) * 1e-3;
    for (int32_t i = 0; i < r->trace.n; i++) {
        if (ops[i].kind == OP_ATTENTION) {
            now.attention_us += op_us(&ops[i]);
            continue;
        }
        double bytes = (double)ops[i].bytes, operations = (double)ops[i].operations;
        now.bytes += bytes;
        now.operations += operations;
        now.llama_us += g != NULL && bytes > 0 ? bytes * shape_pace_at(g, operations / bytes) : 0;
        if (ops[i].kind == OP_HEAD) {
            now.head_us = op_us(&ops[i]);
            now.head_bytes = bytes;
        }
    }
    if (w->pass_us <= 0 || now.pass_us - now.attention_us < w->pass_us - w->attention_us) {
        *w = now;
    }
}

/* Runs a round of one kind of pass; *w keeps the best of several. */
static quire_err bench_shapes_measure(shape_model *r, const shape_pace *g, work *w, quire_error *err) {
    double spent_us = 0;
    *w = (work){.is_prompt = w->is_prompt, .rows = w->rows};
    for (int i = 0; i < MIN_PASSES || spent_us < SHORT_US; i++) {
        TRY(err_set(err, bench_shapes_pass(r, w), -1, "a pass of %d rows failed", (int)w->rows));
        bench_shapes_keep_best(r, g, w);
        spent_us += w->pass_us;
    }
    return QUIRE_OK;
}

/* ---- Llama's pace ---- */

static const int32_t pace_rows[SHAPE_PACE_POINTS] = {1, 2, 4, 8, 16, 32, 64, 128, 256, PROMPT};

/* Measures g up to this many rows in one round. The head is excluded, since it has one
 * row for a prompt. */
static quire_err measure_pace(shape_model *llama, int32_t rows, shape_pace *g, quire_error *err) {
    double one = 0; /* operations per byte with one row, the same for head and layers */
    for (g->n = 0; g->n == 0 || (g->n < SHAPE_PACE_POINTS && pace_rows[g->n - 1] < rows); g->n++) {
        work w = {.is_prompt = true, .rows = pace_rows[g->n]};
        TRY(bench_shapes_measure(llama, NULL, &w, err));
        one = g->n == 0 ? w.operations / w.bytes : one;
        g->intensity[g->n] = one * w.rows;
        g->us_per_byte[g->n] = (w.pass_us - w.attention_us - w.head_us) / (w.bytes - w.head_bytes);
    }
    return QUIRE_OK;
}

/* ---- the table ---- */

typedef struct shapes_bench {
    const bench_speed_options *o;
    bench_table t;
    shape_model llama;
    int32_t batches[FIGURES_MAX_POINTS], n_batches, most;
    int32_t shapes[N_MODEL_SHAPES], n_shapes;
} shapes_bench;

static void print_work(const shapes_bench *b, const model_shape *s, const speed_type *type, const work *w) {
    double us = w->pass_us - w->attention_us;
    TABLE_ROW(&b->t, TXT(s->name), TXT(type->name), TXT(w->is_prompt ? "prefill" : "decode"), NUM(w->rows),
              NUM(1e6 * w->rows / w->pass_us), NUM(w->bytes / 1e6), NUM(w->operations / 1e9),
              NUM(100 * w->attention_us / w->pass_us), NUM(us / 1e3), NUM(w->llama_us / 1e3),
              NUM(us / w->llama_us));
}

static double of_llama(const work *w) {
    return (w->pass_us - w->attention_us) / w->llama_us;
}

static int by_ratio(const void *a, const void *b) {
    double x = of_llama(a), y = of_llama(b);
    return (x > y) - (x < y);
}

/* Runs rounds in which Llama's passes and this model's alternate. *w becomes the round
 * with the median ratio. */
static quire_err bench_shapes_run_rounds(shapes_bench *b, shape_model *r, work *w, quire_error *err) {
    work rounds[MAX_ROUNDS];
    shape_pace g;
    int32_t n = w->is_prompt ? b->o->n_runs : b->o->n_runs * DECODE_ROUNDS;
    for (int32_t i = 0; i < n; i++) {
        rounds[i] = *w;
        TRY(measure_pace(&b->llama, w->rows, &g, err));
        TRY(bench_shapes_measure(r, &g, &rounds[i], err));
    }
    qsort(rounds, (size_t)n, sizeof *rounds, by_ratio);
    *w = rounds[n / 2];
    return QUIRE_OK;
}

static quire_err run_works(shapes_bench *b, shape_model *r, const model_shape *s, const speed_type *type,
                           quire_error *err) {
    for (int32_t i = s->form->no_tokens ? b->n_batches : 0; i <= b->n_batches; i++) {
        work w = i < b->n_batches ? (work){.rows = b->batches[i]} : (work){.is_prompt = true, .rows = PROMPT};
        TRY(bench_shapes_run_rounds(b, r, &w, err));
        print_work(b, s, type, &w);
    }
    return QUIRE_OK;
}

static quire_err run_shape(shapes_bench *b, const model_shape *s, const speed_type *type, quire_error *err) {
    shape_model r;
    quire_err e = runner_open(b->o, s, type, b->most, &r, err);
    TRY_DONE(e, run_works(b, &r, s, type, err));
done:
    shape_model_close(&r);
    return e;
}

static quire_err run_list(shapes_bench *b, const speed_type *type, quire_error *err) {
    for (int32_t i = 0; i < b->n_shapes; i++) {
        const model_shape *s = &model_shapes[b->shapes[i]];
        model_shape shape = b->o->small ? model_shape_small(s) : *s;
        quire_err e = run_shape(b, &shape, type, err);
        if (e == QUIRE_NO_MEMORY || e == QUIRE_UNSUPPORTED) {
            speed_report_skipped(s->name, type->name, err->message, b->o->cli.json);
        } else if (e != QUIRE_OK) {
            return e;
        }
    }
    return QUIRE_OK;
}

static quire_err bench_shapes_run_type(shapes_bench *b, const speed_type *type, quire_error *err) {
    model_shape llama = b->o->small ? model_shape_small(model_shape_llama) : *model_shape_llama;
    quire_err e = runner_open(b->o, &llama, type, 1, &b->llama, err);
    TRY_DONE(e, run_list(b, type, err));
done:
    shape_model_close(&b->llama);
    return e;
}

static quire_err parse_batches(shapes_bench *b, quire_error *err) {
    TRY(figures_parse_list("--batch", b->o->batches, b->batches, &b->n_batches, err));
    b->most = figures_largest(b->batches, b->n_batches);
    return b->most <= MAX_BATCH ? QUIRE_OK
                                : err_set(err, QUIRE_INVALID, -1, "--batch %s: at most %d with --shape",
                                          b->o->batches, (int)MAX_BATCH);
}

quire_err bench_shapes_run(const bench_speed_options *o, quire_error *err) {
    static const table_column columns[] =
        TABLE_OF(WORD("shape", "shape", -10), WORD("type", "type", -5), WORD("work", "work", -8),
                 KEY("rows", "rows", 5, 0), FIGURE("speed", "tokens/s", 9, 1, "tokens/s"),
                 FIGURE("weights_read", "MB read", 9, 1, "MB"), FIGURE("operations", "GOP", 8, 2, "GOP"),
                 FIGURE("attention", "attention %", 11, 1, "%"), FIGURE("rest_time", "rest ms", 9, 3, "ms"),
                 FIGURE("llama_time", "Llama ms", 9, 3, "ms"), FIGURE("of_llama", "of Llama", 8, 3, "x"));
    shapes_bench b = {.o = o, .t = {"speed", TABLE_COLUMNS(columns), o->cli.json}};
    int32_t list[N_SPEED_TYPES], n;
    TRY(parse_batches(&b, err));
    TRY(FIGURES_PARSE_NAMES("--shape", o->shapes, model_shapes, b.shapes, &b.n_shapes, err));
    TRY(FIGURES_PARSE_NAMES("--types", o->types != NULL ? o->types : "q4_0", speed_types, list, &n, err));
    table_begin(&b.t, NULL);
    for (int32_t i = 0; i < n; i++) {
        TRY(bench_shapes_run_type(&b, &speed_types[list[i]], err));
    }
    table_note(&b.t,
               "Passes of the model alone; decodes at a context of %d. In each of %d rounds, four times as "
               "many of a decode, Llama's passes and the model's take turns, and the best of each counts; a "
               "row is the round whose ratio is the median. Rest: all but attention. Llama: what the 1.1B "
               "model takes for as many bytes and operations (quire bench speed --help has the formula); "
               "the goal is at most 1.1 of it.",
               (int)CONTEXT, (int)o->n_runs);
    return QUIRE_OK;
}
