#include "core/batch.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

/* Like batch_plan_work for the single sequence from->seq. Its rows start at from->row0,
 * its chunks at from->chunk0. */
static int32_t batch_plan_rows(const batch_seq *s, const attn_item *from, int32_t tile_rows, attn_item *items,
                               int32_t max_items) {
    assert(tile_rows > 0);
    int32_t n = 0, position0 = s->n_tokens - s->n_rows; /* position of its first row */
    for (int32_t row = 0; row < s->n_rows; row += tile_rows) {
        if (n == max_items) {
            return -1;
        }
        int32_t n_rows = s->n_rows - row < tile_rows ? s->n_rows - row : tile_rows;
        /* last position that any of these rows attends to */
        int32_t last = s->two_sided ? s->n_tokens - 1 : position0 + row + n_rows - 1;
        items[n++] = (attn_item){.seq = from->seq,
                                 .row0 = from->row0 + row,
                                 .n_rows = n_rows,
                                 .chunk0 = from->chunk0,
                                 .n_chunks = last / ATTN_CHUNK + 1 - from->chunk0,
                                 .partial = ATTN_WHOLE};
    }
    return n;
}

int32_t batch_plan_work(const batch_seq *seqs, int32_t n_seqs, int32_t tile_rows, attn_item *items,
                        int32_t max_items) {
    assert(n_seqs >= 0 && tile_rows > 0);
    int32_t n = 0;
    for (int32_t s = 0; s < n_seqs; s++) {
        const attn_item from = {.seq = s, .row0 = seqs[s].row0};
        int32_t n_more = batch_plan_rows(&seqs[s], &from, tile_rows, items + n, max_items - n);
        if (n_more < 0) {
            return -1;
        }
        n += n_more;
    }
    return n;
}

int64_t batch_read_tokens(const batch *b) {
    assert(b != NULL);
    int64_t n = 0;
    for (int32_t i = 0; i < b->n_work; i++) {
        const attn_item *item = &b->work[i];
        if (i > 0 && item[-1].seq == item->seq && item[-1].chunk0 == item->chunk0) {
            continue; /* later rows attend to the same positions */
        }
        n += item->partial == ATTN_CARRY ? item->n_chunks * ATTN_CHUNK
                                         : b->seqs[item->seq].n_tokens - item->chunk0 * ATTN_CHUNK;
    }
    return n;
}

/* ---- cascade attention ---- */

#define SHARED_ROWS 128 /* most rows of a shared item, so that their states stay in the cache */

quire_err cascade_open(const kv_layout *layout, const cascade_limits *limits, cascade *c) {
    assert(limits != NULL);
    int32_t max_rows = limits->max_rows, max_seqs = limits->max_seqs;
    assert(limits->tile_rows > 0 && limits->n_workers > 0);
    int32_t n_heads = kv_layout_most_heads(layout);
    n_heads = n_heads > 0 ? n_heads : 1; /* a model with states only; nothing reads its items */
    *c = (cascade){
        .layout = layout, .limits = *limits, .n_pieces = (limits->n_workers + n_heads - 1) / n_heads};
    /* Bound on the items: a sequence's own rows, the pieces of each inner node of the
     * tree, and those added per level by SHARED_ROWS. */
    c->max_items = max_rows + max_seqs * c->n_pieces + BATCH_MAX_LEVELS * (max_rows / SHARED_ROWS);
    c->items = mem_new((size_t)c->max_items, sizeof *c->items);
    c->rows = mem_new((size_t)max_rows, sizeof *c->rows);
    c->order = mem_new((size_t)max_seqs, sizeof *c->order);
    c->before = mem_new((size_t)max_seqs, sizeof *c->before);
    c->common = mem_new((size_t)max_seqs, sizeof *c->common);
    c->done = mem_new((size_t)max_seqs, sizeof *c->done);
    if (c->items == NULL || c->rows == NULL || c->order == NULL || c->before == NULL || c->common == NULL ||
        c->done == NULL) {
        cascade_close(c);
        return QUIRE_NO_MEMORY;
    }
    return QUIRE_OK;
}

void cascade_close(cascade *c) {
    mem_free(c->items);
    mem_free(c->rows);
    mem_free(c->order);
    mem_free(c->before);
    mem_free(c->common);
    mem_free(c->done);
    *c = (cascade){0};
}

/* The number of chunks that may be shared: those entirely before the sequence's rows,
 * which no row of this step writes. */
static int32_t whole_chunks(const batch_seq *s) {
    return (s->n_tokens - s->n_rows) / ATTN_CHUNK;
}

/* The number of leading whole chunks that a and b have in the same pages in every group.
 * *sign: their order; below 0 if a comes first. */
static int32_t cascade_compare(const kv_layout *l, const batch_seq *a, const batch_seq *b, int *sign) {
    int32_t n_a = whole_chunks(a), n_b = whole_chunks(b), n_pages = ATTN_CHUNK / l->page_tokens;
    size_t n_bytes = (size_t)n_pages * sizeof *a->pages[0];
    for (int32_t chunk = 0; chunk < n_a && chunk < n_b; chunk++) {
        for (int32_t g = 0; g < l->n_groups; g++) {
            if (l->groups[g].kind == LAYER_STATE) {
                continue; /* states are not stored by position */
            }
            int32_t at = chunk * n_pages;
            /* most tables differ here already */
            int32_t first_a = a->pages[g][at], first_b = b->pages[g][at];
            *sign = first_a != first_b ? (first_a < first_b ? -1 : 1)
                                       : memcmp(a->pages[g] + at, b->pages[g] + at, n_bytes);
            if (*sign != 0) {
                return chunk;
            }
        }
    }
    *sign = n_a - n_b;
    return n_a < n_b ? n_a : n_b;
}

