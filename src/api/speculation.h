/* `--speculative-config`: vLLM's JSON object, as the engine's options. */
#ifndef API_SPECULATION_H
#define API_SPECULATION_H

#include "core/kv_layout.h"
#include "engine/draft.h"
#include "quire.h"

/* What the object says that the engine's options do not hold. */
typedef struct speculation {
    draft_options draft;
    char *name;  /* mem_new'd: the draft model's name for DRAFT_METHOD_MODEL, else NULL */
    model *m;    /* which speculation_open opens */
    backend *b;
    kv_layout layout;
} speculation;

/* Reads o->speculative_config (NULL: no speculation) and o->no_jump_forward. Members: docs/speculation.md. QUIRE_INVALID names the member
 * at fault, also one that nobody knows. *out is closed with speculation_close in any case. */
quire_err speculation_read(const quire_options *o, speculation *out, quire_error *err);
/* Opens the draft model, where there is one, and its pages: as many tokens as n_tokens, at most what all sequences can have. max_len: of
 * the target's sequences. Numeric choices are the draft's own ("auto"): they change what is guessed, not what is produced. */
quire_err speculation_open(speculation *s, const quire_options *o, int64_t n_tokens, int32_t max_len, quire_error *err);
/* After the engine that used it was closed. */
void speculation_close(speculation *s);

#endif
