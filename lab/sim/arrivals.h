/* Requests that nobody recorded: arrivals as a Poisson process, lengths like those of
 * known data sets, all from a seed.
 *
 * Lengths are log-normal with the data sets' published means (Kwon et al. 2023,
 * "Efficient Memory Management for Large Language Model Serving with PagedAttention",
 * figure 11); their spread is ours. Nothing is the same as anything else. */
#ifndef LAB_SIM_ARRIVALS_H
#define LAB_SIM_ARRIVALS_H

#include "lab/sim/trace.h"

/* Names of lengths, for error texts: "sharegpt, alpaca". */
extern const char arrivals_names[];

typedef struct arrivals_options {
    const char *lengths;
    double rate;  /* requests a second */
    int32_t n;    /* requests */
    int32_t most; /* tokens of a prompt and its answer together, at most: longer ones are drawn again */
    uint64_t seed;
} arrivals_options;

/* The same requests for the same options, on every machine but for the last bits of the C
 * library's logarithm. QUIRE_INVALID, QUIRE_NO_MEMORY. O(n). */
quire_err arrivals_make(const arrivals_options *o, trace *out, quire_error *err);

/* The requests of t arrive in their order as a Poisson process, rate a second, whenever
 * they came before. */
void arrivals_space(trace *t, double rate, uint64_t seed);

#endif
