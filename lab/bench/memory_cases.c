#include "lab/bench/memory_cases.h"

#include <string.h>

#include "base/mem.h"
#include "kv/audit.h"
#include "kv/kv_seq.h"

enum { MAX_SEQS = 16, MAX_NAMESPACES = 1024, FIRST_CAPACITY = 16 };

/* Each sequence grows from `first` to `last` tokens; if turn is not 0, its request ends
 * after every `turn` tokens and is sent again. */
static const struct scenario {
    const char *name;
    int32_t n_seqs, last, step; /* sequence i ends at last + i * step */
    int32_t first, turn;
} scenarios[MEMORY_N_SCENARIOS] = {
    [MEMORY_BATCH] = {"batch", 16, 500, 500, 0, 0},
    [MEMORY_LONG] = {"long", 1, 100000, 0, 0, 0},
    [MEMORY_CHAT] = {"chat", 1, 32000, 0, 1000, 200},
};

/* One sequence, in the case's way of storage. */
typedef struct kept {
    int32_t *tokens; /* [last] the sequence's tokens */
    int32_t n, last;
    int32_t *buffer; /* static, contiguous: [cap] its copy */
    int32_t cap;
    kv_seq seq; /* paged */
} kept;

typedef struct store {
    const memory_case *c;
    kv_layout layout;
    int64_t token_bytes;
    kept seqs[MAX_SEQS];
    int32_t n_seqs;
    int64_t capacity; /* static, contiguous: total capacity of buffers in tokens */
    kv_cache kv;
    kv_copies copies;
    memory_result result;
    int64_t n_live;
} store;

const char *memory_scenario_name(memory_scenario s) {
    return scenarios[s].name;
}

int32_t memory_longest(memory_scenario s) {
    return scenarios[s].last + (scenarios[s].n_seqs - 1) * scenarios[s].step;
}

/* ---- static and contiguous ---- */

static int64_t taken(const store *st) {
    if (st->c->method != MEMORY_PAGED) {
        return st->capacity * st->token_bytes;
    }
    kv_counts counts = kv_pool_counts(st->kv.pool);
    return (counts.n_held + counts.n_cached) * st->layout.page_bytes;
}

static void note_peak(store *st) {
    int64_t now = taken(st);
    st->result.peak_bytes = now > st->result.peak_bytes ? now : st->result.peak_bytes;
}

/* Allocates a larger buffer beside the old one, copies the tokens, frees the old one. */
static quire_err grow_buffer(store *st, kept *k, int32_t cap) {
    int32_t *larger = mem_new((size_t)cap, sizeof *larger);
    if (larger == NULL) {
        return QUIRE_NO_MEMORY;
    }
    st->capacity += cap;
    note_peak(st);
    if (k->n > 0) {
        memcpy(larger, k->buffer, (size_t)k->n * sizeof *larger);
        st->result.copied_bytes += k->n * st->token_bytes;
    }
    mem_free(k->buffer);
    st->capacity -= k->cap;
    k->buffer = larger;
    k->cap = cap;
    return QUIRE_OK;
}

static quire_err append_to_buffer(store *st, kept *k, int32_t n) {
    if (k->n + n > k->cap) {
        if (st->c->method == MEMORY_STATIC && k->cap > 0) {
            return QUIRE_INVALID;
        }
        int64_t cap = st->c->method == MEMORY_STATIC ? st->c->parameter
                      : k->cap > 0                   ? k->cap
                                                     : FIRST_CAPACITY;
        while (st->c->method == MEMORY_CONTIGUOUS && cap < k->n + n) {
            cap = cap * st->c->parameter / 100;
        }
        if (cap < k->n + n || cap > INT32_MAX) {
            return QUIRE_INVALID;
        }
        TRY(grow_buffer(st, k, (int32_t)cap));
    }
    memcpy(k->buffer + k->n, k->tokens + k->n, (size_t)n * sizeof *k->buffer);
    return QUIRE_OK;
}

