/* The public prefixes of an engine's options, as tokens. */
#ifndef SETUP_PREFIXES_H
#define SETUP_PREFIXES_H

#include "engine/engine.h"
#include "quire.h"
#include "text/tokenizer.h"

typedef struct prefix_list {
    token_list *ids;     /* [n] mem_new'd */
    engine_prefix *list; /* [n] the same, for the engine */
    int32_t n;
} prefix_list;

/* Tokenises and checks them. t may be NULL, then texts are UNSUPPORTED. INVALID for a prefix shorter than a page, since only whole pages
 * are shared, and for ids outside the vocabulary. Free *out with prefixes_free, also after a failure. */
quire_err prefixes_read(const quire_options *o, const tokenizer *t, int32_t n_vocab, prefix_list *out, quire_error *err);
void prefixes_free(prefix_list *l);

#endif
