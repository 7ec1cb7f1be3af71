/* `quire bench attention`: the speed of attention alone, by context, batch, heads and KV
 * type, and what paging costs it. */

#include "core/batch.h"
#include "lab/bench/attention_measure.h"
#include "lab/commands/lab_commands.h"

typedef struct bench_attention_options {
    cli_options cli;
    const char *contexts; /* tokens that a decoded one attends to, "1024,8192,32768" */
    const char *types;    /* types of keys and values, "f16,bf16,int8" */
    /* only decodes, by tokens per page, with pages scattered and consecutive:
     * "16,64,256"; NULL: everything with 16 */
    const char *pages;
    const char *isa;  /* instruction set */
    int32_t n_prompt; /* tokens of the prefilled prompt */
    int32_t n_threads, n_runs;
} bench_attention_options;

enum {
    N_SHAPES = 2,
    N_LATENTS = 2,
    MANY = 16,
    MANY_TOKENS = 2048,
    SHARING = 32,
    SHARED = 4096,
    OWN = 128,
    MAX_TYPES = 6,
    PLACES = 4
};

/* Query heads, kv heads, head width: of a small Llama, and of a model without GQA. */
static const int32_t shapes[N_SHAPES][3] = {{32, 4, 64}, {32, 32, 128}};
/* Query heads over latents of 512 elements and a rotary part of 64: of small models and
 * of DeepSeek V3. */
static const int32_t latents[N_LATENTS] = {16, 128};
static const struct {
    const char *name;
    dtype type;
} types[MAX_TYPES] = {{"f32", DTYPE_F32},     {"f16", DTYPE_F16}, {"bf16", DTYPE_BF16},
                      {"fp8", DTYPE_F8_E4M3}, {"int8", DTYPE_I8}, {"int4", DTYPE_I4}};

LAB_DEFAULTS(bench_attention, .contexts = "1024,8192,32768", .types = "bf16,fp8,int8,int4", .isa = "auto",
             .n_prompt = 8192, .n_runs = 5)

/* What all measurements of a run share. */
typedef struct attention_report {
    const bench_table *t;
    attention_machine m;
} attention_report;

static const char *heads_text(const attention_shape *s, char out[32]) {
    snprintf(out, 32, "%d/%d x %d", (int)s->n_heads, (int)s->n_kv_heads, (int)s->d_head);
    return out;
}

/* Prints a row. bytes: read in these microseconds; if absent, rates are not printed.
 * Ratios may be absent too. */
static void attention_row(const attention_report *r, const char *work, const attention_shape *s, double us,
                          double bytes, double ratio, double times) {
    char heads[32];
    double operations = isnan(bytes) ? TABLE_ABSENT : attention_operations(s);
    TABLE_ROW(r->t, TXT(work), TXT(dtype_name(s->type)), TXT(heads_text(s, heads)), NUM(s->n_seqs),
              NUM(s->n_tokens), NUM(us), NUM(bytes / us / 1e3), NUM(operations / us / 1e3), NUM(ratio),
              NUM(bytes / 1e6), NUM(times));
}

static quire_err report_plain(const attention_report *r, const char *work, const attention_shape *shape,
                              quire_error *err) {
    attention_speed speed;
    TRY(attention_measure(shape, &r->m, &speed, err));
    attention_row(r, work, shape, speed.paged_us, (double)attention_bytes(shape),
                  speed.paged_us / speed.contiguous_us, TABLE_ABSENT);
    return QUIRE_OK;
}

/* Decodes of sequences that share a prefix, with and without cascade attention. */
static quire_err report_shared(const attention_report *r, const attention_shape *like, quire_error *err) {
    attention_shape shape = *like;
    cascade_speed speed;
    shape.n_seqs = SHARING;
    shape.n_tokens = SHARED + OWN;
    shape.n_shared = SHARED;
    shape.n_rows = 1;
    TRY(attention_measure_cascade(&shape, &r->m, &speed, err));
    attention_row(r, "shared", &shape, speed.each_us, (double)speed.each_bytes, TABLE_ABSENT, 1);
    attention_row(r, "cascade", &shape, speed.cascade_us, (double)speed.cascade_bytes, TABLE_ABSENT,
                  speed.each_us / speed.cascade_us);
    return QUIRE_OK;
}

