/* `quire bench pages|sharing|prefix|workload|ablation|scenario`: what the engine's
 * mechanisms are worth, with the model really run. Counts of tokens and pages are exact;
 * times are those of this machine, in turns, the fastest of some runs, so that ratios
 * within one table hold. */
#ifndef LAB_BENCH_EXPERIMENT_H
#define LAB_BENCH_EXPERIMENT_H

#include "quire.h"

/* What is NULL or 0 is as the experiment chooses. */
typedef struct experiment_options {
    quire_options engine; /* model, numeric configuration, threads */
    const char *name;     /* workload and scenario: which; NULL: all */
    const char *pages;    /* tokens a page holds, "1,16,256" */
    const char *samples;  /* answers to a prompt, "2,4,6" */
    const char *lengths;  /* scenario: tokens of the prompts; of a chat, what each turn adds */
    int32_t n_prompt;     /* sharing: tokens of each prompt */
    int32_t n_output;     /* sharing, scenario: tokens of each answer */
    int32_t n_runs;
    bool small; /* scenario: sizes of some seconds */
    bool json;
} experiment_options;

void experiment_options_init(experiment_options *o);

/* Each prints to stdout; err says why it could not. */
quire_err experiment_pages(const experiment_options *o, quire_error *err);
quire_err experiment_sharing(const experiment_options *o, quire_error *err);
quire_err experiment_prefix(const experiment_options *o, quire_error *err);
quire_err experiment_workload(const experiment_options *o, quire_error *err);
quire_err experiment_ablation(const experiment_options *o, quire_error *err);
quire_err experiment_scenario(const experiment_options *o, quire_error *err);

/* experiment_batching.c: the last table of bench ablation. machine: what lab_describe
 * says. */
quire_err experiment_batching(const experiment_options *o, const char *machine, quire_error *err);

#endif
