/* Keys and values without paging, or paged but brought together before attention reads
 * them: what the paged kernel is compared with.
 *
 *   growing    each sequence has one piece a cache; tokens more are a new piece with the
 *              old one copied into it, as when tensors are concatenated
 *   gathered   pages; for each sequence and layer they are copied into one piece, over
 *              which attention then runs; sequence after sequence
 *   padded     the same in one pass: all sequences' pages into one array as long as the
 *              longest for each, attention over all of it, what is computed for padding
 *              thrown away
 *   reserved   as growing, with room for the longest sequence from the start, so that
 *              nothing is copied
 *
 * The arithmetic is the engine's own kernel (attention_tile), so times differ by memory
 * alone, and logits are the same bits (tests hold it to that). Takes the place of two ops
 * of a CPU backend while it is attached. Owner: the backend's thread. */
#ifndef LAB_BENCH_BASELINE_KV_H
#define LAB_BENCH_BASELINE_KV_H

#include "backend/backend.h"

typedef enum baseline_kv_way {
    BASELINE_GROWING,
    BASELINE_GATHERED,
    BASELINE_PADDED,
    BASELINE_RESERVED
} baseline_kv_way;

typedef struct baseline_kv baseline_kv;

/* Attaches to b, whose step_open was called; batches have at most max_seqs sequences,
 * each of at most max_len tokens, and sequence i of a batch is always the same one. Rows
 * of growing and reserved have no slots. QUIRE_UNSUPPORTED for int8, latents and states,
 * and to gather where layers differ or pages have fewer than 16 tokens. */
quire_err baseline_kv_attach(backend *b, baseline_kv_way way, int32_t max_seqs, int32_t max_len,
                             baseline_kv **out);
/* Gives the backend its own ops back. NULL does nothing. */
void baseline_kv_detach(baseline_kv *k);
/* Forgets all sequences (growing, reserved). */
void baseline_kv_clear(baseline_kv *k);
/* Bytes copied since attach to keep keys and values in one piece; bytes of the pieces
 * now; QUIRE_NO_MEMORY after a failed allocation, QUIRE_INVALID after a sequence did
 * not continue where it was. */
int64_t baseline_kv_copied_bytes(const baseline_kv *k);
int64_t baseline_kv_bytes(const baseline_kv *k);
quire_err baseline_kv_error(const baseline_kv *k);

#endif
