#include "lab/bench/bench_attention.h"

#include <stdio.h>
#include <string.h>

#include "lab/bench/attention_measure.h"
#include "lab/bench/figures.h"
#include "lab/bench/sheet.h"

enum { N_SHAPES = 2, MANY = 16, MANY_TOKENS = 2048, SHARING = 32, SHARED = 4096, OWN = 128, MAX_TYPES = 4 };

/* Query heads, kv heads, head width: a small Llama, and a model without shared heads. */
static const int32_t shapes[N_SHAPES][3] = {{32, 4, 64}, {32, 32, 128}};
static const struct {
    const char *name;
    dtype type;
} types[MAX_TYPES] = {{"f32", DTYPE_F32}, {"f16", DTYPE_F16}, {"bf16", DTYPE_BF16}, {"int8", DTYPE_I8}};

void bench_attention_options_init(bench_attention_options *o) {
    *o = (bench_attention_options){.contexts = "1024,8192,32768", .types = "f16,bf16,int8", .isa = "auto", .n_prompt = 8192, .n_runs = 5};
}

/* "f16,bf16" into list[0..*n). */
static quire_err parse_types(const char *text, dtype *list, int32_t *n, quire_error *err) {
    *n = 0;
    for (const char *p = text; *p != '\0';) {
        size_t length = strcspn(p, ",");
        int i = 0;
        while (i < MAX_TYPES && (types[i].name == NULL || strlen(types[i].name) != length || strncmp(types[i].name, p, length) != 0)) {
            i++;
        }
        if (i == MAX_TYPES || *n == MAX_TYPES) {
            return err_set(err, QUIRE_INVALID, -1, "--kv-dtype %s: must be some of f32,f16,bf16,int8", text);
        }
        list[(*n)++] = types[i].type;
        p += length + (p[length] == ',');
    }
    return *n > 0 ? QUIRE_OK : err_set(err, QUIRE_INVALID, -1, "--kv-dtype: must be some of f32,f16,bf16,int8");
}

static quire_err report(const bench_attention_options *o, const sheet *t, const char *work, const attention_shape *shape,
                        quire_error *err) {
    const attention_machine m = {.compute = COMPUTE_F32, .isa = o->isa, .n_threads = o->n_threads, .n_runs = o->n_runs};
    attention_speed speed;
    char heads[32];
    TRY(attention_measure(shape, &m, &speed, err));
    snprintf(heads, sizeof heads, "%d/%d x %d", (int)shape->n_heads, (int)shape->n_kv_heads, (int)shape->d_head);
    sheet_row(t, (sheet_cell[]){{work, 0},
                                {dtype_name(shape->type), 0},
                                {heads, 0},
                                {NULL, shape->n_seqs},
                                {NULL, shape->n_tokens},
                                {NULL, speed.paged_us},
                                {NULL, (double)attention_bytes(shape) / speed.paged_us / 1e3},
                                {NULL, attention_operations(shape) / speed.paged_us / 1e3},
                                {NULL, speed.paged_us / speed.contiguous_us},
                                {NULL, (double)attention_bytes(shape) / 1e6},
                                {NULL, SHEET_ABSENT}});
    return QUIRE_OK;
}

