/* Keys and values without paging: each sequence has one piece of memory per cache, with
 * room for the longest sequence from the start. It is the baseline for the paged kernel.
 *
 * The arithmetic is the engine's own kernel (attention_tile), so times differ only by
 * memory access, and logits have the same bits (which tests check). Replaces two ops of a
 * CPU backend while it is attached. Owner: the backend's thread. */
#ifndef LAB_BENCH_BASELINE_KV_H
#define LAB_BENCH_BASELINE_KV_H

#include "backend/backend.h"

typedef struct baseline_kv baseline_kv;

/* Attaches to b, whose step_open was called; batches have at most max_seqs sequences,
 * each of at most max_len tokens, and sequence i of a batch is always the same one. Rows
 * have no slots. QUIRE_UNSUPPORTED for int8, latents and states. */
quire_err baseline_kv_attach(backend *b, int32_t max_seqs, int32_t max_len, baseline_kv **out);
/* Restores the backend's own ops. NULL does nothing. */
void baseline_kv_detach(baseline_kv *k);
/* Forgets all sequences. */
void baseline_kv_clear(baseline_kv *k);
/* QUIRE_INVALID after a sequence did not continue where it was. */
quire_err baseline_kv_error(const baseline_kv *k);

#endif
