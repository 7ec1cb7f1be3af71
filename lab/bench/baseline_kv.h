/* Keys and values without paging: each sequence has one contiguous piece of memory per
 * cache, reserved for the longest sequence from the start. The baseline for the paged
 * kernel.
 *
 * The arithmetic is the engine's own kernel (attention_tile), so that times differ only
 * by memory access, and logits have the same bits (tested). Replaces two ops of a CPU
 * backend while attached. Owner: the backend's thread. */
#ifndef LAB_BENCH_BASELINE_KV_H
#define LAB_BENCH_BASELINE_KV_H

#include "backend/backend.h"

typedef struct baseline_kv baseline_kv;

/* Attaches to b after its step_open. Batches have at most max_seqs sequences of at most
 * max_len tokens each, and sequence i of a batch is always the same one. Rows have no
 * slots. QUIRE_UNSUPPORTED: int8, latents and states. */
quire_err baseline_kv_attach(backend *b, int32_t max_seqs, int32_t max_len, baseline_kv **out);
/* Restores the backend's own ops. NULL is allowed. */
void baseline_kv_detach(baseline_kv *k);
/* Removes all sequences. */
void baseline_kv_clear(baseline_kv *k);
/* QUIRE_INVALID: a sequence did not continue where it had ended. */
quire_err baseline_kv_error(const baseline_kv *k);

#endif
