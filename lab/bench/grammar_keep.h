/* Memory of many grammars that are kept compiled at a time, each of another schema. */
#ifndef LAB_BENCH_GRAMMAR_KEEP_H
#define LAB_BENCH_GRAMMAR_KEEP_H

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

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

#endif
