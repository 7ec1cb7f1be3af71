/* Workloads by name: who asks what after whom, and which tokens they have in common.
 * Lengths are those of the task's kind; the tokens are drawn, the same for the same text,
 * so that what can be shared is exact and what comes out is only counted. */
#ifndef LAB_BENCH_WORKLOAD_H
#define LAB_BENCH_WORKLOAD_H

#include "lab/bench/lab.h"

typedef struct workload {
    const char *name, *line;
    lab_request *requests;
    int32_t n, max_seqs; /* that run at once; all that may go are sent at once */
    int32_t max_rows;    /* a step */
    int32_t max_len;     /* of the longest */
    int32_t *tokens;     /* what requests point into */
    size_t n_tokens;
    /* tokens of all prompts, with what they follow; of these, such as no earlier prompt
     * or answer has */
    int64_t n_prompt, n_new;
} workload;

#define WORKLOAD_NAMES "chatbot, mmlu5, gsm8k, react, json, long, chat, agents or unique"

/* QUIRE_INVALID names those there are. Freed with workload_free. */
quire_err workload_make(const char *name, int32_t n_vocab, workload *out, quire_error *err);
void workload_free(workload *w);
/* The i-th name, NULL behind the last. */
const char *workload_name(int32_t i);

#endif
