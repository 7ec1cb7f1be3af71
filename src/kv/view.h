/* Fills a quire_kv_view (quire_kv.h): what a pool, an index and the sequences over them look like in one moment.
 *
 *   kv_view_begin -> kv_view_seq, for every sequence that holds pages -> kv_view_end
 *
 * Owner: the engine thread, for as long as it fills; nothing is changed and, but for the walk over the tree, nothing allocated. Work is
 * bounded: O(pages of the pool) for the counts, and what the view has room for. */
#ifndef KV_VIEW_H
#define KV_VIEW_H

#include "base/str.h"
#include "kv/events.h"
#include "kv/index.h"
#include "quire_kv.h"

/* Counts and pages; n_groups: those that hold tokens. */
void kv_view_begin(quire_kv_view *v, const kv_pool *pool, int32_t page_tokens, int32_t n_groups);
/* One more sequence: its number, its tenant's name (cut to QUIRE_KV_VIEW_OWNER - 1 bytes), what it is doing, and where its
 * tokens[0..n_tokens) lie (tables of states follow the others). */
void kv_view_seq(quire_kv_view *v, int64_t id, str owner, quire_kv_view_state state, const int32_t *tokens, const kv_table *tables,
                 int32_t n_tables);
/* The tree, and the events behind number v->after. ix and events may be NULL: nothing is cached, nobody is told. */
void kv_view_end(quire_kv_view *v, const kv_index *ix, const kv_events *events);

#endif
