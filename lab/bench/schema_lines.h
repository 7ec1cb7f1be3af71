/* Schemas with instances to measure on: the lines of MaskBench's files, or a few of the
 * lab's own. */
#ifndef LAB_BENCH_SCHEMA_LINES_H
#define LAB_BENCH_SCHEMA_LINES_H

#include "base/err.h"
#include "json/json.h"

/* Calls take(user, record) for each `every`-th line of the files (names with commas
 * between; NULL: the lab's own), in order. A record has `schema` and `tests`; it is
 * dropped behind the call. The first error ends it. */
quire_err schema_lines_each(const char *files, int32_t every,
                            quire_err (*take)(void *user, json_value *record), void *user, quire_error *err);

#endif