/* A causal mask and a window, as the layer's own and as expressions: time, and its ratio
 * to the layer's own. */
static quire_err report_mods(const attention_report *r, const char *work, const attention_shape *shape,
                             quire_error *err) {
    mods_speed speed;
    char name[32];
    TRY(attention_measure_mods(shape, &r->m, &speed, err));
    const struct {
        const char *name;
        double us, own_us;
    } rows[] = {{"causal", speed.causal_us, speed.causal_us},
                {"causal text", speed.causal_mod_us, speed.causal_us},
                {"window", speed.window_us, speed.window_us},
                {"window text", speed.window_mod_us, speed.window_us}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(name, sizeof name, "%s %s", work, rows[i].name);
        attention_row(r, name, shape, rows[i].us, TABLE_ABSENT, TABLE_ABSENT, rows[i].us / rows[i].own_us);
    }
    return QUIRE_OK;
}

/* Windows and soft caps of published models, compared with plain attention in which rows
 * see as many keys. For a decode with a window, the mean over PLACES positions of a
 * chunk, since a window that crosses chunks costs more. */
static quire_err report_bounds(const attention_report *r, const char *work, const attention_shape *like,
                               quire_error *err) {
    static const struct {
        int32_t window;
        float soft_cap;
    } cases[] = {{0, 50}, {128, 0}, {512, 0}, {4096, 0}, {4096, 50}};
    char name[32];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attention_shape shape = *like;
        bound_speed speed = {0, 0};
        if (cases[i].window > 0) {
            shape.n_tokens = 2 * cases[i].window + shape.n_rows;
        }
        if (shape.n_tokens > like->n_tokens + like->n_rows) {
            continue;
        }
        const bool is_mean = cases[i].window > 0 && shape.n_rows == 1;
        for (int32_t place = 0; place < (is_mean ? PLACES : 1); place++) {
            attention_shape at = shape;
            bound_speed one;
            at.n_tokens += place * (ATTN_CHUNK / PLACES);
            TRY(attention_measure_bound(&at, &r->m, cases[i].window, cases[i].soft_cap, &one, err));
            speed.bound_us += one.bound_us / (is_mean ? PLACES : 1);
            speed.plain_us += one.plain_us / (is_mean ? PLACES : 1);
        }
        int at = snprintf(name, sizeof name, "%s", work);
        at += cases[i].window > 0
                  ? snprintf(name + at, sizeof name - (size_t)at, " window %d", (int)cases[i].window)
                  : 0;
        (void)(cases[i].soft_cap > 0 ? snprintf(name + at, sizeof name - (size_t)at, " cap") : 0);
        attention_row(r, name, &shape, speed.bound_us, TABLE_ABSENT, TABLE_ABSENT,
                      speed.bound_us / speed.plain_us);
    }
    return QUIRE_OK;
}

static quire_err bench_attention_run_type(const bench_attention_options *o, const attention_report *r,
                                          dtype type, quire_error *err) {
    int32_t contexts[FIGURES_MAX_POINTS], n;
    TRY(figures_parse_list("--context", o->contexts, contexts, &n, err));
    for (int i = 0; i < N_SHAPES; i++) {
        attention_shape shape = {.n_heads = shapes[i][0],
                                 .n_kv_heads = shapes[i][1],
                                 .d_head = shapes[i][2],
                                 .type = type,
                                 .n_seqs = 1,
                                 .n_rows = 1};
        for (int32_t c = 0; c < n; c++) {
            shape.n_tokens = contexts[c];
            TRY(report_plain(r, "decode", &shape, err));
        }
        shape.n_seqs = MANY;
        shape.n_tokens = MANY_TOKENS;
        TRY(report_plain(r, "decode", &shape, err));
        TRY(report_shared(r, &shape, err));
        shape.n_seqs = 1;
        shape.n_tokens = o->n_prompt;
        shape.n_rows = o->n_prompt < ATTENTION_STEP_ROWS ? o->n_prompt : ATTENTION_STEP_ROWS;
        TRY(report_plain(r, "last chunk", &shape, err));
        attention_shape decode = shape;
        decode.n_rows = 1;
        TRY(report_mods(r, "chunk", &shape, err));
        TRY(report_mods(r, "decode", &decode, err));
        TRY(report_bounds(r, "chunk", &shape, err));
        TRY(report_bounds(r, "decode", &decode, err));
        if (i == 0) {
            shape.n_rows = o->n_prompt;
            TRY(report_plain(r, "prefill", &shape, err));
        }
    }
    for (int32_t i = 0; i < N_LATENTS * n; i++) {
        const attention_shape shape = {.n_heads = latents[i / n],
                                       .n_kv_heads = 1,
                                       .d_head = 576,
                                       .n_value = 512,
                                       .type = type,
                                       .n_seqs = 1,
                                       .n_tokens = contexts[i % n],
                                       .n_rows = 1};
        TRY(report_plain(r, "latents", &shape, err));
    }
    return QUIRE_OK;
}

