/* Snapshots of an engine's pages through quire.h: engine/engine_view.h under the public
 * names. */
#include "api/quire_engine.h"
#include "engine/engine_view.h"

/* A quire_pool_view is an engine_view. */
static engine_view *view_of(quire_pool_view *v) {
    return (engine_view *)(void *)v;
}

quire_err quire_pool_view_open(quire_engine *e, quire_pool_view **out) {
    engine_view *w;
    TRY(engine_view_open(e->parts.core, &w));
    *out = (quire_pool_view *)(void *)w;
    return QUIRE_OK;
}

void quire_pool_view_close(quire_pool_view *v) {
    engine_view_close(view_of(v));
}

int quire_pool_view_fd(const quire_pool_view *v) {
    return engine_view_reader((const engine_view *)(const void *)v)->fd;
}

void quire_pool_view_ask(quire_pool_view *v, int32_t page, uint64_t after) {
    engine_view_ask(view_of(v), page, after);
}

const quire_kv_view *quire_pool_view_get(quire_pool_view *v) {
    return engine_view_get(view_of(v));
}
