/* wall, alloc, table: what sequences take of a pool. Tables and pool are the engine's
 * own; bytes are counted. */

#include "base/rng.h"
#include "base/str.h"
#include "core/kv_layout.h"
#include "kv/table.h"
#include "lab/bench/baseline.h"
#include "lab/demo/demo.h"

enum { MAX_CONCURRENCY = 4096, N_EXTRA = 61 };

#define MIB (1 << 20)

/* Mean lengths of ShareGPT's conversations, as measured for vLLM (Kwon et al. 2023,
 * arXiv:2309.06180, figure 11). */
#define MEAN_PROMPT 161.31
#define MEAN_OUTPUT 337.99
#define SEED        2309

/* ---- wall ---- */

static int32_t demo_memory_draw(uint64_t *seed, double mean, int32_t most) {
    double u = ((double)(rng_next(seed) >> 11) + 0.5) * 0x1p-53, v = ceil(-log(u) * mean);
    return v > most ? most : (int32_t)v;
}

/* The tokens of n sequences: given ones in turn, or drawn. */
static void draw_lengths(const demo_numbers *given, int32_t max_len, int32_t n, int32_t *out) {
    uint64_t seed = SEED;
    for (int32_t i = 0; i < n; i++) {
        int32_t prompt = demo_memory_draw(&seed, MEAN_PROMPT, max_len - 1);
        out[i] = given->n > 0 ? given->v[i % given->n]
                              : prompt + demo_memory_draw(&seed, MEAN_OUTPUT, max_len - prompt);
    }
}

/* Pages that the sequences hold in a pool, when each has all its tokens. */
static quire_err count_pages(const int32_t *lengths, int32_t n, int32_t page_tokens, int64_t *out) {
    int64_t needs = 0;
    for (int32_t i = 0; i < n; i++) {
        needs += kv_pages_for(lengths[i], page_tokens);
    }
    kv_pool *pool;
    TRY(needs > INT32_MAX / 2 ? QUIRE_TOO_LARGE : kv_pool_open((int32_t)needs, &pool));
    kv_table *tables = mem_new((size_t)n, sizeof *tables);
    kv_copies none = {0};
    quire_err e = tables != NULL ? QUIRE_OK : QUIRE_NO_MEMORY;
    for (int32_t i = 0; e == QUIRE_OK && i < n; i++) {
        e = kv_table_append(pool, &tables[i], lengths[i], page_tokens, &none);
    }
    *out = kv_pool_counts(pool).n_held;
    for (int32_t i = 0; tables != NULL && i < n; i++) {
        kv_table_deinit(pool, &tables[i]);
    }
    mem_free(tables);
    kv_pool_close(pool);
    return e;
}

/* What each token takes, how many a sequence may have, and how many a page holds. */
typedef struct wall {
    int32_t token_bytes, max_len, page_tokens;
} wall;

static quire_err read_shape(const char *text, int32_t *token_bytes, quire_error *err) {
    int32_t shape[FIGURES_MAX_POINTS], n;
    TRY(figures_parse_list("--shape", text, shape, &n, err));
    if (n != 3 || shape[0] > 1024 || shape[1] > 1024 || shape[2] > 1024) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--shape %s: must be LAYERS,KV_HEADS,HEAD of at most 1024 each, as in 32,32,128",
                       text);
    }
    int64_t bytes = (int64_t)2 * shape[0] * shape[1] * shape[2] * 2;
    if (bytes > 1 << 30) {
        return err_set(err, QUIRE_INVALID, -1, "--shape %s: %lld bytes a token are more than 1 GiB", text,
                       (long long)bytes);
    }
    *token_bytes = (int32_t)bytes;
    return QUIRE_OK;
}

static quire_err wall_row(const bench_table *s, const wall *w, const int32_t *lengths, int32_t n) {
    int64_t tokens = 0, reserved = 0, longest = 0, pages;
    for (int32_t i = 0; i < n; i++) {
        reserved_seq q = {.n_now = lengths[i]};
        tokens += reservation_slots(RESERVE_GROWING, &q, w->max_len, w->page_tokens);
        reserved += reservation_slots(RESERVE_MAX, &q, w->max_len, w->page_tokens);
        longest = lengths[i] > longest ? lengths[i] : longest;
    }
    TRY(count_pages(lengths, n, w->page_tokens, &pages));
    double held = (double)pages * w->page_tokens, mib = (double)w->token_bytes / MIB;
    TABLE_ROW(s, NUM(n), NUM((double)tokens / n), NUM((double)reserved * mib), NUM((double)tokens * mib),
              NUM((double)(tokens + longest - 1) * mib), NUM(held * mib),
              NUM(100 * (1 - (double)tokens / (double)reserved)), NUM(100 * (1 - (double)tokens / held)));
    return QUIRE_OK;
}

