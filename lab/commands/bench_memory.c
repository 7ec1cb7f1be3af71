/* `quire bench memory`: peak memory of three ways of keeping keys and values relative to
 * the minimum, in three scenarios. */

#include "base/size.h"
#include "lab/bench/memory_cases.h"
#include "lab/commands/lab_commands.h"

typedef struct bench_memory_options {
    cli_options cli;
    const char *shape;       /* "LAYERS,KV_HEADS,HEAD" */
    const char *pages;       /* tokens per page, "1,16,256" */
    quire_kv_dtype kv_dtype; /* f16, bf16, int8 or f32; any other counts as f16 */
    double weight_bytes;     /* bytes of the model's weights */
    int32_t max_model_len;   /* length that static preallocation reserves */
} bench_memory_options;

#define MODEL_LLAMA_1B_WEIGHTS 2471628800.0 /* 1,235,814,400 parameters of 2 bytes */

LAB_DEFAULTS(bench_memory, .shape = "16,8,64", .pages = "1,2,4,8,16,32,64,128,256", .kv_dtype = QUIRE_KV_F16,
             .weight_bytes = MODEL_LLAMA_1B_WEIGHTS, .max_model_len = 131072)

typedef struct memory_bench {
    const bench_memory_options *o;
    const bench_table *table;
    model_desc shape;
    dtype type;
} memory_bench;

static dtype stored_type(quire_kv_dtype t) {
    return t == QUIRE_KV_F32    ? DTYPE_F32
           : t == QUIRE_KV_INT8 ? DTYPE_I8
           : t == QUIRE_KV_BF16 ? DTYPE_BF16
                                : DTYPE_F16;
}

/* Writes a case's name and its parameter. */
static void bench_memory_describe(const memory_case *c, char *out, size_t n) {
    switch (c->method) {
    case MEMORY_STATIC:
        snprintf(out, n, "static %d", (int)c->parameter);
        break;
    case MEMORY_CONTIGUOUS:
        snprintf(out, n, "contiguous x%.1f", c->parameter / 100.0);
        break;
    default:
        snprintf(out, n, "pages of %d", (int)c->parameter);
    }
}

static quire_err bench_memory_run_case(const memory_bench *b, memory_scenario scenario, memory_method method,
                                       int32_t parameter, quire_error *err) {
    static const char *const methods[] = {"static", "contiguous", "paged"};
    const memory_case c = {scenario, method, parameter};
    memory_result r;
    TRY(memory_run(&c, &b->shape, b->type, &r, err));
    double least = (double)r.minimum_bytes, all = least + b->o->weight_bytes, peak = (double)r.peak_bytes;
    bool paged = method == MEMORY_PAGED;
    double metadata = paged ? (double)r.metadata_bytes : TABLE_ABSENT;
    char name[64];
    bench_memory_describe(&c, name, sizeof name);
    TABLE_ROW(b->table, TXT(memory_scenario_name(scenario)), TXT(methods[method]),
              NUM(method == MEMORY_STATIC ? parameter : TABLE_ABSENT),
              NUM(method == MEMORY_CONTIGUOUS ? parameter : TABLE_ABSENT),
              NUM(paged ? parameter : TABLE_ABSENT), NUM(b->o->weight_bytes), TXT(name), NUM(r.live_tokens),
              LIMITED(peak, least, least / peak), NUM(peak / 1e6), NUM(r.end_bytes), NUM(r.copied_bytes),
              NUM(100 * (peak - least) / least), NUM(100 * (peak - least) / all),
              NUM(paged ? (double)r.n_pages : TABLE_ABSENT), NUM(metadata), NUM(metadata / 1e3),
              NUM(100 * metadata / least), NUM(100 * metadata / all));
    return QUIRE_OK;
}

static quire_err bench_memory_run_scenario(const memory_bench *b, memory_scenario s, const int32_t *pages,
                                           int32_t n_pages, quire_error *err) {
    const int32_t longest = memory_longest(s), doubled = (int32_t)size_power_of_two((size_t)longest);
    char heading[96];
    snprintf(heading, sizeof heading, "\n%s: over the least memory that holds the tokens",
             memory_scenario_name(s));
    table_begin(b->table, heading);
    TRY(bench_memory_run_case(b, s, MEMORY_STATIC, longest, err));
    if (doubled != longest) {
        TRY(bench_memory_run_case(b, s, MEMORY_STATIC, doubled, err));
    }
    if (b->o->max_model_len > doubled) {
        TRY(bench_memory_run_case(b, s, MEMORY_STATIC, b->o->max_model_len, err));
    }
    TRY(bench_memory_run_case(b, s, MEMORY_CONTIGUOUS, 200, err));
    TRY(bench_memory_run_case(b, s, MEMORY_CONTIGUOUS, 150, err));
    for (int32_t i = 0; i < n_pages; i++) {
        TRY(bench_memory_run_case(b, s, MEMORY_PAGED, pages[i], err));
    }
    return QUIRE_OK;
}

