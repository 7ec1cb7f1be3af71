#include "core/batch.h"

#include <assert.h>

int32_t batch_plan_rows(const batch_seq *s, const attn_item *from, int32_t tile_rows, attn_item *items,
                        int32_t max_items) {
    assert(tile_rows > 0);
    int32_t n = 0, position0 = s->n_tokens - s->n_rows; /* of its first row */
    for (int32_t row = 0; row < s->n_rows; row += tile_rows) {
        if (n == max_items) {
            return -1;
        }
        int32_t n_rows = s->n_rows - row < tile_rows ? s->n_rows - row : tile_rows;
        /* position that one of them sees */
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
    int64_t n = 0;
    for (int32_t i = 0; i < b->n_work; i++) {
        const attn_item *item = &b->work[i];
        if (i > 0 && item[-1].seq == item->seq && item[-1].chunk0 == item->chunk0) {
            continue; /* more rows over the same positions */
        }
        n += item->partial == ATTN_CARRY ? item->n_chunks * ATTN_CHUNK
                                         : b->seqs[item->seq].n_tokens - item->chunk0 * ATTN_CHUNK;
    }
    return n;
}
