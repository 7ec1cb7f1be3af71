/* The tables and the picture of `quire bench headline`. */
#ifndef LAB_BENCH_HEADLINE_REPORT_H
#define LAB_BENCH_HEADLINE_REPORT_H

#include "lab/bench/headline_case.h"

/* Each way's figures, the gains, the loads, and what a step costs by rows. requests: what
 * they are, for people. */
void headline_print_case(const headline_case *c, const char *requests, bool json);

/* Latency by rate, a diagram for each case. QUIRE_IO or QUIRE_NO_MEMORY; err names the
 * file. */
quire_err headline_draw(const char *path, const headline_case *cases, int32_t n, quire_error *err);

#endif
