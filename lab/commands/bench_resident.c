/* `quire bench resident`: memory as a model that is really run takes it, by length and
 * batch, with keys and values in pages, in growing pieces and in pieces with room for the
 * longest. Each case runs in a process of its own, whose peak the system counts; beside
 * it every allocation, counted where it is made. */

#include "lab/bench/baseline_kv.h"
#include "lab/bench/lab.h"
#include "lab/bench/model_runner.h"
#include "lab/bench/resident.h"
#include "lab/bench/synthetic.h"
#include "lab/commands/lab_commands.h"

typedef struct bench_resident_options {
    cli_options cli;
    const char *lengths; /* tokens of each sequence: "128,500,1000,2049,4096,8192" */
    const char *batches; /* sequences: "1,4" */
    int32_t max_len; /* length reserved for each sequence, where all is reserved; 0: the longest of lengths */
} bench_resident_options;

enum { MAX_ROWS = 512, PAGE_TOKENS = 16, MAX_BATCH = 64, SEED = 41, MIB = 1 << 20 };

static void bench_resident_defaults(cli_options *cli) {
    bench_resident_options *o = (void *)cli;
    *o = (bench_resident_options){.cli = o->cli, .lengths = "128,500,1000,2049,4096,8192", .batches = "1,4"};
    o->cli.engine.model = "builtin";
}

typedef enum keeping { KEEP_PAGED, KEEP_GROWING, KEEP_RESERVED, N_KEEPINGS } keeping;
static const char *const keeping_names[N_KEEPINGS] = {"paged", "growing", "reserved"};

/* What one case took; written by its process. */
typedef struct footprint {
    int64_t weights, buffers; /* of the model, as the kernels want it; of a step */
    /* keys and values: taken, of these such as hold a token; pool and block tables */
    int64_t kv, live, metadata;
    int64_t resident;
} footprint;

typedef struct resident_case {
    const bench_resident_options *o;
    keeping way;
    int32_t n_seqs, length, max_len;
    footprint found;
} resident_case;

/* A case on its way. */
typedef struct holder {
    model_runner b;
    kv_cache kv;
    kv_seq seqs[MAX_BATCH];
    runner_part parts[MAX_BATCH];
    int32_t *tokens; /* [length], the same for all */
    baseline_kv *pieces;
    int64_t piece_bytes; /* the most at a time */
} holder;

/* The next rows of every sequence, a pass for all, so that each keeps its place in the
 * batch. */
static quire_err feed(const resident_case *c, holder *h, int32_t from, int32_t n) {
    kv_copies none = {0};
    for (int32_t s = 0; s < c->n_seqs; s++) {
        if (c->way == KEEP_PAGED) {
            TRY(kv_seq_reserve(&h->kv, &h->seqs[s], n, &none));
            kv_seq_advance(&h->seqs[s], n);
        }
        h->parts[s] = (runner_part){h->tokens,
                                    from,
                                    n,
                                    c->way == KEEP_PAGED ? &h->seqs[s].tables[0].pages->v : NULL,
                                    from + n == c->length,
                                    NULL,
                                    NULL};
    }
    TRY(model_runner_forward(&h->b, h->parts, c->n_seqs));
    int64_t bytes = h->pieces != NULL ? baseline_kv_bytes(h->pieces) : 0;
    h->piece_bytes = bytes > h->piece_bytes ? bytes : h->piece_bytes;
    return h->pieces != NULL ? baseline_kv_error(h->pieces) : QUIRE_OK;
}

static quire_err bench_resident_fill(const resident_case *c, holder *h) {
    int32_t rows = MAX_ROWS / c->n_seqs;
    for (int32_t at = 0; at < c->length; at += rows) {
        TRY(feed(c, h, at, c->length - at < rows ? c->length - at : rows));
    }
    return QUIRE_OK;
}

