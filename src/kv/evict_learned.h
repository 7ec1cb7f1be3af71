/* The learned eviction policy: how likely is it that a page is asked for again?
 *
 * A logistic model of what is known when a page is used: how often it was, how long ago the time before (the gap), how deep in its prefix
 * it lies, whose it is. Time is counted in uses of pages, so nothing depends on speed. Each use of a full page is a trial: as many uses
 * later as the pool has pages, when about the whole cache has turned over, the model is taught whether the page was asked for again, no
 * matter whether it was still cached. Trials go by the chained hash of the prefix, so a page that comes back after its eviction is still
 * known.
 *
 * A page's value is the time of its last use + age x 2 p / (p + mean p), where age is how long pages stay unused before they go: a page
 * like all others stays one age, none gains more than two. Where the model cannot tell pages apart this is lru. Deterministic: no random
 * numbers, no clock, the same bits on every machine. Sized at open. The engine thread's. */
#ifndef KV_EVICT_LEARNED_H
#define KV_EVICT_LEARNED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* What is known of an entry since its last use. Zeroed: it was never used. */
typedef struct kv_use {
    int64_t at, gap; /* when, and how long after the use before it; gap 0: there was none */
    int64_t n_uses;  /* this one included */
    int32_t depth;   /* pages before it in its prefix */
    int32_t tenant;
} kv_use;

#define KV_LEARNED_FEATURES 6
#define KV_LEARNED_TENANTS  64 /* weights of their own; more tenants share them */
#define KV_LEARNED_WEIGHTS  (KV_LEARNED_FEATURES + KV_LEARNED_TENANTS)

typedef struct kv_trial {
    kv_use use;    /* never used: an empty slot */
    uint64_t hash; /* of the prefix up to the page; 0: it was used again, and a later trial has its name */
    bool was_used_again;
} kv_trial;

/* Where trials are found by their hash: sets of one cache line. A name whose trial has ended is as good as none; when a set is full the
 * oldest name gives way, and its trial ends as if the page had not been used again. */
enum { KV_NAMES_A_SET = 8 };

typedef struct kv_names {
    uint32_t tags[KV_NAMES_A_SET];  /* half of the hash */
    uint32_t times[KV_NAMES_A_SET]; /* when the trial began, plus 1; 0: no name */
} kv_names;

typedef struct kv_learned {
    int64_t now; /* uses so far */
    double age;  /* mean of uses between the last of a page and its eviction */
    double mean; /* of the outcomes of trials */
    double weights[KV_LEARNED_WEIGHTS];
    double squares[KV_LEARNED_WEIGHTS]; /* of all gradients: each weight has a rate of its own (Duchi, Hazan and Singer 2011) */
    kv_trial *trials;                   /* [cap] a ring; the oldest ends when a new one begins */
    kv_names *names;                    /* [n_sets], a power of two: 2 to 4 names a set */
    uint32_t n_sets;
    int32_t cap;
} kv_learned;

/* For a pool of n_pages. */
quire_err kv_learned_open(kv_learned *l, int32_t n_pages);
void kv_learned_close(kv_learned *l);
int64_t kv_learned_bytes(const kv_learned *l);

/* An entry is made: *u becomes what is known of it, its past included where a trial of that hash runs. hash 0: it has no name. All O(1). */
void kv_learned_made(const kv_learned *l, uint64_t hash, int32_t depth, int32_t tenant, kv_use *u);
/* It is used: a trial ends, another begins. */
void kv_learned_used(kv_learned *l, uint64_t hash, kv_use *u);
/* It is evicted. */
void kv_learned_evicted(kv_learned *l, const kv_use *u);
/* The probability of another use while a trial lasts. */
double kv_learned_probability(const kv_learned *l, const kv_use *u);
/* What it is worth: the lowest goes first. Finite. */
double kv_learned_value(const kv_learned *l, const kv_use *u);

#endif
