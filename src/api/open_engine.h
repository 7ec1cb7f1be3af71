/* quire_engine owns everything of an open model, from file to threads. Immutable after open but for the counters. */
#ifndef API_OPEN_ENGINE_H
#define API_OPEN_ENGINE_H

#include <stdatomic.h>

#include "api/request.h"
#include "api/speculation.h"
#include "api/text_pool.h"
#include "backend/backend.h"
#include "chat/template.h"
#include "engine/engine.h"
#include "kv/tier_record.h"
#include "model/model.h"
#include "text/tokenizer.h"

struct quire_engine {
    quire_info info;
    request_context context;
    request_defaults defaults;  /* of the context */
    quire_error text_error;     /* why there is no tokenizer, when there is none */
    quire_error template_error; /* why the model's own template is not used, when it is not */
    char *model_path;
    char tier_version[KV_VERSION_BYTES + 1]; /* empty: no tier uses it */

    speculation speculation;
    backend *b;
    model *m;
    kv_layout layout;
    engine *core;
    tokenizer *tokenizer; /* NULL: prompts of ids only */
    _Atomic(struct token_texts *) texts; /* made at first use (beam_stop_matcher.h) */
    chat_template *chat;  /* NULL: no chat */
    text_pool *text;
    atomic_llong finished[4]; /* choices ended, by quire_finish - 1 */
};

#endif
