/* Writes the state of a page pool as JSON, in the same form for the engine and a sandbox,
 * so that one web page draws both.
 *
 *   {"page_tokens","groups","counts":{..},"shown":{..},"seqs":[{"id","tokens","pages","state"}],
 *    "pages":[[page, count, entry, holder, ..]],
 *    "tree":[{"node","above","space","tokens","pins","entries":[[entry, page],..],"hash",
 *             "text"}],
 *    "events":{"last","lost","list":[{"n","kind","group","tokens","hash","parent"}]}}
 *
 * "pages" lists pages that are not free; a page's holders are the ids of the first few
 * seqs that hold it. "above" is null at the start of a prefix.
 *
 * A pool_viewer limits what is shown. Page hashes are chained over tokens, so a client
 * that has them could guess the contents of others' pages. They leave the process only as
 * SHA-256 digests with a random key of the process; equal hashes have equal digests. */
#ifndef SERVER_POOL_JSON_H
#define SERVER_POOL_JSON_H

#include "quire_kv.h"
#include "json/json_out.h"

/* Writes the text of n tokens as a JSON string. */
typedef struct pool_text {
    void (*write)(const void *context, const int32_t *tokens, int32_t n, json_out *o);
    const void *context;
} pool_text;

#define POOL_KEY_BYTES 32

/* What a viewer may see. */
typedef struct pool_viewer {
    const uint8_t *key;    /* [POOL_KEY_BYTES] key of the hashes */
    const pool_text *text; /* writes texts of tokens; NULL: no texts are shown */
    /* not NULL: show only counts and this tenant's sequences, no pages, tree or events */
    const char *owner;
} pool_viewer;

/* Writes the members of the state, without braces and without "events". */
void pool_json_state(const quire_kv_view *v, const pool_viewer *who, json_out *o);
/* Writes "events":{..}, the events of v with a number above `after`. */
void pool_json_events(const quire_kv_view *v, const pool_viewer *who, uint64_t after, json_out *o);
/* Writes v->page as {"page","count","entry","holders":[..],"tokens":[..],"text"}. */
void pool_json_page(const quire_kv_view *v, const pool_text *text, json_out *o);

#endif
