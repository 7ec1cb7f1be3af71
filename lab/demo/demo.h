/* `quire demo NAME`: small experiments that show, with the engine's own parts, what
 * paging and continuous batching are for. Counts are exact; where a time is measured, the
 * line below the table says so, and on what. */
#ifndef LAB_DEMO_DEMO_H
#define LAB_DEMO_DEMO_H

#include "lab/commands/lab_commands.h"

/* Options. NULL or 0: the demonstration chooses. The argument names the demonstration;
 * NULL: list them. */
typedef struct demo_options {
    cli_options cli;
    const char *prompt_lengths; /* in tokens, "4,6,1,7" */
    const char *lengths;        /* the same for responses */
    const char *batches;        /* concurrent requests, "1,2,4" */
    const char *contexts;       /* tokens per sequence, "32,128" */
    int32_t n_runs;             /* runs per measured figure */
    int32_t n_tokens;           /* generated after each prompt */
    int32_t slots;              /* most sequences that run at once */
    int32_t n_rows;             /* most rows in a step */
    int32_t page_tokens, n_pages;
} demo_options;

/* `given`, or `own` if that is 0. */
static inline int32_t demo_or(int32_t given, int32_t own) {
    return given > 0 ? given : own;
}

/* In demo_radix.c. err says why it could not run. */
quire_err demo_radix(const demo_options *o, quire_error *err);

#endif
