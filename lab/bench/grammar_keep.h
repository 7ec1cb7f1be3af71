/* Memory of many grammars that are kept compiled at a time, each of another schema. */
#ifndef LAB_BENCH_GRAMMAR_KEEP_H
#define LAB_BENCH_GRAMMAR_KEEP_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "json/json.h"

typedef struct grammar_kept {
    int64_t n;
    size_t grammar_bytes; /* the grammars' own count, summed */
    /* of the process's resident memory, with what compiling left free; -1: the system
     * does not tell */
    int64_t growth_bytes;
} grammar_kept;

/* Compiles n different schemas (members in any order, any white space), holds all
 * grammars, measures, and frees them. files: as schema_lines_each; once all of their
 * schemas are taken, they come again with a $comment that tells the rounds apart. Schemas
 * that are refused are not counted. NULL: made ones. QUIRE_INVALID: no schema of the
 * files compiles. */
quire_err grammar_keep_run(const char *files, int32_t n, grammar_kept *out, quire_error *err);
/* Appends the made schema of a number: an object of some of what tools and answers ask
 * for, different for each number. */
quire_err grammar_keep_schema(int32_t number, strbuf *out);

/* Schemas with instances to measure on: the lines of MaskBench's files, or a few of the
 * lab's own. */

/* Calls take(user, record) for each `every`-th line of the files (names with commas
 * between; NULL: the lab's own), in order. A record has `schema` and `tests`; it is
 * dropped after the call. The first error ends it. */
quire_err schema_lines_each(const char *files, int32_t every,
                            quire_err (*take)(void *user, json_value *record), void *user, quire_error *err);

#endif