/* Inserts sequence s into `order`, whose first n entries are sorted. */
static void cascade_insert(cascade *c, const batch *b, int32_t s, int32_t n) {
    int32_t low = 0, high = n, sign;
    while (low < high) {
        int32_t middle = (low + high) / 2;
        (void)cascade_compare(c->layout, &b->seqs[s], &b->seqs[c->order[middle]], &sign);
        low = sign < 0 ? low : middle + 1;
        high = sign < 0 ? middle : high;
    }
    memmove(c->order + low + 1, c->order + low, sizeof *c->order * (size_t)(n - low));
    c->order[low] = s;
}

/* Fills order and common. Starts from the previous order, which is still right in most
 * steps; then each sequence is compared with one other only. Sequences too short to share
 * come last. */
static void sort_sequences(cascade *c, const batch *b) {
    bool as_before = c->n_before == b->n_seqs, moved = false;
    int32_t n = 0, n_short = 0, sign;
    for (int32_t i = 0; i < b->n_seqs; i++) {
        int32_t s = as_before ? c->before[i] : i;
        if (whole_chunks(&b->seqs[s]) == 0) {
            c->done[n_short++] = s; /* done[] is scratch until then */
            continue;
        }
        c->common[n] = n > 0 ? cascade_compare(c->layout, &b->seqs[s], &b->seqs[c->order[n - 1]], &sign) : 0;
        if (n == 0 || sign >= 0) {
            c->order[n] = s;
        } else {
            cascade_insert(c, b, s, n);
            moved = true;
        }
        n++;
    }
    for (int32_t i = 1; i < n && moved; i++) {
        c->common[i] = cascade_compare(c->layout, &b->seqs[c->order[i]], &b->seqs[c->order[i - 1]], &sign);
    }
    for (int32_t i = 0; i < n_short; i++) {
        c->order[n + i] = c->done[i];
        c->common[n + i] = 0;
    }
    memcpy(c->before, c->order, sizeof *c->before * (size_t)b->n_seqs);
    c->n_before = b->n_seqs;
}

static void add_item(cascade *c, batch *b, const attn_item *item) {
    assert(b->n_work < c->max_items);
    c->items[b->n_work++] = *item;
}

/* Adds the items of the tree's next level, for each prefix that continues. False if there
 * is no such level. */
static bool add_level(cascade *c, batch *b) {
    int32_t n_before = b->n_work, row0 = 0;
    for (int32_t i = 0, end; i < b->n_seqs; i = end) {
        int32_t chunks = INT32_MAX, n_rows = b->seqs[c->order[i]].n_rows;
        /* The next sequence belongs to the same node if it shares more than is done. */
        for (end = i + 1; end < b->n_seqs && c->common[end] > c->done[i]; end++) {
            chunks = c->common[end] < chunks ? c->common[end] : chunks;
            n_rows += b->seqs[c->order[end]].n_rows;
        }
        int32_t piece = (n_rows + c->n_pieces - 1) / c->n_pieces;
        piece = piece < SHARED_ROWS ? piece : SHARED_ROWS;
        for (int32_t row = 0; end > i + 1 && row < n_rows; row += piece) {
            add_item(c, b,
                     &(attn_item){.seq = c->order[i],
                                  .row0 = row0 + row,
                                  .n_rows = n_rows - row < piece ? n_rows - row : piece,
                                  .chunk0 = c->done[i],
                                  .n_chunks = chunks - c->done[i],
                                  .partial = ATTN_CARRY});
        }
        for (int32_t k = i; end > i + 1 && k < end; k++) {
            c->done[k] = chunks;
        }
        row0 += n_rows;
    }
    return b->n_work > n_before;
}

void cascade_plan(cascade *c, batch *b) {
    assert(c != NULL && b != NULL);
    int32_t n_rows = 0;
    assert(b->n_seqs <= c->limits.max_seqs && b->n_rows <= c->limits.max_rows);
    sort_sequences(c, b);
    for (int32_t i = 0; i < b->n_seqs; i++) {
        const batch_seq *s = &b->seqs[c->order[i]];
        for (int32_t row = 0; row < s->n_rows; row++) {
            c->rows[n_rows++] = s->row0 + row;
        }
        c->done[i] = 0;
    }
    b->work = c->items;
    b->work_rows = c->rows;
    b->n_work = b->n_levels = 0;
    while (b->n_levels < BATCH_MAX_LEVELS && add_level(c, b)) {
        b->level_ends[b->n_levels++] = b->n_work;
    }
    n_rows = 0;
    for (int32_t i = 0; i < b->n_seqs; i++) {
        attn_item rest = {
            .seq = c->order[i], .row0 = n_rows, .n_rows = b->seqs[c->order[i]].n_rows, .chunk0 = c->done[i]};
        b->n_work += batch_plan_rows(&b->seqs[rest.seq], &rest, c->limits.tile_rows, c->items + b->n_work,
                                     c->max_items - b->n_work);
        n_rows += rest.n_rows;
    }
}
