/* Programs shaped like applications: few-shot questions, agents, samples, trees, forms
 * and chats. They are JSON with token ids: of real texts if there is a data directory,
 * else drawn, the same each time.
 *
 * Owner: one thread. */
#ifndef LAB_BENCH_PROGRAM_TASKS_H
#define LAB_BENCH_PROGRAM_TASKS_H

#include "base/str.h"
#include "quire.h"

/* Questions, conversations, passages and schemas from a data directory. */
typedef struct task_texts task_texts;

/* Reads evals/gsm8k_test_first200.jsonl, evals/spec_bench/question.jsonl and
 * json/maskbench/JME.jsonl of a directory. NOT_FOUND; IO; BAD_FILE: a file lacks what is
 * needed. */
quire_err task_texts_open(const char *directory, task_texts **out, quire_error *err);
void task_texts_close(task_texts *d);

/* The place of a text in a program. */
typedef struct task_place {
    int32_t branch; /* -1: the prompt */
    int32_t item;   /* item of the data that the branch is about */
    int32_t round;
    int32_t inner; /* branch within a round; -1: the round's own text */
} task_place;

/* Appends the text at a place, if there is one. NO_MEMORY. */
typedef quire_err (*task_text)(const task_texts *d, const task_place *at, strbuf *out);

/* A kind of application. `outer` branches continue a prompt. In every round each adds its
 * own tokens and generates; then each round has `inner` branches, which do so once. */
typedef struct program_task {
    const char *name;
    /* published ratio of SGLang's throughput to vLLM's (docs/lab/experiments.md); 0:
     * none */
    double published;
    int32_t n_prompt; /* number of drawn tokens; texts have their own length */
    int32_t outer;
    int32_t n_added; /* tokens drawn for each branch */
    int32_t n_generated, rounds, inner;
    double temperature;
    task_text text;
    task_text answer; /* answer in the data, whose length is generated; NULL: n_generated tokens */
} program_task;

enum { N_PROGRAM_TASKS = 9 };
extern const program_task program_tasks[N_PROGRAM_TASKS];

/* Writes the program of a task for an engine, whose tokenizer makes the ids of texts; d
 * NULL: ids are drawn. Branches are about items whose texts begin with different tokens.
 * UNSUPPORTED: texts without a vocabulary; INVALID: too few items; NO_MEMORY. */
quire_err program_task_write(const program_task *t, const task_texts *d, const quire_engine *e, strbuf *to,
                             quire_error *err);

#endif
