/* Parses `--speculative-config`, vLLM's JSON object, into the engine's options, and opens the draft model. */
#ifndef SETUP_SPECULATION_H
#define SETUP_SPECULATION_H

#include "setup/loaded_model.h"
#include "spec/draft.h"

/* The parsed object and the open draft model. */
typedef struct speculation {
    draft_options draft;
    char *name;         /* mem_new'd: the draft model's name for DRAFT_METHOD_MODEL, else NULL */
    loaded_model model; /* which speculation_open opens */
} speculation;

/* Reads o->speculative_config (NULL: no speculation). Members: docs/speculation.md. QUIRE_INVALID names the wrong or
 * unknown member. Close *out with speculation_close in any case. */
quire_err speculation_read(const quire_options *o, speculation *out, quire_error *err);
/* Opens the draft model, if there is one, with pages for n_tokens tokens, at most what all sequences can have. max_len: tokens of the
 * target's sequences. The draft model has its own numeric choices ("auto"): they change the guesses, not the output. */
quire_err speculation_open(speculation *s, const quire_options *o, int64_t n_tokens, int32_t max_len, quire_error *err);
/* Closes the draft model. Call it after the engine that used it was closed. */
void speculation_close(speculation *s);

#endif
