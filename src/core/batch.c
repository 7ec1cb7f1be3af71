#include "core/batch.h"

#include <assert.h>

int32_t batch_plan_work(const batch_seq *seqs, int32_t n_seqs, int32_t tile_rows, attn_item *items, int32_t max_items) {
    assert(tile_rows > 0);
    int32_t n = 0;
    for (int32_t s = 0; s < n_seqs; s++) {
        const batch_seq *seq = &seqs[s];
        int32_t position0 = seq->n_tokens - seq->n_rows; /* of its first row */
        for (int32_t row = 0; row < seq->n_rows; row += tile_rows) {
            if (n == max_items) {
                return -1;
            }
            int32_t n_rows = seq->n_rows - row < tile_rows ? seq->n_rows - row : tile_rows;
            int32_t last_position = position0 + row + n_rows - 1;
            items[n++] = (attn_item){.seq = s,
                                     .row0 = seq->row0 + row,
                                     .n_rows = n_rows,
                                     .chunk0 = 0,
                                     .n_chunks = last_position / ATTN_CHUNK + 1,
                                     .partial = -1};
        }
    }
    return n;
}
