#include "kv/check.h"

#include "base/mem.h"

#define SMALL_PAGES 4096

static quire_err check_add_holder(int32_t *holders, int32_t n_pages, page_id id, quire_error *err) {
    if (id.v < 0 || id.v >= n_pages) {
        return err_set(err, QUIRE_INTERNAL, -1, "kv: a block table holds page %d of a pool of %d", id.v,
                       n_pages);
    }
    holders[id.v]++;
    return QUIRE_OK;
}

static quire_err check_holders(const kv_pool *pool, int32_t n_pages, int32_t *holders,
                               const kv_table *const *tables, int32_t n_tables, const page_id *others,
                               int32_t n_others, quire_error *err) {
    for (int32_t t = 0; t < n_tables; t++) {
        for (int32_t i = 0; i < tables[t]->n_pages; i++) {
            if (tables[t]->pages[i].v != PAGE_NONE.v) {
                TRY(check_add_holder(holders, n_pages, tables[t]->pages[i], err));
            }
        }
    }
    for (int32_t i = 0; i < n_others; i++) {
        TRY(check_add_holder(holders, n_pages, others[i], err));
    }
    for (int32_t page = 0; page < n_pages; page++) {
        int32_t count = kv_pool_count(pool, (page_id){page});
        if (count != holders[page]) {
            return err_set(err, QUIRE_INTERNAL, -1, "kv: page %d has count %d, but %d hold it", page, count,
                           holders[page]);
        }
    }
    return QUIRE_OK;
}

quire_err kv_check(const kv_pool *pool, const kv_table *const *tables, int32_t n_tables,
                   const page_id *others, int32_t n_others, quire_error *err) {
    TRY(kv_pool_check(pool, err));
    int32_t n_pages = kv_pool_counts(pool).n_pages;
    int32_t small[SMALL_PAGES] = {0};
    int32_t *holders = n_pages <= SMALL_PAGES ? small : mem_new((size_t)n_pages, sizeof *holders);
    if (holders == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for the audit of %d pages", n_pages);
    }
    quire_err e = check_holders(pool, n_pages, holders, tables, n_tables, others, n_others, err);
    if (holders != small) {
        mem_free(holders);
    }
    return e;
}