static quire_err open_holder(const resident_case *c, holder *h) {
    kv_cache_options k = {.n_pages = c->n_seqs * (int32_t)kv_pages_for(c->length, PAGE_TOKENS),
                          .page_tokens = PAGE_TOKENS,
                          .n_groups = 1};
    k.no_index = true;
    h->tokens = mem_new((size_t)c->length, sizeof *h->tokens);
    if (h->tokens == NULL) {
        return QUIRE_NO_MEMORY;
    }
    model_runner_prompt(&h->b, SEED, c->length, h->tokens);
    if (c->way != KEEP_PAGED) {
        return baseline_kv_attach(h->b.b, c->way == KEEP_GROWING ? BASELINE_GROWING : BASELINE_RESERVED,
                                  c->n_seqs, c->way == KEEP_GROWING ? c->length : c->max_len, &h->pieces);
    }
    TRY(kv_cache_open(&k, &h->kv));
    for (int32_t s = 0; s < c->n_seqs; s++) {
        TRY(kv_seq_init(&h->seqs[s], 1, (int32_t)kv_pages_for(c->length, PAGE_TOKENS)));
    }
    return QUIRE_OK;
}

static void bench_resident_count(const resident_case *c, const holder *h, footprint *f) {
    f->weights = h->b.b->ops->weight_bytes(h->b.b);
    f->buffers = h->b.b->ops->step_bytes(h->b.b);
    f->live = (int64_t)c->n_seqs * c->length * kv_layout_token_bytes(&h->b.layout);
    f->kv = h->piece_bytes;
    if (c->way == KEEP_PAGED) {
        f->kv = kv_pool_counts(h->kv.pool).n_held * h->b.layout.page_bytes;
        f->metadata = kv_pool_bytes(h->kv.pool);
        for (int32_t s = 0; s < c->n_seqs; s++) {
            f->metadata += h->seqs[s].tables[0].cap_pages * (int64_t)sizeof(page_id);
        }
    }
    f->resident = resident_peak_bytes();
}

/* In its own process, which ends after it: what is open goes with it. */
static quire_err bench_resident_run_case(void *context, quire_error *err) {
    resident_case *c = context;
    static holder h;
    TRY(MODEL_RUNNER_OPEN(
        &h.b, err, .engine = &c->o->cli.engine, .page_tokens = PAGE_TOKENS,
        .n_pages = c->way == KEEP_PAGED ? c->n_seqs * (int32_t)kv_pages_for(c->length, PAGE_TOKENS) : 1,
        .max_rows = MAX_ROWS, .max_seqs = c->n_seqs, .max_len = c->max_len));
    quire_err e = open_holder(c, &h);
    e = e == QUIRE_OK ? bench_resident_fill(c, &h) : e;
    bench_resident_count(c, &h, &c->found);
    return e == QUIRE_OK ? e
                         : err_set(err, e, -1, "%s, %d sequences of %d tokens: %s", keeping_names[c->way],
                                   (int)c->n_seqs, (int)c->length, quire_err_text(e));
}

static void bench_resident_report(const bench_table *s, const resident_case *c) {
    const footprint *f = &c->found;
    double counted = (double)(f->weights + f->buffers + f->kv + f->metadata);
    TABLE_ROW(s, TXT(keeping_names[c->way]), NUM(c->n_seqs), NUM(c->length),
              NUM(f->resident >= 0 ? (double)f->resident / MIB : TABLE_ABSENT), NUM(counted / MIB),
              NUM((double)f->weights / MIB), NUM((double)f->buffers / MIB), NUM((double)f->kv / MIB),
              NUM((double)f->live / MIB), NUM((double)(f->kv - f->live) / MIB),
              NUM(100 * (double)(f->kv - f->live) / (double)f->live),
              NUM(c->way == KEEP_PAGED ? (double)f->metadata / 1024 : TABLE_ABSENT));
}