/* ---- paged ---- */

static quire_err open_pages(store *st) {
    int64_t n_pages = 1; /* a chat's next turn copies its part-filled page */
    for (int32_t i = 0; i < st->n_seqs; i++) {
        n_pages += kv_pages_for(st->seqs[i].last, st->layout.page_tokens);
    }
    kv_cache_options o = kv_cache_options_of(&st->layout, (int32_t)n_pages);
    o.max_namespaces = MAX_NAMESPACES;
    o.seed = 1;
    TRY(kv_cache_open(&o, &st->kv));
    st->copies.pairs = mem_new(1, sizeof *st->copies.pairs);
    st->copies.cap = 1;
    for (int32_t i = 0; i < st->n_seqs; i++) {
        TRY(kv_seq_init(&st->seqs[i].seq, 1, 0));
        TRY(kv_seq_open(&st->kv, &st->seqs[i].seq, NULL, 0, "", 0, NULL, 0));
    }
    return st->copies.pairs != NULL ? QUIRE_OK : QUIRE_NO_MEMORY;
}

static quire_err append_to_pages(store *st, kept *k, int32_t n) {
    st->copies.n = 0;
    TRY(kv_seq_reserve(&st->kv, &k->seq, n, &st->copies));
    st->result.copied_bytes += st->copies.n * st->layout.page_bytes;
    note_peak(st);
    kv_seq_advance(&k->seq, n);
    kv_seq_publish(&st->kv, &k->seq, k->tokens);
    return QUIRE_OK;
}

/* Ends the request and sends the next one with its tokens; what is not found would have
 * to be recomputed. */
static quire_err next_turn(store *st, kept *k) {
    kv_seq_release(&st->kv, &k->seq, k->tokens, KV_KEEP);
    TRY(kv_seq_admit(&st->kv, &k->seq, k->tokens, k->n));
    return k->seq.n_computed == k->n ? QUIRE_OK : QUIRE_INTERNAL;
}

/* ---- the run ---- */

static quire_err open_store(store *st) {
    const struct scenario *s = &scenarios[st->c->scenario];
    st->n_seqs = s->n_seqs;
    for (int32_t i = 0; i < s->n_seqs; i++) {
        kept *k = &st->seqs[i];
        k->last = s->last + i * s->step;
        k->tokens = mem_new((size_t)k->last, sizeof *k->tokens);
        if (k->tokens == NULL) {
            return QUIRE_NO_MEMORY;
        }
        for (int32_t p = 0; p < k->last; p++) {
            k->tokens[p] = i << 20 | p; /* no two prompts begin with the same token */
        }
    }
    return st->c->method == MEMORY_PAGED ? open_pages(st) : QUIRE_OK;
}

static void close_store(store *st) {
    for (int32_t i = 0; i < st->n_seqs; i++) {
        kept *k = &st->seqs[i];
        kv_seq_release(&st->kv, &k->seq, k->tokens, KV_DROP);
        kv_seq_close(&st->kv, &k->seq);
        kv_seq_deinit(&k->seq);
        mem_free(k->tokens);
        mem_free(k->buffer);
    }
    kv_cache_close(&st->kv);
    mem_free(st->copies.pairs);
}

static quire_err memory_cases_append(store *st, kept *k, int32_t n) {
    TRY(st->c->method == MEMORY_PAGED ? append_to_pages(st, k, n) : append_to_buffer(st, k, n));
    k->n += n;
    st->n_live += n;
    note_peak(st);
    return QUIRE_OK;
}

/* Grows all sequences side by side, one token each in turn, until all are complete. */
static quire_err memory_cases_fill(store *st) {
    const struct scenario *s = &scenarios[st->c->scenario];
    for (bool more = true; more;) {
        more = false;
        for (int32_t i = 0; i < st->n_seqs; i++) {
            kept *k = &st->seqs[i];
            if (k->n == k->last) {
                continue;
            }
            if (st->c->method == MEMORY_PAGED && s->turn > 0 && k->n >= s->first &&
                (k->n - s->first) % s->turn == 0) {
                TRY(next_turn(st, k));
            }
            TRY(memory_cases_append(st, k, k->n < s->first ? s->first - k->n : 1));
            more = true;
        }
    }
    return QUIRE_OK;
}

