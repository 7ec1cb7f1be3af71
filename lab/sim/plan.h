/* How many requests of a given length fit on a device at once, what they yield and what
 * that costs: `quire sim --plan MODEL DEVICE`. */
#ifndef LAB_SIM_PLAN_H
#define LAB_SIM_PLAN_H

#include <stdbool.h>

#include "lab/sim/cost.h"

typedef struct plan_options {
    const char *model, *device; /* lab/sim/cost.h has their names */
    int32_t n_prompt, n_output; /* tokens of each request */
    int32_t page_tokens;
    int32_t unused_percent; /* of what a server without pages reserves, in one of the rows */
    int32_t n_devices;      /* of the fleet */
    double cost_per_hour;   /* of one device */
    bool json;
} plan_options;

/* A way to give memory, and what a device does with it when it is never short of
 * requests. */
typedef struct plan_row {
    const char *memory;
    int64_t reserved;    /* tokens that a request takes */
    int64_t n_requests;  /* at once */
    double step_us;      /* one token for each of them, and their share of prompts */
    double tokens_per_s; /* of answers */
    double per_million;  /* cost of a million tokens of answers */
    double n_devices;    /* to serve what the fleet serves with pages */
    double per_year;     /* cost of those */
} plan_row;

/* pages; a power of two; the model's longest; so much that unused_percent of it is never
 * used */
enum { PLAN_N_ROWS = 4 };

void plan_options_init(plan_options *o);
/* All rows. QUIRE_INVALID: a name is not known, or a request is longer than the model
 * takes. */
quire_err plan_make(const plan_options *o, cost_model *cost, plan_row rows[PLAN_N_ROWS], quire_error *err);
/* Makes and prints them. */
quire_err plan_run(const plan_options *o, quire_error *err);

#endif
