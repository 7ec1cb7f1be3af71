/* `quire demo NAME`: small experiments that show, with the engine's own parts, what
 * paging and continuous batching are for. Counts are exact; where a time is measured, the
 * line below the table says so, and on what. */
#ifndef LAB_DEMO_DEMO_H
#define LAB_DEMO_DEMO_H

#include "lab/commands/lab_commands.h"

/* NULL or 0: as the demonstration chooses. The argument names the demonstration; NULL:
 * list them. */
typedef struct demo_options {
    cli_options cli;
    const char *prompt_lengths; /* tokens, "4,6,1,7" */
    const char *lengths;        /* of answers, likewise */
    /* a file, a prompt a line, which the model answers; their lengths and its answers'
     * are taken */
    const char *prompts;
    const char *batches;  /* requests at once, "1,2,4" */
    const char *contexts; /* tokens of a sequence, "32,128" */
    const char *shape;    /* wall: "LAYERS,KV_HEADS,HEAD" in 16 bits */
    int32_t n_runs;       /* runs for each measured figure */
    int32_t n_tokens;     /* most of an answer */
    int32_t slots;        /* sequences that run at once */
    int32_t max_len;      /* room for the longest sequence */
    int32_t n_rows;       /* a step */
    int32_t page_tokens, n_pages;
} demo_options;

/* The demonstrations, each in the file of its name; err says why it could not run. */

/* demo_batching.c */
quire_err demo_waste(const demo_options *o, quire_error *err);
quire_err demo_latency(const demo_options *o, quire_error *err);
quire_err demo_schedule(const demo_options *o, quire_error *err);
/* demo_memory.c */
quire_err demo_wall(const demo_options *o, quire_error *err);
quire_err demo_alloc(const demo_options *o, quire_error *err);
quire_err demo_table(const demo_options *o, quire_error *err);

/* demo_model.c */
quire_err demo_snapshot(const demo_options *o, quire_error *err);
quire_err demo_cache(const demo_options *o, quire_error *err);
/* demo_tput.c */
quire_err demo_sweep(const demo_options *o, quire_error *err);
/* demo_tput.c */
quire_err demo_tput(const demo_options *o, quire_error *err);
/* demo_radix.c */
quire_err demo_radix(const demo_options *o, quire_error *err);

/* A list of numbers, or the demo's own where none was given. */
typedef struct demo_numbers {
    int32_t v[FIGURES_MAX_POINTS], n;
} demo_numbers;

/* demo.c: has the model answer every line of o->prompts (at most
 * FIGURES_MAX_POINTS), each with at most cap tokens, sampled with a seed: how many tokens
 * prompts and answers have. */
quire_err demo_answer_prompts(const demo_options *o, int32_t cap, demo_numbers *prompts,
                              demo_numbers *lengths, quire_error *err);
/* The lengths of whole sequences, prompt and answer: o->lengths, those of o->prompts
 * answered (by at most 200 tokens unless it says), or own. */
quire_err demo_read_wholes(const demo_options *o, const char *own, demo_numbers *out, quire_error *err);
quire_err demo_read_numbers(const char *name, const char *given, const char *own, demo_numbers *out,
                            quire_error *err);
/* The same for a single number. */
quire_err demo_read_one(const char *name, const char *given, const char *own, demo_numbers *out,
                        quire_error *err);

/* given, or `own` if that is 0. */
static inline int32_t demo_or(int32_t given, int32_t own) {
    return given > 0 ? given : own;
}

#endif
