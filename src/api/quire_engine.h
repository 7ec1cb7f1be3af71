/* struct quire_engine: the parts of a running engine, and the state that turns texts into
 * requests. Immutable after opening, except for counters. */
#ifndef API_QUIRE_ENGINE_H
#define API_QUIRE_ENGINE_H

#include "setup/engine_parts.h"
#include "stream/stream_engine.h"

struct quire_engine {
    engine_parts parts;
    request_defaults defaults;         /* owned; streams.context points to it */
    attn_mods *mods;                   /* owned; streams.context points to it */
    uint8_t thought_key[SHA256_BYTES]; /* owned; streams.context points to it */
    stream_engine streams;
};

/* Like quire_engine_open, with mechanisms switched off; for lab/. beside: the host of
 * quire_engine_open_beside, or NULL. */
quire_err engine_open_ablated(const quire_options *o, const engine_ablations *ablations,
                              const quire_engine *beside, quire_engine **out, quire_error *err);

#endif
