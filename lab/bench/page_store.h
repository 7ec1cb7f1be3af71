/* Two pools with the same operations, to be measured side by side: that of src/kv, and a
 * plain stack of pages behind one mutex. Any thread may use either; a table belongs to
 * one thread. */
#ifndef LAB_BENCH_PAGE_STORE_H
#define LAB_BENCH_PAGE_STORE_H

#include "kv/table.h"

typedef enum page_store_kind { PAGE_STORE_POOL, PAGE_STORE_MUTEX, PAGE_STORE_N_KINDS } page_store_kind;

typedef struct page_store page_store;

/* n_pages free pages among as many held ones, as after long use: which are free, and in
 * which order they became free, is drawn from seed. NO_MEMORY; INVALID: no pool has so
 * many. */
quire_err page_store_open(page_store_kind kind, int32_t n_pages, uint64_t seed, page_store **out);
void page_store_close(page_store *s);

/* As kv_pool_reserve, kv_pool_release_all, kv_table_append of one page's tokens,
 * kv_table_fork and kv_table_clear. The tables have room. */
quire_err page_store_reserve(page_store *s, int32_t n, page_id *ids);
void page_store_release(page_store *s, const page_id *ids, int32_t n);
quire_err page_store_append_page(page_store *s, kv_table *t);
quire_err page_store_fork(page_store *s, const kv_table *from, kv_table *to);
void page_store_clear(page_store *s, kv_table *t);

/* Whether all pages are free. */
bool page_store_is_whole(const page_store *s);

#endif