/* Sequences behind a common prefix, decoding: with cascade attention and without. */
static quire_err report_shared(const bench_attention_options *o, const sheet *t, const attention_shape *like, quire_error *err) {
    const attention_machine m = {.compute = COMPUTE_F32, .isa = o->isa, .n_threads = o->n_threads, .n_runs = o->n_runs};
    attention_shape shape = *like;
    cascade_speed speed;
    char heads[32];
    shape.n_seqs = SHARING;
    shape.n_tokens = SHARED + OWN;
    shape.n_shared = SHARED;
    shape.n_rows = 1;
    TRY(attention_measure_cascade(&shape, &m, &speed, err));
    snprintf(heads, sizeof heads, "%d/%d x %d", (int)shape.n_heads, (int)shape.n_kv_heads, (int)shape.d_head);
    for (int w = 0; w < 2; w++) {
        double us = w == 0 ? speed.each_us : speed.cascade_us, bytes = (double)(w == 0 ? speed.each_bytes : speed.cascade_bytes);
        sheet_row(t, (sheet_cell[]){{w == 0 ? "shared" : "cascade", 0},
                                    {dtype_name(shape.type), 0},
                                    {heads, 0},
                                    {NULL, shape.n_seqs},
                                    {NULL, shape.n_tokens},
                                    {NULL, us},
                                    {NULL, bytes / us / 1e3},
                                    {NULL, attention_operations(&shape) / us / 1e3},
                                    {NULL, SHEET_ABSENT},
                                    {NULL, bytes / 1e6},
                                    {NULL, speed.each_us / us}});
    }
    return QUIRE_OK;
}

static quire_err run_type(const bench_attention_options *o, const sheet *t, dtype type, quire_error *err) {
    int32_t contexts[FIGURES_MAX_POINTS], n;
    TRY(figures_parse_list("--context", o->contexts, contexts, &n, err));
    for (int i = 0; i < N_SHAPES; i++) {
        attention_shape shape = {
            .n_heads = shapes[i][0], .n_kv_heads = shapes[i][1], .d_head = shapes[i][2], .type = type, .n_seqs = 1, .n_rows = 1};
        for (int32_t c = 0; c < n; c++) {
            shape.n_tokens = contexts[c];
            TRY(report(o, t, "decode", &shape, err));
        }
        shape.n_seqs = MANY;
        shape.n_tokens = MANY_TOKENS;
        TRY(report(o, t, "decode", &shape, err));
        TRY(report_shared(o, t, &shape, err));
        shape.n_seqs = 1;
        shape.n_tokens = o->n_prompt;
        shape.n_rows = o->n_prompt < ATTENTION_STEP_ROWS ? o->n_prompt : ATTENTION_STEP_ROWS;
        TRY(report(o, t, "last chunk", &shape, err));
        if (i == 0) {
            shape.n_rows = o->n_prompt;
            TRY(report(o, t, "prefill", &shape, err));
        }
    }
    return QUIRE_OK;
}

quire_err bench_attention_run(const bench_attention_options *o, quire_error *err) {
    static const sheet_column columns[] = {{"work", "work", -10, SHEET_TEXT, NULL},
                                           {"kv_dtype", "KV", -5, SHEET_TEXT, NULL},
                                           {"heads", "heads", -11, SHEET_TEXT, NULL},
                                           {"batch", "batch", 6, 0, NULL},
                                           {"context", "context", 8, 0, NULL},
                                           {"time", "us a layer", 11, 1, "us/layer"},
                                           {"read_rate", "GB/s", 7, 2, "GB/s"},
                                           {"compute_rate", "GOP/s", 8, 1, "GOP/s"},
                                           {"paged_over_contiguous", "paged/contiguous", 17, 3, "x"},
                                           {"read", "MB read", 9, 1, "MB"},
                                           {"speedup", "times", 6, 2, "x"}};
    const sheet t = {.what = "attention", .columns = columns, .n_columns = (int32_t)(sizeof columns / sizeof *columns), .json = o->json};
    dtype list[MAX_TYPES];
    int32_t n;
    TRY(parse_types(o->types, list, &n, err));
    sheet_begin(&t, NULL);
    for (int32_t i = 0; i < n; i++) {
        TRY(run_type(o, &t, list[i], err));
    }
    sheet_note(&t,
               "Attention of one layer over pages of 16 tokens in no order, least of %d runs (%s); GB/s: keys and values once. Chunks of "
               "%d rows. Shared: a prefix of %d "
               "tokens, in the same pages, read for each sequence; cascade: read once, as many times as fast.",
               (int)o->n_runs, figures_time_name(o->n_threads), (int)ATTENTION_STEP_ROWS, (int)SHARED);
    return QUIRE_OK;
}
