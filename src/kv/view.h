/* Fills a quire_kv_view (quire_kv.h): a snapshot of a pool, an index and the sequences
 * over them.
 *
 *   kv_view_begin -> kv_view_seq, for every sequence that holds pages -> kv_view_end
 *
 * Owner: the engine thread, while it fills. Changes nothing and, except for the walk over
 * the tree, allocates nothing. O(pages of the pool + capacity of the view). */
#ifndef KV_VIEW_H
#define KV_VIEW_H

#include "base/str.h"
#include "kv/events.h"
#include "kv/index.h"
#include "quire_kv.h"

/* Fills counts and pages. n_groups: number of groups with pages of tokens. */
void kv_view_begin(quire_kv_view *v, const kv_pool *pool, int32_t page_tokens, int32_t n_groups);
/* Adds a sequence: its number, its tenant's name (truncated to QUIRE_KV_VIEW_OWNER - 1
 * bytes), its state, and the slots of its tokens[0..n_tokens); tables of states follow
 * the others. tokens NULL: shows only tokens that are in the tree. */
void kv_view_seq(quire_kv_view *v, int64_t id, str owner, quire_kv_view_state state, const int32_t *tokens,
                 const kv_table *tables, int32_t n_tables);
/* Adds the tree, and the events after number v->after. ix and events may be NULL: there
 * are none. */
void kv_view_end(quire_kv_view *v, const kv_index *ix, const kv_events *events);

#endif