/* A decoded token by page size and by order of pages. */
static quire_err report_pages(const attention_report *r, const attention_shape *shape, int32_t page_tokens,
                              quire_error *err) {
    attention_machine m = r->m;
    attention_speed scattered, in_order, reading;
    char heads[32];
    m.page_tokens = page_tokens;
    TRY(attention_measure(shape, &m, &scattered, err));
    TRY(attention_measure_reading(shape, &m, &reading, err));
    m.in_order = true;
    TRY(attention_measure(shape, &m, &in_order, err));
    int64_t bytes = attention_bytes(shape) * page_tokens / (2 * (int64_t)shape->n_kv_heads * shape->n_tokens);
    TABLE_ROW(r->t, TXT(dtype_name(shape->type)), TXT(heads_text(shape, heads)), NUM(shape->n_tokens),
              NUM(page_tokens), NUM(scattered.paged_us), NUM(scattered.paged_us / scattered.contiguous_us),
              NUM(in_order.paged_us), NUM(in_order.paged_us / in_order.contiguous_us),
              NUM((double)bytes / 1024), NUM(reading.paged_us),
              NUM(reading.paged_us / reading.contiguous_us));
    return QUIRE_OK;
}

static quire_err bench_attention_run_pages(const bench_attention_options *o, const int32_t *list,
                                           int32_t n_types, quire_error *err) {
    TABLE(t, "attention pages", o->cli.json, WORD("kv_dtype", "KV", 5), WORD("heads", "heads", 11),
          KEY("context", "context", 8, 0), KEY("page_tokens", "page", 5, 0),
          FIGURE("scattered", "no order us", 12, 1, "us/layer"),
          FIGURE("scattered_ratio", "/contiguous", 11, 3, "x"),
          FIGURE("in_order", "in a row us", 12, 1, "us/layer"),
          FIGURE("in_order_ratio", "/contiguous", 11, 3, "x"), FIGURE("piece", "piece KiB", 10, 1, "KiB"),
          FIGURE("reading", "reading us", 11, 1, "us/layer"),
          FIGURE("reading_ratio", "/contiguous", 11, 3, "x"));
    const attention_report r = {
        &t, {.compute = COMPUTE_F32, .isa = o->isa, .n_threads = o->n_threads, .n_runs = o->n_runs}};
    int32_t contexts[FIGURES_MAX_POINTS], pages[FIGURES_MAX_POINTS], n_contexts, n_pages;
    TRY(figures_parse_list("--context", o->contexts, contexts, &n_contexts, err));
    TRY(figures_parse_pages("--pages", o->pages, pages, &n_pages, err));
    table_begin(&t, NULL);
    for (int32_t i = 0; i < n_types * N_SHAPES * n_contexts * n_pages; i++) {
        int32_t c = i / n_pages, s = c / n_contexts;
        const int32_t *heads = shapes[s % N_SHAPES];
        const attention_shape shape = {.n_heads = heads[0],
                                       .n_kv_heads = heads[1],
                                       .d_head = heads[2],
                                       .type = types[list[s / N_SHAPES]].type,
                                       .n_seqs = 1,
                                       .n_tokens = contexts[c % n_contexts],
                                       .n_rows = 1};
        TRY(report_pages(&r, &shape, pages[i % n_pages], err));
    }
    table_note(&t,
               "A decoded token's attention, one layer, by tokens a page; contiguous: pages of 256 in a row; "
               "least of %d runs (%s). Piece: what lies together of a head's keys or values. Reading: one "
               "thread only loads from each cache line of the same pieces, in no order too, the quickest of "
               "%d ways; what it takes more than for contiguous ones is the machine's price of such pieces.",
               (int)o->n_runs, figures_time_name(o->n_threads), (int)PIECES_WAYS);
    return QUIRE_OK;
}

