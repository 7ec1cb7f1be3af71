/* The program quire: --help, --version, its own commands, and those of quire-lab, which
 * it starts. */
#include <errno.h>
#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/process.h"
#include "cli/commands.h"
#include "cli/dispatch.h"
#include "cli/files.h"

/* quire-lab has the benches, experiments, demonstrations and the simulator. quire lists
 * its commands and starts it. */

/* quire-lab's commands, with name and summary only. Ends with NULL. */
extern const command *const lab_rows[];

#define PROGRAM "quire-lab"
#define ROW(called, is)                                                                                      \
    &(const command) {                                                                                       \
        .name = (called), .summary = (is)                                                                    \
    }

/* Copies of rows of lab/commands, which is not linked here; tests/e2e/test_lab.py
 * compares them. */
const command *const lab_rows[] = {
    ROW("bench", "measure prefill and decode speed against the limits of memory and arithmetic"),
    ROW("sim", "hit rate of a prefix cache by size and policy, on a trace of requests"),
    ROW("bench speed",
        "speed of a 1.1B model by type of weights, attention and memory, with limits and goals"),
    ROW("bench roofline", "the best memory and compute rates of this machine"),
    ROW("bench profile", "where the time of a step goes, stage by stage"),
    ROW("bench kv", "time of the page pool's and the index's operations"),
    ROW("bench engine", "the engine's own work in a step, without a model"),
    ROW("bench memory", "memory of pages compared with the least possible"),
    ROW("bench attention", "speed of attention alone, and the cost of pages"),
    ROW("bench lora", "what adapters cost in decode and prefill, and how long requests wait for them"),
    ROW("bench serving", "requests a second under a bound on latency, simulated on a described device"),
    ROW("bench sampler", "time of sampling a token"),
    ROW("bench text", "how fast texts are tokenised, tokens decoded and chats rendered"),
    ROW("bench kernels", "matrix products by type of weights and number of rows"),
    ROW("bench speculation", "what guessing tokens saves on a file of prompts, with the same output"),
    ROW("bench stall", "how much a long prompt slows other streams"),
    ROW("bench start", "time from exec to the first token, at first and later starts"),
    ROW("bench pages", "speed, waste and tables by page size"),
    ROW("bench sharing", "what sharing a prompt's pages among its answers saves"),
    ROW("bench prefix", "cost of the prefix index for unrelated prompts, and what it saves"),
    ROW("bench workload", "speed and hit rate of kinds of requests, by cache and policy"),
    ROW("bench ablation", "workloads with one mechanism switched off"),
    ROW("bench headline", "what paging and continuous batching gain, measured at rising request rates"),
    ROW("bench tiers", "time to the first token of prompts restored from host memory, file, Redis"),
    ROW("bench latency", "time of a token by context: paged, contiguous, no cache"),
    ROW("bench grammar", "what compiling a JSON Schema and its token masks cost"),
    ROW("bench json", "answers under JSON Schemas: their speed, and what they add to a step"),
    ROW("bench quality", "accuracy, memory and speed of types of weights, keys and values, on a text"),
    ROW("perplexity", "how well a model predicts a text, paged and contiguous with the same bits"),
    ROW("demo", "demonstrations of paging and continuous batching"),
    NULL,
};

/* Whether the arguments after the program's name begin with a command of quire-lab. */
static bool lab_has_command(int argc, char **argv) {
    bool found = false;
    for (const command *const *c = lab_rows; *c; c++) {
        found = found || dispatch_count_words((*c)->name, argc, argv) > 0;
    }
    return found;
}

/* Replaces this process by quire-lab (exec) with the same arguments. It is looked for
 * beside this program's file, then in PATH. If it is not found, prints how to build it
 * and returns the exit status. */
static int lab_start(char **argv, const char *name) {
    char path[4096];
    execvp(beside_find(PROGRAM, path, sizeof path), argv);
    log_line(LOG_ERROR,
             "%s: a command of " PROGRAM
             ", which is neither beside this program nor in PATH (%s); `make all` builds both",
             name, strerror(errno));
    return 1;
}

extern char **environ;

static void main_print_help(bool all) {
    const command *const usual[] = {
        &command_run,  &command_serve, &command_inspect, &command_pack, &command_tokenize,
        &command_pull, &command_list,  &command_rm,      lab_rows[0],   NULL};
    printf("quire %s: runs and serves language models\n\nusage: quire COMMAND [MODEL] [flags]\n\n",
           quire_version());
    dispatch_list(all ? quire_commands : usual);
    if (all) {
        dispatch_list(lab_rows);
    }
    printf("\nMODEL is a .gguf file, a Hugging Face directory, a packed model (quire pack), `builtin` (the "
           "tiny\n"
           "model inside the program), or ORG/NAME[:QUANT] of the Hugging Face hub, which is fetched if "
           "needed.\n"
           "`quire help COMMAND` lists a command's flags, `quire help all` all commands; `quire --version` "
           "prints the version.\n"
           "A flag can be a variable too: QUIRE_MAX_NUM_SEQS=8 is --max-num-seqs 8 (man quire).\n\n"
           "  quire run -p \"The prince looked at her and\"    continue a text with the built-in model\n"
           "  quire run model.gguf                           chat\n"
           "  quire serve model.gguf                         OpenAI's API on http://127.0.0.1:8000\n"
           "  quire inspect model.gguf                       what it holds and the memory it needs\n");
}

/* Makes characters UTF-8 even if the locale is C, as it often is in a container. */
static void use_locale(void) {
    const char *name = setlocale(LC_CTYPE, ""); /* NULL: the locale is not installed */
    if (!name || strcmp(name, "C") == 0 || strcmp(name, "POSIX") == 0) {
        (void)setlocale(LC_CTYPE, "C.UTF-8");
    }
}

int main(int argc, char **argv) {
    program quire = {"quire",
                     "runs and serves language models",
                     quire_commands,
                     lab_rows,
                     main_print_help,
                     environ,
                     {.history_file = NULL}};
    int n_before = argc > 1 && strcmp(argv[1], "help") == 0 ? 2 : 1; /* words before a command's name */
    mem_separate_large();
    use_locale();
    environment_read(&quire.environment);
    standard_files_open();
    bool is_lab = argc > n_before && lab_has_command(argc - n_before, argv + n_before);
    return standard_files_finish(is_lab ? lab_start(argv, argv[n_before]) : dispatch(&quire, argc, argv));
}