static quire_err bench_resident_run_cases(const bench_resident_options *o, int64_t file_bytes,
                                          quire_error *err) {
    int32_t lengths[FIGURES_MAX_POINTS], batches[FIGURES_MAX_POINTS], n_lengths, n_batches, longest = 0;
    char machine[160];
    TABLE(s, "resident", o->cli.json, WORD("way", "", 8), KEY("batch", "batch", 5, 0),
          KEY("length", "length", 6, 0), FIGURE("resident", "resident MiB", 12, 1, "MiB"),
          FIGURE("counted", "counted", 8, 2, "MiB"), FIGURE("weights", "weights", 7, 2, "MiB"),
          FIGURE("buffers", "buffers", 7, 2, "MiB"), FIGURE("kv", "KV MiB", 8, 3, "MiB"),
          FIGURE("live", "live", 8, 3, "MiB"), FIGURE("wasted", "wasted", 8, 3, "MiB"),
          FIGURE("wasted_part", "of live %", 9, 2, "%"), FIGURE("metadata", "metadata KiB", 12, 1, "KiB"));
    TRY(figures_parse_list("--lengths", o->lengths, lengths, &n_lengths, err));
    TRY(figures_parse_list("--batch", o->batches, batches, &n_batches, err));
    longest = figures_largest(lengths, n_lengths);
    int32_t max_len = o->max_len > 0 ? o->max_len : longest;
    for (int32_t i = 0; i < n_batches; i++) {
        if (batches[i] > MAX_BATCH || longest > max_len) {
            return err_set(
                err, QUIRE_INVALID, -1,
                "--batch %d, --lengths up to %d: at most %d sequences, none longer than --max-len %d",
                (int)batches[i], (int)longest, MAX_BATCH, (int)max_len);
        }
    }
    TRY(lab_describe(&o->cli.engine, machine, sizeof machine, err));
    table_begin(
        &s,
        "A model really run, each case by a process of its own. resident: its peak, as the system counts it; "
        "counted: weights, buffers, keys and values, metadata, each as allocated; live: the bytes of tokens");
    for (int32_t i = 0; i < n_batches * n_lengths * N_KEEPINGS; i++) {
        resident_case c = {.o = o,
                           .way = (keeping)(i % N_KEEPINGS),
                           .n_seqs = batches[i / N_KEEPINGS / n_lengths],
                           .length = lengths[i / N_KEEPINGS % n_lengths],
                           .max_len = max_len};
        TRY(resident_apart(bench_resident_run_case, &c, &c, sizeof c, err));
        bench_resident_report(&s, &c);
    }
    table_note(
        &s,
        "%s; growing and reserved: one piece for each sequence and layer, as long as it, or of %d tokens; a "
        "model file of %.2f MiB is mapped while it is packed into the weights counted here; page %d",
        machine, (int)max_len, (double)file_bytes / MIB, PAGE_TOKENS);
    return QUIRE_OK;
}

static quire_err bench_resident_run(const cli_options *cli, quire_error *err) {
    const bench_resident_options *o = (const void *)cli;
    bench_resident_options own = *o;
    synthetic made;
    TRY(synthetic_open_builtin(&own.cli.engine, &made, err));
    quire_err e = bench_resident_run_cases(&own, made.n_bytes, err);
    synthetic_close(&made);
    return e;
}

#define AT(member) .offset = offsetof(bench_resident_options, member)

static const flag bench_resident_flags[] = {
    {"--lengths", "LIST", "tokens of each sequence", TEXT(lengths)},
    {"--batch", "LIST", "sequences", TEXT(batches)},
    {"--max-len", "N", "room for each where all is reserved; without: the longest",
     COUNT(max_len, 1, 131072)},
    {"--model -m", "MODEL", "the model; builtin: its shape with 131,072 positions", TEXT(cli.engine.model)},
    {0},
};

LAB_COMMAND(bench_resident, "bench resident", "", ARGUMENT_NONE,
            "memory as measured and as allocated: paged, growing, all reserved",
            "  quire bench resident --lengths 128,2048 --batch 1,8\n", bench_resident_flags, flags_compute,
            flags_kv_dtype, flags_threads, flags_json, flags_help);
