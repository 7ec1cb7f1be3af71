/* The audit of pages after each step of a debug build: checks that the pool's counts equal the running sequences' tables. */
#include <assert.h>

#include "base/log.h"
#include "engine/state.h"
#include "kv/check.h"

#define AUDIT_MAX_PAGES 4096 /* larger pools are not audited: it takes time in proportion */

void engine_audit(const engine *e) {
    if (e->options.n_pages > AUDIT_MAX_PAGES) {
        return;
    }
    int32_t n = 0;
    for (int32_t i = 0; i < e->n_running; i++) {
        for (int32_t g = 0; g < e->running[i]->kv.n_tables; g++) {
            e->step.tables[n++] = &e->running[i]->kv.tables[g];
        }
    }
    quire_error err = {0};
    quire_err r = kv_check(e->kv.pool, e->step.tables, n, NULL, 0, &err);
    if (r == QUIRE_OK && e->kv.index) {
        r = kv_index_check(e->kv.index, &err);
    }
    if (r != QUIRE_OK) {
        log_line(LOG_ERROR, "page audit: %s", err.message);
    }
    assert(r == QUIRE_OK);
}
