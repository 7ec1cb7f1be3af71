/* The audit of pages after each step of a debug build: checks that the pool's counts equal the running sequences' tables. */
#include <assert.h>

#include "base/log.h"
#include "engine/state.h"

#define AUDIT_MAX_PAGES 4096 /* larger pools are not audited: it takes time in proportion */

void engine_audit(const engine *e) {
    if (e->options.n_pages > AUDIT_MAX_PAGES) {
        return;
    }
    int32_t n = 0;
    quire_error err = {0};
    quire_err r = QUIRE_OK;
    for (int32_t i = 0; i < e->sched.n_running; i++) {
        n += kv_seq_list_tables(&running_at(e, i)->task.kv, e->step.tables + n);
        r = r == QUIRE_OK ? kv_seq_check(&e->kv, &running_at(e, i)->task.kv, &err) : r;
    }
    r = r == QUIRE_OK ? kv_cache_check(&e->kv, e->step.tables, n, &err) : r;
    if (r != QUIRE_OK) {
        log_line(LOG_ERROR, "page audit: %s", err.message);
    }
    assert(r == QUIRE_OK);
}
