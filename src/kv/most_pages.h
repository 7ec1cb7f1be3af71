/* Computes the most pages that one sequence ever holds, from its length. A window group
 * holds what its last window sees and the rows of one step, whatever the length; a full
 * group holds every token; states take a fixed number. Everything that plans whole
 * sequences uses it: pool sizes, admission, floors, and errors for requests that can
 * never fit.
 *
 * Plain data, constant once made. */
#ifndef KV_MOST_PAGES_H
#define KV_MOST_PAGES_H

#include "kv/kv_cache.h"

typedef struct kv_most {
    int32_t page_tokens;
    int32_t n_full;   /* number of full groups */
    int32_t n_states; /* pages of states */
    int32_t n_caps;
    struct {
        int32_t n_groups; /* number of groups with this window */
        int32_t n_pages;  /* most pages that one of these groups holds */
    } caps[KV_MAX_GROUPS];
} kv_most;

/* Return the bound for a cache of this layout, or for this cache, where a sequence
 * reserves at most n_rows >= 1 tokens at a time beyond its computed ones. */
kv_most kv_most_of_layout(const kv_layout *l, int32_t n_rows);
kv_most kv_most_of_cache(const kv_cache *c, int32_t n_rows);
/* Returns the most pages that a sequence holds, in all groups, until it has n_tokens; 0
 * for 0. The bound is tight up to one page per group. */
int64_t kv_most_pages(const kv_most *m, int64_t n_tokens);
/* Returns the length of the longest sequence for which n_pages always suffice, a multiple
 * of page_tokens; INT64_MAX: any length. */
int64_t kv_most_tokens(const kv_most *m, int64_t n_pages);

#endif
