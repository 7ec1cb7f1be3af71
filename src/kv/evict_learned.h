/* The learned eviction policy: a logistic model of the probability that a page is used
 * again.
 *
 * Its inputs are known when a page is used: the number of uses, the time since the
 * previous use (the gap), the page's depth in its prefix, its tenant. Time is counted in
 * uses of pages, so nothing depends on speed. Each use of a full page starts a trial. A
 * trial ends after as many uses as the pool has pages, by when about the whole cache has
 * been replaced. The model then learns whether the page was used again, cached or not.
 * Trials are found by the chained hash of the prefix, so a page that comes back after its
 * eviction is recognised.
 *
 * A page's value is the time of its last use + age x 2 p / (p + mean p), where p is the
 * probability and age the mean time from a page's last use to its eviction. An average
 * page stays for one age, no page for more than two. If the model cannot tell pages apart
 * this is lru. Deterministic: no random numbers, no clock, the same bits on every
 * machine. Allocated at open. Owner: the engine thread. */
#ifndef KV_EVICT_LEARNED_H
#define KV_EVICT_LEARNED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* The history of an entry up to its last use. All zero: it was never used. */
typedef struct kv_use {
    int64_t at, gap; /* time of the last use; time between the last two uses, 0: there was only one */
    int64_t n_uses;  /* number of uses, the last one included */
    int32_t depth;   /* number of pages that precede it in its prefix */
    int32_t tenant;
} kv_use;

#define KV_LEARNED_FEATURES 6
#define KV_LEARNED_TENANTS  64 /* tenants with their own weights; further tenants share these */
#define KV_LEARNED_WEIGHTS  (KV_LEARNED_FEATURES + KV_LEARNED_TENANTS)

typedef struct kv_trial {
    kv_use use; /* the use that began the trial; all zero: an empty slot */
    /* hash of the prefix up to the page; 0: the page was used again and a later trial has
     * it */
    uint64_t hash;
    bool was_used_again;
} kv_trial;

/* A hash table of trials, in sets of one cache line. An entry whose trial has ended
 * counts as absent. When a set is full the oldest entry is replaced, and its trial ends
 * as if the page had not been used again. */
enum { KV_NAMES_A_SET = 8 };

typedef struct kv_names {
    uint32_t tags[KV_NAMES_A_SET];  /* one half of the hash */
    uint32_t times[KV_NAMES_A_SET]; /* start time of the trial + 1; 0: no entry */
} kv_names;

typedef struct kv_learned {
    int64_t now; /* number of uses so far */
    double age;  /* mean number of uses between the last use of a page and its eviction */
    double mean; /* mean outcome of the trials */
    double weights[KV_LEARNED_WEIGHTS];
    /* sums of squared gradients: each weight has its own learning rate (Duchi, Hazan and
     * Singer 2011) */
    double squares[KV_LEARNED_WEIGHTS];
    kv_trial *trials; /* [cap] ring; a new trial ends the oldest */
    kv_names *names;  /* [n_sets], a power of two: 2 to 4 trials a set */
    uint32_t n_sets;
    int32_t cap;
} kv_learned;

/* Opens the policy for a pool of n_pages. */
quire_err kv_learned_open(kv_learned *l, int32_t n_pages);
void kv_learned_close(kv_learned *l);
int64_t kv_learned_bytes(const kv_learned *l);

/* Fills *u for a new entry, with its history if a trial of that hash is running. hash 0:
 * the entry has no hash. O(1), like all calls below. */
void kv_learned_made(const kv_learned *l, uint64_t hash, int32_t depth, int32_t tenant, kv_use *u);
/* Records a use of the entry: ends its trial and starts another. */
void kv_learned_used(kv_learned *l, uint64_t hash, kv_use *u);
/* Records that the entry is evicted. */
void kv_learned_evicted(kv_learned *l, const kv_use *u);
/* Returns the probability of another use within a trial. */
double kv_learned_probability(const kv_learned *l, const kv_use *u);
/* Returns the value of a page, which is finite: the lowest is evicted first. */
double kv_learned_value(const kv_learned *l, const kv_use *u);

#endif
