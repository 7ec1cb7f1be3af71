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
static const struct {
    const char *name, *summary;
} commands[] = {
    {"bench", "prefill and decode speed against what memory and arithmetic allow"},
    {"sim", "what a prefix cache of some size and policy finds in a trace of requests"},
    {"bench speed", "a 1.1B model by type of weights, attention, memory: beside limits and goals"},
    {"bench roofline", "what this machine can read and compute at best"},
    {"bench profile", "where the time of a step goes, stage by stage"},
    {"bench kv", "time of the page pool's and the index's operations"},
    {"bench engine", "the engine's own work in a step, without a model"},
    {"bench memory", "memory that pages take over the least that would do"},
    {"bench preempt", "swapping a sequence out and in against computing it again"},
    {"bench attention", "how fast attention is by itself, and what pages cost it"},
    {"bench serving", "requests a second under a bound on latency, simulated or really served"},
    {"bench calibrate", "what a step of a model costs on this machine"},
    {"bench sampler", "what choosing a token costs"},
    {"bench kernels", "matrix products by type of weights and number of rows"},
    {"bench stall", "how much a long prompt slows the streams beside it"},
    {"bench start", "from exec to a model's first token"},
    {"bench pages", "speed, waste and tables by page size"},
    {"bench sharing", "what sharing a prompt's pages among its answers saves"},
    {"bench prefix", "what the prefix index costs strangers, and what it saves"},
    {"bench workload", "speed and hit rate of kinds of requests, by cache and policy"},
    {"bench ablation", "workloads with one mechanism switched off"},
    {"bench scenario", "memory and speed of a model, alone and with others"},
    {"bench tiers", "first tokens of prompts that come back from host memory, file, Redis"},
    {"demo", "what paging and continuous batching are for, shown"},
};
enum { N_COMMANDS = (int)(sizeof commands / sizeof commands[0]) };

void lab_print_commands(void) {
    for (int i = 0; i < N_COMMANDS; i++) {
        printf("  %-12s %s\n", commands[i].name, commands[i].summary);
    }
}

bool lab_has_command(int argc, char **argv) {
    for (int i = 0; i < N_COMMANDS; i++) {
        if (dispatch_count_words(commands[i].name, argc, argv) > 0) {
            return true;
        }
    }
    return false;
}

int lab_start(char **argv) {
    char path[4096];
    execvp(beside_find(PROGRAM, path, sizeof path), argv);
    log_line(LOG_ERROR, "%s: a command of " PROGRAM ", which is neither beside this program nor in PATH (%s); `make all` builds both",
             argv[1], strerror(errno));
    return 1;
}
