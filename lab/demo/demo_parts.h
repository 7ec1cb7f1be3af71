/* What the demonstrations share, between demo*.c only. */
#ifndef LAB_DEMO_DEMO_PARTS_H
#define LAB_DEMO_DEMO_PARTS_H

#include "lab/bench/figures.h"
#include "lab/bench/result_table.h"
#include "lab/demo/demo.h"

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
/* demo_sweep.c */
quire_err demo_sweep(const demo_options *o, quire_error *err);
/* demo_tput.c */
quire_err demo_tput(const demo_options *o, quire_error *err);
/* demo_radix.c */
quire_err demo_radix(const demo_options *o, quire_error *err);

/* A list of numbers, or the demo's own where none was given. */
typedef struct demo_numbers {
    int32_t v[FIGURES_MAX_POINTS], n;
} demo_numbers;

/* demo_prompts.c: has the model answer every line of o->prompts (at most
 * FIGURES_MAX_POINTS), each with at most cap tokens, sampled with a seed: how many tokens
 * prompts and answers have. */
quire_err demo_answer_prompts(const demo_options *o, int32_t cap, demo_numbers *prompts,
                              demo_numbers *lengths, quire_error *err);
/* The lengths of whole sequences, prompt and answer: o->lengths, those of o->prompts
 * answered (by at most 200 tokens unless it says), or own. */
quire_err demo_read_wholes(const demo_options *o, const char *own, demo_numbers *out, quire_error *err);
quire_err demo_read_numbers(const char *flag, const char *given, const char *own, demo_numbers *out,
                            quire_error *err);
/* The same where there may be only one. */
quire_err demo_read_one(const char *flag, const char *given, const char *own, demo_numbers *out,
                        quire_error *err);

/* given, or own where it is 0. */
static inline int32_t demo_or(int32_t given, int32_t own) {
    return given > 0 ? given : own;
}

#endif