quire_err demo_wall(const demo_options *o, quire_error *err) {
    demo_numbers batches, given = {.n = 0};
    wall w = {0, demo_or(o->max_len, 2048), demo_or(o->page_tokens, 16)};
    TRY(read_shape(o->shape != NULL ? o->shape : "32,32,128", &w.token_bytes, err));
    TRY(demo_read_numbers("--batch", o->batches, "1,2,4,8,16,32", &batches, err));
    if (o->lengths != NULL || o->prompts != NULL) {
        TRY(demo_read_wholes(o, NULL, &given, err));
    }
    for (int32_t i = 0; i < given.n; i++) {
        if (given.v[i] > w.max_len) {
            return err_set(err, QUIRE_INVALID, -1, "--lengths: %d is more than the %d of --max-len",
                           (int)given.v[i], (int)w.max_len);
        }
    }
    TABLE(s, "demo wall", o->cli.json, KEY("concurrency", "requests", 8, 0),
          KEY("mean_tokens", "mean tokens", 11, 1), KEY("static_mib", "static MiB", 10, 1),
          KEY("growing_mib", "growing MiB", 11, 1), KEY("growing_peak_mib", "its peak", 9, 1),
          KEY("paged_mib", "paged MiB", 9, 1), KEY("static_wasted", "static wasted %", 15, 2),
          KEY("paged_wasted", "paged wasted %", 14, 2));
    table_begin(&s, "Keys and values of so many sequences at their full length; static: room for the "
                    "longest; growing: one piece each, exactly as long");
    for (int32_t i = 0; i < batches.n; i++) {
        if (batches.v[i] > MAX_CONCURRENCY) {
            return err_set(err, QUIRE_INVALID, -1, "--batch %d: at most %d here", (int)batches.v[i],
                           MAX_CONCURRENCY);
        }
        int32_t *lengths = mem_new((size_t)batches.v[i], sizeof *lengths);
        TRY(mem_check_for(lengths, "the measurement", err));
        draw_lengths(&given, w.max_len, batches.v[i], lengths);
        quire_err e = wall_row(&s, &w, lengths, batches.v[i]);
        mem_free(lengths);
        if (e != QUIRE_OK) {
            return err_set(err, e, -1, "%d sequences: %s", (int)batches.v[i], quire_err_text(e));
        }
    }
    table_note(&s,
               "bytes of %s in 16 bits (%d a token), static length %d, page %d; lengths %s (counted in a "
               "real pool, exact)",
               o->shape != NULL ? o->shape : "a 7B shape", (int)w.token_bytes, (int)w.max_len,
               (int)w.page_tokens,
               given.n > 0 ? "as given" : "drawn with ShareGPT's means, 161 and 338, exponential, seed 2309");
    return QUIRE_OK;
}

/* ---- alloc ---- */

/* Rows until the pool is full; what finds no room is shown with 0 pages. */
static quire_err alloc_rows(const bench_table *s, const demo_numbers *requests, kv_pool *pool,
                            kv_table *tables, int32_t max_len, int32_t page_tokens) {
    int64_t static_free = kv_pool_counts(pool).n_pages, per_static = kv_pages_for(max_len, page_tokens);
    kv_copies none = {0};
    for (int32_t i = 0; i < requests->n; i++) {
        quire_err e = kv_table_append(pool, &tables[i], requests->v[i], page_tokens, &none);
        if (e != QUIRE_OK && e != QUIRE_NO_ROOM) {
            return e;
        }
        bool static_fits = static_free >= per_static;
        static_free -= static_fits ? per_static : 0;
        TABLE_ROW(s, NUM(i + 1), NUM(requests->v[i]), NUM(tables[i].n_pages),
                  NUM(e == QUIRE_OK ? (double)tables[i].n_pages * page_tokens - requests->v[i] : 0),
                  NUM(kv_pool_counts(pool).n_free), NUM(static_fits ? (double)per_static : 0),
                  NUM(static_fits ? (double)max_len - requests->v[i] : 0), NUM(static_free));
    }
    return QUIRE_OK;
}

quire_err demo_alloc(const demo_options *o, quire_error *err) {
    demo_numbers requests;
    int32_t max_len = demo_or(o->max_len, 2048), page_tokens = demo_or(o->page_tokens, 16),
            n_pages = demo_or(o->n_pages, 512);
    TRY(demo_read_wholes(o, "29,1295,500,80,2000,161,7,338", &requests, err));
    kv_pool *pool;
    kv_table tables[FIGURES_MAX_POINTS] = {{0}};
    quire_err e = kv_pool_open(n_pages, &pool);
    if (e != QUIRE_OK) {
        return err_set(err, e, -1, "a pool of %d pages: %s", (int)n_pages, quire_err_text(e));
    }
    TABLE(s, "demo alloc", o->cli.json, KEY("request", "request", 7, 0), KEY("tokens", "tokens", 7, 0),
          KEY("pages", "pages", 6, 0), KEY("unused", "unused slots", 12, 0), KEY("pages_free", "free", 6, 0),
          KEY("static_pages", "static pages", 12, 0), KEY("static_unused", "unused slots", 12, 0),
          KEY("static_free", "free", 6, 0));
    char heading[128];
    snprintf(heading, sizeof heading,
             "A pool of %d pages of %d tokens, %d in all; static: %d tokens for everyone", (int)n_pages,
             (int)page_tokens, (int)(n_pages * page_tokens), (int)max_len);
    table_begin(&s, heading);
    e = alloc_rows(&s, &requests, pool, tables, max_len, page_tokens);
    kv_counts counts = kv_pool_counts(pool);
    table_note(&s, "%d of %d pages held; 0 pages: no room (a real pool and block tables, exact)",
               (int)counts.n_held, (int)counts.n_pages);
    for (int32_t i = 0; i < requests.n; i++) {
        kv_table_deinit(pool, &tables[i]);
    }
    kv_pool_close(pool);
    return e == QUIRE_OK ? e : err_set(err, e, -1, "%s", quire_err_text(e));
}

