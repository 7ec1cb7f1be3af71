/* `--speculative-config`: vLLM's JSON object, as the engine's options. */
#ifndef API_SPECULATION_H
#define API_SPECULATION_H

#include "engine/draft.h"
#include "quire.h"

/* What the object says that the engine's options do not hold. */
typedef struct speculation {
    draft_options draft;
    char *model; /* mem_new'd: the draft model's name for DRAFT_METHOD_MODEL, else NULL */
} speculation;

/* Reads o->speculative_config (NULL: no speculation) and o->no_jump_forward. Members: docs/speculation.md. QUIRE_INVALID names the member at fault, also one that nobody knows; *out needs no free then. */
quire_err speculation_read(const quire_options *o, speculation *out, quire_error *err);
void speculation_free(speculation *s);

#endif