static quire_err bench_attention_run(const cli_options *cli, quire_error *err) {
    const bench_attention_options *o = (const void *)cli;
    TABLE(t, "attention", o->cli.json, WORD("work", "work", -22), WORD("kv_dtype", "KV", -5),
          WORD("heads", "heads", -11), KEY("batch", "batch", 6, 0), KEY("context", "context", 8, 0),
          FIGURE("time", "us a layer", 11, 1, "us/layer"), FIGURE("read_rate", "GB/s", 7, 2, "GB/s"),
          FIGURE("compute_rate", "GOP/s", 8, 1, "GOP/s"),
          FIGURE("paged_over_contiguous", "paged/contiguous", 17, 3, "x"),
          FIGURE("read", "MB read", 9, 1, "MB"), FIGURE("speedup", "times", 6, 2, "x"));
    const attention_report r = {
        &t, {.compute = COMPUTE_F32, .isa = o->isa, .n_threads = o->n_threads, .n_runs = o->n_runs}};
    int32_t list[MAX_TYPES], n; /* rows of `types` */
    TRY(FIGURES_PARSE_NAMES("--kv-dtype", o->types, types, list, &n, err));
    if (o->pages != NULL) {
        TRY(unused_flags_refuse(cli, "--prompt", "with --pages, where decodes alone are measured", err));
        return bench_attention_run_pages(o, list, n, err);
    }
    table_begin(&t, NULL);
    for (int32_t i = 0; i < n; i++) {
        TRY(bench_attention_run_type(o, &r, types[list[i]].type, err));
    }
    table_note(&t,
               "Attention of one layer over pages of 16 tokens in no order, least of %d runs (%s); GB/s: "
               "keys and values once. Chunks of %d rows. Shared: a prefix of %d tokens, in the same pages, "
               "read for each sequence; cascade: read once, as many times as fast. Causal and window (64): "
               "the last chunk's rows, then a decode, under a layer's mask and under the same as an "
               "expression, and how many times the layer's time it takes. Window N and cap: a window of N "
               "tokens and a soft cap of 50 on scores, and how many times the time of plain attention in "
               "which rows see as many keys; decodes under a window: the mean of %d positions of a chunk. "
               "Latents: a decode over one latent a token for all heads.",
               (int)o->n_runs, figures_time_name(o->n_threads), (int)ATTENTION_STEP_ROWS, (int)SHARED,
               (int)PLACES);
    return QUIRE_OK;
}

#define AT(member) .offset = offsetof(bench_attention_options, member)

static const flag bench_attention_flags[] = {
    {"--context", "LIST", "tokens that a decoded one sees", TEXT(contexts)},
    {"--pages", "LIST", "decodes alone, by tokens a page, in no order and in a row", TEXT(pages)},
    {"--prompt", "N", "tokens of the prompt that is prefilled", COUNT(n_prompt, 1, 1 << 20)},
    {"--kv-dtype", "LIST", "types of keys and values", TEXT(types)},
    {"--isa", NULL, "instruction set", FLAG_NAME, AT(isa), .choices = choices_isa},
    {"--threads -t", "N", "threads; 0: one a core", COUNT(n_threads, 0, 1024)},
    {"--runs", "N", "runs per figure; the fastest counts", COUNT(n_runs, 1, 64)},
    {0},
};

LAB_COMMAND(bench_attention, "bench attention", "", ARGUMENT_NONE,
            "speed of attention alone, and the cost of pages",
            "  quire bench attention --context 1024,32768 --threads 1 --json\n", bench_attention_flags,
            flags_json, flags_help);