/* ---- table ---- */

static quire_err pages_text(const kv_table *t, strbuf *out) {
    strbuf_clear(out);
    for (int32_t i = 0; i < t->n_pages; i++) {
        TRY(strbuf_addf(out, "%s%d", i > 0 ? " " : "", (int)t->pages[i].v));
    }
    return QUIRE_OK;
}

static quire_err block_table_row(const bench_table *s, const char *what, const kv_pool *pool,
                                 const kv_table *t, int32_t page_tokens, strbuf *text) {
    int32_t p = t->n_tokens - 1;
    TRY(pages_text(t, text));
    TABLE_ROW(s, TXT(what), NUM(p >= 0 ? p : TABLE_ABSENT), NUM(t->n_tokens), NUM(t->n_pages),
              NUM(p >= 0 ? p % page_tokens : TABLE_ABSENT),
              NUM(p >= 0 ? (double)kv_table_slot(t, p, page_tokens) : TABLE_ABSENT),
              NUM(kv_pool_counts(pool).n_free), TXT(text->n > 0 ? text->p : "none"));
    return QUIRE_OK;
}

/* The prompt at once, then token by token: a row whenever a page fills up or is taken,
 * every row where there are few. */
static quire_err demo_memory_grow(const bench_table *s, kv_pool *pool, kv_table *t, int32_t n_prompt,
                                  int32_t n_more, int32_t page_tokens, strbuf *text) {
    kv_copies none = {0};
    TRY(kv_table_append(pool, t, n_prompt, page_tokens, &none));
    TRY(block_table_row(s, "prompt", pool, t, page_tokens, text));
    for (int32_t i = 0; i < n_more; i++) {
        int32_t before = t->n_pages;
        TRY(kv_table_append(pool, t, 1, page_tokens, &none));
        const char *what = t->n_pages > before              ? "page taken"
                           : t->n_tokens % page_tokens == 0 ? "page full"
                           : i == n_more - 1                ? "last"
                                                            : "token";
        if (n_more <= 16 || strcmp(what, "token") != 0) {
            TRY(block_table_row(s, what, pool, t, page_tokens, text));
        }
    }
    kv_table_clear(pool, t);
    return block_table_row(s, "freed", pool, t, page_tokens, text);
}

quire_err demo_table(const demo_options *o, quire_error *err) {
    demo_numbers prompt, answer;
    int32_t page_tokens = demo_or(o->page_tokens, 16), n_pages = demo_or(o->n_pages, 8),
            n_more = demo_or(o->n_tokens, N_EXTRA);
    if (o->prompts != NULL) { /* its first */
        TRY(demo_answer_prompts(o, n_more, &prompt, &answer, err));
        n_more = answer.v[0];
        n_pages = o->n_pages > 0 ? o->n_pages : (int32_t)kv_pages_for(prompt.v[0] + n_more, page_tokens);
    } else {
        TRY(demo_read_one("--prompt-lengths", o->prompt_lengths, "24", &prompt, err));
    }
    kv_pool *pool;
    quire_err e = kv_pool_open(n_pages, &pool);
    if (e != QUIRE_OK) {
        return err_set(err, e, -1, "a pool of %d pages: %s", (int)n_pages, quire_err_text(e));
    }
    TABLE(s, "demo table", o->cli.json, WORD("event", "", 10), KEY("position", "position", 8, 0),
          KEY("tokens", "tokens", 6, 0), KEY("n_pages", "pages", 5, 0), KEY("offset", "offset", 6, 0),
          KEY("slot", "slot", 5, 0), KEY("pages_free", "free", 4, 0), WORD("pages", "block table", 24));
    char heading[128];
    snprintf(heading, sizeof heading, "A prompt of %d tokens, then %d more; %d pages of %d tokens",
             (int)prompt.v[0], (int)n_more, (int)n_pages, (int)page_tokens);
    table_begin(&s, heading);
    kv_table t = {0};
    strbuf text = {0};
    e = demo_memory_grow(&s, pool, &t, prompt.v[0], n_more, page_tokens, &text);
    if (e == QUIRE_OK) {
        table_note(&s, "slot = page x %d + offset (a real pool and block table, exact)", (int)page_tokens);
    }
    strbuf_deinit(&text);
    kv_table_deinit(pool, &t);
    kv_pool_close(pool);
    return e == QUIRE_OK ? e
                         : err_set(err, e, -1, "%d tokens in %d pages of %d: %s", (int)(prompt.v[0] + n_more),
                                   (int)n_pages, (int)page_tokens, quire_err_text(e));
}
