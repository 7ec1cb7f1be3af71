/* The state of a pool as JSON: of the engine's and of a sandbox's alike, so that one page draws both.
 *
 *   {"page_tokens","groups","counts":{..},"shown":{..},"seqs":[{"id","tokens","pages","state"}],
 *    "pages":[[page, count, entry, holder, ..]],             those that are not free; holders are ids of seqs, the first few
 *    "tree":[{"node","above","space","tokens","pins","entries":[[entry, page],..],"hash","text"}],  above: null at the start of a prefix
 *    "events":{"last","lost","list":[{"n","kind","group","tokens","hash","parent"}]}}
 *
 * Texts are written for the operator only. */
#ifndef SERVER_POOL_JSON_H
#define SERVER_POOL_JSON_H

#include "quire_kv.h"
#include "server/json_out.h"

/* Writes the text of n tokens as a JSON string. */
typedef struct pool_text {
    void (*write)(const void *context, const int32_t *tokens, int32_t n, json_out *o);
    const void *context;
} pool_text;

/* The members without braces, but for events. text NULL: none is shown. */
void pool_json_state(const quire_kv_view *v, const pool_text *text, json_out *o);
/* "events":{..}: those behind number `after`, of the ones that v has. */
void pool_json_events(const quire_kv_view *v, uint64_t after, json_out *o);
/* {"page","count","entry","holders":[..],"tokens":[..],"text"}: page v->page, which is shown. */
void pool_json_page(const quire_kv_view *v, const pool_text *text, json_out *o);

#endif