static quire_err bench_memory_run(const cli_options *cli, quire_error *err) {
    const bench_memory_options *o = (const void *)cli;
    int32_t shape[FIGURES_MAX_POINTS], pages[FIGURES_MAX_POINTS], n_shape, n_pages;
    TRY(figures_parse_list("--shape", o->shape, shape, &n_shape, err));
    TRY(figures_parse_pages("--pages", o->pages, pages, &n_pages, err));
    if (n_shape != 3 || shape[0] > DESC_MAX_LAYERS || shape[1] > 1 << 16 || shape[2] > DESC_MAX_HEAD) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--shape %s: must be LAYERS,KV_HEADS,HEAD of a model, as in 16,8,64", o->shape);
    }
    TABLE(table, "memory", o->cli.json, WORD("scenario", NULL, 0), WORD("method", NULL, 0),
          KEY("length", NULL, 0, 0), KEY("growth_percent", NULL, 0, 0), KEY("page_tokens", NULL, 0, 0),
          KEY("weight_bytes", NULL, 0, 0), REMARK("", "", 18), FIGURE("live", NULL, 0, 0, "tokens"),
          FIGURE("peak", NULL, 0, 0, "bytes"), FIGURE("", "peak MB", 10, 1, ""),
          FIGURE("end", NULL, 0, 0, "bytes"), FIGURE("copied", NULL, 0, 0, "bytes"),
          FIGURE("overhead", "of KV %", 11, 4, "%"),
          FIGURE("overhead_with_weights", "+weights %", 11, 4, "%"), FIGURE("pages", "pages", 8, 0, "pages"),
          FIGURE("metadata", NULL, 0, 0, "bytes"), FIGURE("", "metadata kB", 12, 0, ""),
          FIGURE("metadata_share", "of KV %", 11, 4, "%"),
          FIGURE("metadata_share_with_weights", "+weights %", 11, 4, "%"));
    memory_bench b = {.o = o, .table = &table, .type = stored_type(o->kv_dtype)};
    b.shape = desc_plain(shape[0], shape[1], shape[1], shape[2], 0);
    kv_layout layout;
    TRY(kv_layout_init(&b.shape, kv_both(b.type), 1, &layout, err));
    if (!o->cli.json) {
        printf("%d layers of %d KV heads of %d, %s: %lld bytes a token; weights %.1f MB\n", (int)shape[0],
               (int)shape[1], (int)shape[2], dtype_name(b.type), (long long)kv_layout_token_bytes(&layout),
               o->weight_bytes / 1e6);
    }
    for (int s = 0; s < MEMORY_N_SCENARIOS; s++) {
        TRY(bench_memory_run_scenario(&b, (memory_scenario)s, pages, n_pages, err));
    }
    return QUIRE_OK;
}

#define AT(member) .offset = offsetof(bench_memory_options, member)

static const flag bench_memory_flags[] = {
    {"--shape", "L,H,D", "layers, KV heads and head width of the model", TEXT(shape)},
    {"--weights", "BYTES", "of the model", FLAG_PART, AT(weight_bytes), .minimum = 0, .maximum = 1e15},
    {"--pages", "LIST", "tokens a page holds", TEXT(pages)},
    {"--kv-dtype", NULL, "type of keys and values", FLAG_CHOICE, AT(kv_dtype), .choices = choices_kv_dtype},
    {"--max-model-len", "N", "room for each sequence where nobody knows better",
     COUNT(max_model_len, 1, 1 << 24)},
    {0},
};

LAB_COMMAND(bench_memory, "bench memory", "", ARGUMENT_NONE,
            "memory of pages compared with the least possible",
            "  quire bench memory\n"
            "  quire bench memory --shape 32,8,128 --weights 16060522496 --pages 16,64 --json\n",
            bench_memory_flags, flags_json, flags_help);