/* Checks that nothing was lost: every buffer has its tokens, every page is accounted for,
 * and the pool's count matches the audit. */
static quire_err memory_cases_check(const store *st, quire_error *err) {
    const kv_table *tables[MAX_SEQS];
    for (int32_t i = 0; i < st->n_seqs; i++) {
        const kept *k = &st->seqs[i];
        (void)kv_seq_list_tables(&k->seq, &tables[i]);
        if (k->buffer != NULL && memcmp(k->buffer, k->tokens, (size_t)k->n * sizeof *k->tokens) != 0) {
            return err_set(err, QUIRE_INTERNAL, -1, "a buffer lost tokens when it grew");
        }
    }
    if (st->c->method != MEMORY_PAGED) {
        return QUIRE_OK;
    }
    TRY(kv_cache_check(&st->kv, tables, st->n_seqs, err));
    kv_audit_shape shape;
    kv_audit_shape_init(&st->layout, &shape);
    kv_audit_page *scratch = mem_new((size_t)kv_pool_counts(st->kv.pool).n_pages, sizeof *scratch);
    TRY(mem_check_for(scratch, "the audit", err));
    kv_audit a = kv_audit_all(&shape, st->kv.pool, tables, st->n_seqs, scratch);
    mem_free(scratch);
    if (a.live_slots != st->n_live || a.reserved_bytes + a.cached_bytes != taken(st)) {
        return err_set(err, QUIRE_INTERNAL, -1, "the audit finds %lld tokens of %lld",
                       (long long)a.live_slots, (long long)st->n_live);
    }
    return QUIRE_OK;
}

static void memory_cases_fill_result(store *st) {
    memory_result *r = &st->result;
    r->live_tokens = st->n_live;
    r->minimum_bytes = st->n_live * st->token_bytes;
    r->end_bytes = taken(st);
    if (st->c->method == MEMORY_PAGED) {
        r->n_pages = r->peak_bytes / st->layout.page_bytes;
        r->metadata_bytes = kv_pool_bytes(st->kv.pool) + kv_index_bytes(st->kv.index);
        for (int32_t i = 0; i < st->n_seqs; i++) {
            const kv_seq *seq = &st->seqs[i].seq;
            r->metadata_bytes += seq->tables[0].cap_pages * (int64_t)sizeof(page_id) +
                                 (int64_t)(sizeof(kv_table) + sizeof(kv_path));
        }
    }
}

quire_err memory_run(const memory_case *c, const model_desc *shape, dtype type, memory_result *out,
                     quire_error *err) {
    store st = {.c = c};
    TRY(kv_layout_init(shape, kv_both(type), c->method == MEMORY_PAGED ? c->parameter : 1, &st.layout, err));
    if (st.layout.n_groups != 1) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "the scenarios are for models whose layers are all alike");
    }
    if (c->method == MEMORY_STATIC && c->parameter < memory_longest(c->scenario)) {
        return err_set(err, QUIRE_INVALID, -1, "sequences of %d tokens do not fit in %d",
                       (int)memory_longest(c->scenario), (int)c->parameter);
    }
    st.token_bytes = kv_layout_token_bytes(&st.layout);
    quire_err e = open_store(&st);
    if (e != QUIRE_OK || (e = memory_cases_fill(&st)) != QUIRE_OK) {
        err_set(err, e, -1, "%s: %s", memory_scenario_name(c->scenario), quire_err_text(e));
    } else {
        e = memory_cases_check(&st, err);
        memory_cases_fill_result(&st);
        *out = st.result;
    }
    close_store(&st);
    return e;
}
