/* The audit of a whole cache: what the pool counts is what the block tables hold (docs/design.md, Pages). */
#ifndef KV_CHECK_H
#define KV_CHECK_H

#include "kv/table.h"

/* Proves kv_pool_check's invariant, and that every page's count equals the number of entries in the tables, plus its appearances in others
 * (holders that have no table; may be NULL), that hold it. QUIRE_INTERNAL and the first page that is wrong otherwise; QUIRE_NO_MEMORY.
 * Allocates only for pools of more than 4,096 pages. The engine thread; no other thread may be inside the pool. O(pages + entries). */
quire_err kv_check(const kv_pool *pool, const kv_table *const *tables, int32_t n_tables, const page_id *others, int32_t n_others,
                   quire_error *err);

#endif
