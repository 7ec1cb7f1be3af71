#include "cli/lab_start.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/beside.h"
#include "base/log.h"
#include "cli/dispatch.h"

#define PROGRAM "quire-lab"
#define ROW(called, is)                                                                                      \
    &(const command) {                                                                                       \
        .name = (called), .summary = (is)                                                                    \
    }

/* The rows of lab/commands, of which nothing is linked here; tests/e2e/test_lab.py
 * compares. */
const command *const lab_rows[] = {
    ROW("bench", "prefill and decode speed, with the limits of memory and arithmetic"),
    ROW("sim", "hit rate of a prefix cache by size and policy, on a trace of requests"),
    ROW("bench speed", "a 1.1B model by type of weights, attention, memory: with limits and goals"),
    ROW("bench roofline", "what this machine can read and compute at best"),
    ROW("bench profile", "where the time of a step goes, stage by stage"),
    ROW("bench kv", "time of the page pool's and the index's operations"),
    ROW("bench engine", "the engine's own work in a step, without a model"),
    ROW("bench memory", "memory of pages over the least possible"),
    ROW("bench preempt", "swapping a sequence out and in against computing it again"),
    ROW("bench attention", "speed of attention alone, and the cost of pages"),
    ROW("bench serving", "requests a second under a bound on latency, simulated or really served"),
    ROW("bench calibrate", "what a step of a model costs on this machine"),
    ROW("bench sampler", "time of sampling a token"),
    ROW("bench text", "how fast texts are tokenised, tokens decoded and chats rendered"),
    ROW("bench kernels", "matrix products by type of weights and number of rows"),
    ROW("bench experts", "a mixture of experts compared with dense products of the same bytes"),
    ROW("bench speculation", "what guessing tokens saves on a file of prompts, with the same output"),
    ROW("bench stall", "how much a long prompt slows other streams"),
    ROW("bench start", "time from exec to the first token, at first and later starts"),
    ROW("bench pages", "speed, waste and tables by page size"),
    ROW("bench sharing", "what sharing a prompt's pages among its answers saves"),
    ROW("bench prefix", "cost of the prefix index for unrelated prompts, and what it saves"),
    ROW("bench workload", "speed and hit rate of kinds of requests, by cache and policy"),
    ROW("bench ablation", "workloads with one mechanism switched off"),
    ROW("bench headline", "what paging and continuous batching are worth, really run at rising rates"),
    ROW("bench scenario", "memory and speed of a model, alone and with others"),
    ROW("bench tiers", "time to the first token of prompts restored from host memory, file, Redis"),
    ROW("bench latency", "time of a token by context: paged, contiguous, no cache"),
    ROW("bench resident", "memory as measured and as allocated: paged, growing, all reserved"),
    ROW("bench grammar", "what compiling a JSON Schema and its token masks cost"),
    ROW("bench json", "answers under JSON Schemas: their speed, and what they add to a step"),
    ROW("bench quality", "accuracy, memory and speed of types of weights, keys and values, on a text"),
    ROW("perplexity", "how well a model predicts a text, paged and contiguous with the same bits"),
    ROW("demo", "demonstrations of paging and continuous batching"),
    NULL,
};

bool lab_has_command(int argc, char **argv) {
    bool found = false;
    for (const command *const *c = lab_rows; *c; c++) {
        found = found || dispatch_count_words((*c)->name, argc, argv) > 0;
    }
    return found;
}

int lab_start(char **argv, const char *name) {
    char path[4096];
    execvp(beside_find(PROGRAM, path, sizeof path), argv);
    log_line(LOG_ERROR,
             "%s: a command of " PROGRAM
             ", which is neither beside this program nor in PATH (%s); `make all` builds both",
             name, strerror(errno));
    return 1;
}
