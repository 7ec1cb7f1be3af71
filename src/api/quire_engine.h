/* struct quire_engine: the parts of a running engine, and what turns text into its
 * requests. Immutable after open but for the counters. */
#ifndef API_QUIRE_ENGINE_H
#define API_QUIRE_ENGINE_H

#include <stdatomic.h>

#include "answer/grammar_cache.h"
#include "api/prompt_cache.h"
#include "api/request.h"
#include "api/request_stats.h"
#include "api/text_pool.h"
#include "setup/engine_parts.h"

struct quire_engine {
    engine_parts parts;
    request_defaults defaults; /* of the context */
    request_context context;
    attn_mods *mods;                       /* of the context */
    _Atomic(struct token_texts *) texts;   /* made at first use (beam_stop_matcher.h) */
    _Atomic(struct grammar_vocab *) vocab; /* made at first use (quire_engine_vocab) */
    _Atomic(struct marked_vocab *) marked; /* made at first use (quire_engine_marked) */
    text_pool *text;
    grammar_memory *rule_memory; /* of the states of all rules */
    prompt_cache *prompts;       /* NULL: none */
    grammar_cache *grammars;
    request_stats *requests; /* shared by its threads */
};

/* As quire_engine_open, with mechanisms switched off: for lab/. */
quire_err engine_open_ablated(const quire_options *o, const engine_ablations *ablations, quire_engine **out,
                              quire_error *err);

/* The vocabulary of the engine's grammars, made at first use; borrowed. e has a
 * tokenizer. Any thread. QUIRE_NO_MEMORY. */
quire_err quire_engine_vocab(quire_engine *e, struct grammar_vocab **out);
/* The same for grammars that tell special tokens from text. */
quire_err quire_engine_marked(quire_engine *e, const struct marked_vocab **out);

#endif
