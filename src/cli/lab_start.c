#include "cli/lab_start.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/beside.h"
#include "base/log.h"
#include "cli/dispatch.h"

#define PROGRAM "quire-lab"

/* The rows of src/lab/commands, of which nothing is linked here; tests/e2e/test_lab.py compares. */
static const command rows[] = {
    {.name = "bench", .summary = "prefill and decode speed against what memory and arithmetic allow"},
    {.name = "sim", .summary = "what a prefix cache of some size and policy finds in a trace of requests"},
    {.name = "bench speed", .summary = "a 1.1B model by type of weights, attention, memory: beside limits and goals"},
    {.name = "bench roofline", .summary = "what this machine can read and compute at best"},
    {.name = "bench profile", .summary = "where the time of a step goes, stage by stage"},
    {.name = "bench kv", .summary = "time of the page pool's and the index's operations"},
    {.name = "bench engine", .summary = "the engine's own work in a step, without a model"},
    {.name = "bench memory", .summary = "memory that pages take over the least that would do"},
    {.name = "bench preempt", .summary = "swapping a sequence out and in against computing it again"},
    {.name = "bench attention", .summary = "how fast attention is by itself, and what pages cost it"},
    {.name = "bench serving", .summary = "requests a second under a bound on latency, simulated or really served"},
    {.name = "bench calibrate", .summary = "what a step of a model costs on this machine"},
    {.name = "bench sampler", .summary = "what choosing a token costs"},
    {.name = "bench kernels", .summary = "matrix products by type of weights and number of rows"},
    {.name = "bench stall", .summary = "how much a long prompt slows the streams beside it"},
    {.name = "bench start", .summary = "from exec to a model's first token"},
    {.name = "bench pages", .summary = "speed, waste and tables by page size"},
    {.name = "bench sharing", .summary = "what sharing a prompt's pages among its answers saves"},
    {.name = "bench prefix", .summary = "what the prefix index costs strangers, and what it saves"},
    {.name = "bench workload", .summary = "speed and hit rate of kinds of requests, by cache and policy"},
    {.name = "bench ablation", .summary = "workloads with one mechanism switched off"},
    {.name = "bench scenario", .summary = "memory and speed of a model, alone and with others"},
    {.name = "bench tiers", .summary = "first tokens of prompts that come back from host memory, file, Redis"},
    {.name = "demo", .summary = "what paging and continuous batching are for, shown"},
};
enum { N_COMMANDS = (int)(sizeof rows / sizeof rows[0]) };

void lab_print_commands(void) {
    for (int i = 0; i < N_COMMANDS; i++) {
        dispatch_list((const command *const[]){&rows[i], NULL});
    }
}

bool lab_has_command(int argc, char **argv) {
    bool found = false;
    for (int i = 0; i < N_COMMANDS; i++) {
        found = found || dispatch_count_words(rows[i].name, argc, argv) > 0;
    }
    return found;
}

int lab_start(char **argv) {
    char path[4096];
    execvp(beside_find(PROGRAM, path, sizeof path), argv);
    log_line(LOG_ERROR, "%s: a command of " PROGRAM ", which is neither beside this program nor in PATH (%s); `make all` builds both",
             argv[1], strerror(errno));
    return 1;
}
