/* The learned eviction policy: a logistic model of the probability that a page is used
 * again.
 *
 * Its inputs are known when a page is used: the number of uses, the time since the
 * previous use (the gap), the page's depth in its prefix, its tenant. Time is counted in
 * uses of pages, so nothing depends on speed. Each use of a full page starts a trial. It
 * ends after as many uses as the pool has pages, by when about the whole cache has been
 * replaced. Then the model learns whether the page was used again, whether or not it was
 * still cached. Trials are found by the chained hash of the prefix, so a page that comes
 * back after its eviction is recognised.
 *
 * A page's value is the time of its last use + age x 2 p / (p + mean p), where age is how
 * long pages stay unused before they are evicted. An average page stays one age, and none
 * gains more than two. Where the model cannot tell pages apart this is lru.
 * Deterministic: no random numbers, no clock, the same bits on every machine. Allocated
 * at open. Owner: the engine thread. */
#ifndef KV_EVICT_LEARNED_H
#define KV_EVICT_LEARNED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* The history of an entry up to its last use. Zeroed: it was never used. */
typedef struct kv_use {
    int64_t at, gap; /* time of the last use, and since the use before it; gap 0: there was none */
    int64_t n_uses;  /* including the last one */
    int32_t depth;   /* number of pages that precede it in its prefix */
    int32_t tenant;
} kv_use;

#define KV_LEARNED_FEATURES 6
#define KV_LEARNED_TENANTS  64 /* tenants with weights of their own; further tenants share them */
#define KV_LEARNED_WEIGHTS  (KV_LEARNED_FEATURES + KV_LEARNED_TENANTS)

typedef struct kv_trial {
    kv_use use;    /* never used: an empty slot */
    uint64_t hash; /* of the prefix up to the page; 0: it was used again, and a later trial has the hash */
    bool was_used_again;
} kv_trial;

/* A hash table of trials, in sets of one cache line. A name whose trial has ended counts
 * as absent. When a set is full the oldest name is replaced, and its trial ends as if the
 * page had not been used again. */
enum { KV_NAMES_A_SET = 8 };

typedef struct kv_names {
    uint32_t tags[KV_NAMES_A_SET];  /* half of the hash */
    uint32_t times[KV_NAMES_A_SET]; /* when the trial began, plus 1; 0: no name */
} kv_names;

typedef struct kv_learned {
    int64_t now; /* uses so far */
    double age;  /* mean number of uses between the last use of a page and its eviction */
    double mean; /* mean outcome of the trials */
    double weights[KV_LEARNED_WEIGHTS];
    /* sums over all gradients: each weight has a rate of its own (Duchi, Hazan and Singer
     * 2011) */
    double squares[KV_LEARNED_WEIGHTS];
    kv_trial *trials; /* [cap] a ring; the oldest ends when a new one begins */
    kv_names *names;  /* [n_sets], a power of two: 2 to 4 names a set */
    uint32_t n_sets;
    int32_t cap;
} kv_learned;

/* Opens the policy for a pool of n_pages. */
quire_err kv_learned_open(kv_learned *l, int32_t n_pages);
void kv_learned_close(kv_learned *l);
int64_t kv_learned_bytes(const kv_learned *l);

/* Fills *u for a new entry, with its past where a trial of that hash runs. hash 0: it has
 * none. All O(1). */
void kv_learned_made(const kv_learned *l, uint64_t hash, int32_t depth, int32_t tenant, kv_use *u);
/* The entry is used: ends a trial and starts another. */
void kv_learned_used(kv_learned *l, uint64_t hash, kv_use *u);
/* The entry is evicted. */
void kv_learned_evicted(kv_learned *l, const kv_use *u);
/* The probability of another use within a trial. */
double kv_learned_probability(const kv_learned *l, const kv_use *u);
/* The value of a page: the lowest is evicted first. Finite. */
double kv_learned_value(const kv_learned *l, const kv_use *u);

#endif
