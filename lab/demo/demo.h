/* `quire demo NAME`: small experiments that show, with the engine's own parts, what
 * paging and continuous batching are for. Counts are exact; where a time is measured, the
 * line below the table says so, and on what. */
#ifndef LAB_DEMO_DEMO_H
#define LAB_DEMO_DEMO_H

#include "quire.h"

/* What is NULL or 0 is as the demonstration chooses. */
typedef struct demo_options {
    quire_options
        /* model and numeric configuration; n_pages, page_tokens, max_seqs and
         * max_model_len only where a demo asks for them */
        engine;
    const char *name;           /* which; NULL: list them */
    const char *prompt_lengths; /* tokens, "4,6,1,7" */
    const char *lengths;        /* of answers, likewise */
    /* a file, a prompt a line, which the model answers; their lengths and its answers'
     * are taken */
    const char *prompts;
    const char *batches;  /* requests at once, "1,2,4" */
    const char *contexts; /* tokens of a sequence, "32,128" */
    const char *shape;    /* wall: "LAYERS,KV_HEADS,HEAD" in 16 bits */
    int32_t n_runs;       /* behind each measured figure */
    int32_t n_tokens;     /* most of an answer */
    int32_t slots;        /* sequences that run at once */
    int32_t max_len;      /* room for the longest sequence */
    int32_t n_rows;       /* a step */
    int32_t page_tokens, n_pages;
    bool json;
} demo_options;

void demo_options_init(demo_options *o);

/* Runs the one of that name and prints to stdout; err says why it could not.
 * QUIRE_INVALID when there is none of that name. */
quire_err demo_run(const demo_options *o, quire_error *err);
/* Prints a line for each. */
void demo_list(void);

#endif
