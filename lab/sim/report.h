/* What `quire sim` prints: a table, or a JSON object a line. */
#ifndef LAB_SIM_REPORT_H
#define LAB_SIM_REPORT_H

#include "lab/sim/replay.h"
#include "lab/sim/sim_options.h"

/* One replay: its options and what came of it. */
typedef struct sim_row {
    kv_policy policy;
    bool unlimited; /* no capacity was set, so no policy mattered */
    replay_result result;
} sim_row;

/* Hit tokens of prompt tokens, 0..1. */
double sim_hit_rate(const sim_row *row);
/* The policy's name, or "unlimited". */
const char *sim_row_name(const sim_row *row);

/* The table's head; JSON has none. */
void report_head(const sim_options *o, const trace *t);
/* One line, written at once. IO: standard output is full or closed; errno says why. */
quire_err report_row(const sim_options *o, const sim_row *row);

#endif
