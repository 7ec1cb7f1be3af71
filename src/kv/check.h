/* The check of a whole cache: the pool's reference counts equal the entries of the block
 * tables (docs/design.md, Pages). */
#ifndef KV_CHECK_H
#define KV_CHECK_H

#include "kv/table.h"

/* Checks kv_pool_check's invariant, and that every page's count equals the number of
 * table entries that name it plus its occurrences in `others` (holders without a table;
 * may be NULL). Else QUIRE_INTERNAL and the first wrong page; QUIRE_NO_MEMORY. Allocates
 * only for pools of more than 4,096 pages. The engine thread; no other thread may be
 * inside the pool. O(pages + entries). */
quire_err kv_check(const kv_pool *pool, const kv_table *const *tables, int32_t n_tables,
                   const page_id *others, int32_t n_others, quire_error *err);

#endif
