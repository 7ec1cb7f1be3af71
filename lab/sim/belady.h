/* The offline optimum's knowledge: for every page of every request of a trace, which
 * later request asks for it next; told to an index whose policy is KV_EVICT_CALLER, which
 * then evicts what is used last (Belady 1966).
 *
 * A page is known by all tokens up to its end, and a later request asks for it when its
 * prompt begins with them. The page inside which a prompt ends is asked for, too, when a
 * later prompt ends inside it at the same token; other uses of a part of a page are not
 * foreseen. A page's next use is never later than that of a page behind it, so taking
 * leaves first does not stand in the rule's way.
 *
 * Where pages are used whole nothing finds more (tests/lab/sim/test_belady.c searches
 * everything). Otherwise it is a bound as far as what is reused inside pages is little:
 * it is not one where pages are as long as prompts. Requests open at once blur it as
 * well.
 *
 * Owner: one replay. Invariant: between requests, what was said of a cached page lies in
 * the future, or never comes. */
#ifndef LAB_SIM_BELADY_H
#define LAB_SIM_BELADY_H

#include "kv/index.h"
#include "lab/sim/trace.h"

#define BELADY_NEVER INT32_MAX

typedef struct belady {
    const trace *t;
    int32_t page_tokens;
    int64_t *first_page; /* [n_requests] where a request's pages, prompt and answer, begin in next_use */
    int32_t *next_use;   /* [pages of all] by whole pages: number of the request, or BELADY_NEVER */
    /* [n_requests] the same for the page its prompt ends inside, by prompts that end
     * there as well */
    int32_t *tail_use;
    int32_t *tail_page; /* [n_requests] which page that was, */
    /* [n_requests] and, plus 1, the first request whose tail a request was said to use */
    int32_t *first_tail;
    int32_t *next_tail; /* [n_requests] the next such, plus 1 */
    int32_t *said_by;   /* [n_pages of the pool] request that spoke last of a page, plus 1 */
    int64_t n_pages;
} belady;

/* For replays of t on a pool of n_pages; requests that do not fit into it ask for
 * nothing. QUIRE_NO_MEMORY. O(tokens of the trace). Pages are told apart by 64-bit
 * hashes; two that fell together would only blur the order. */
quire_err belady_open(const trace *t, int32_t page_tokens, int32_t n_pages, belady *out);
void belady_close(belady *b);

/* Tells ix about the pages of request `number`, which lie in the table, before they are
 * given back. Requests end in order of arrival. O(pages x log pages). */
void belady_tell(belady *b, kv_index *ix, const kv_pool *pool, int32_t number, const kv_table *table);

#endif
