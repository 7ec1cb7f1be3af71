/* quire COMMAND ...: picks the command, prints what went wrong, chooses the exit status: 0 done, 1 failed, 2 not understood. */
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/standard_files.h"

#define DEMO_RADIX "radix" /* of this room; the others are src/lab/bench's */

static quire_err command_bench(const cli_options *o, quire_error *err) {
    return bench_run(&o->bench, err);
}

static quire_err command_sim(const cli_options *o, quire_error *err) {
    return sim_run(&o->sim, err);
}

static quire_err command_bench_kv(const cli_options *o, quire_error *err) {
    return bench_kv_run(&o->bench_kv, err);
}

static quire_err command_bench_serving(const cli_options *o, quire_error *err) {
    return bench_serving_run(&o->bench_serving, err);
}

static quire_err command_bench_calibrate(const cli_options *o, quire_error *err) {
    return calibrate_run(&o->calibrate, err);
}

static quire_err command_bench_memory(const cli_options *o, quire_error *err) {
    return bench_memory_run(&o->bench_memory, err);
}

static quire_err command_bench_runs(const cli_options *o, quire_error *err) {
    return bench_runs_run(&o->bench_runs, err);
}

static quire_err command_bench_attention(const cli_options *o, quire_error *err) {
    return bench_attention_run(&o->bench_attention, err);
}

static quire_err command_bench_preempt(const cli_options *o, quire_error *err) {
    return bench_preempt_run(&o->bench_preempt, err);
}

static quire_err command_bench_sampler(const cli_options *o, quire_error *err) {
    return bench_sampler_run(&o->bench_sampler, err);
}

static quire_err command_bench_kernels(const cli_options *o, quire_error *err) {
    return bench_kernels_run(&o->bench_kernels, err);
}

static quire_err command_bench_stall(const cli_options *o, quire_error *err) {
    return bench_stall_run(&o->bench_stall, err);
}

static quire_err command_bench_start(const cli_options *o, quire_error *err) {
    return bench_start_run(&o->bench_start, err);
}

static quire_err command_bench_engine(const cli_options *o, quire_error *err) {
    return bench_engine_run(&o->bench_engine, err);
}

static quire_err command_bench_profile(const cli_options *o, quire_error *err) {
    return bench_profile_run(&o->bench_profile, err);
}

static quire_err command_bench_speed(const cli_options *o, quire_error *err) {
    return bench_speed_run(&o->bench_speed, err);
}

static quire_err command_bench_roofline(const cli_options *o, quire_error *err) {
    return bench_roofline_run(&o->bench_roofline, err);
}

static quire_err command_bench_tiers(const cli_options *o, quire_error *err) {
    return bench_tiers_run(&o->bench_tiers, err);
}

static quire_err command_demo(const cli_options *o, quire_error *err) {
    if (o->demo.name == NULL) {
        printf("quire demo NAME [flags]\n\n  %-9s nine states of a prefix tree, in words\n", DEMO_RADIX);
        demo_list();
        return QUIRE_OK;
    }
    return strcmp(o->demo.name, DEMO_RADIX) == 0 ? demo_radix_run(&o->demo, err) : demo_run(&o->demo, err);
}

/* An experiment of which there is only one. */
static quire_err run_lone(const cli_options *o, quire_err (*run)(const experiment_options *o, quire_error *err), quire_error *err) {
    if (o->experiment.name != NULL) {
        return err_set(err, QUIRE_INVALID, -1, "%s: this experiment takes flags only", o->experiment.name);
    }
    return run(&o->experiment, err);
}

static quire_err command_bench_pages(const cli_options *o, quire_error *err) {
    return run_lone(o, experiment_pages, err);
}

static quire_err command_bench_sharing(const cli_options *o, quire_error *err) {
    return run_lone(o, experiment_sharing, err);
}

static quire_err command_bench_prefix(const cli_options *o, quire_error *err) {
    return run_lone(o, experiment_prefix, err);
}

static quire_err command_bench_workload(const cli_options *o, quire_error *err) {
    return experiment_workload(&o->experiment, err);
}

static quire_err command_bench_ablation(const cli_options *o, quire_error *err) {
    return experiment_ablation(&o->experiment, err);
}

static quire_err command_bench_scenario(const cli_options *o, quire_error *err) {
    return experiment_scenario(&o->experiment, err);
}

typedef struct command {
    const char *name;
    cli_command flag;
    quire_err (*run)(const cli_options *o, quire_error *err);
    const char *summary, *usage, *examples;
} command;

static const command commands[] = {
    {"run", CLI_RUN, command_run, "go on from a prompt, chat, or answer a file of prompts",
     "quire run [MODEL] [-p TEXT | -f FILE | --prompts FILE --out FILE]",
     "  quire run -p \"The prince looked at her and\" -n 80 --seed 7\n"
     "  quire run model.gguf                                   chat on this terminal\n"
     "  quire run model.gguf --prompts in.jsonl --out out.jsonl --temp 0\n"},
    {"serve", CLI_SERVE, command_serve, "an HTTP server that speaks OpenAI's API", "quire serve MODEL",
     "  quire serve builtin\n"
     "  quire serve model.gguf --host 0.0.0.0 --port 8080 --api-key-file keys.txt\n"},
    {"tokenize", CLI_TOKENIZE, command_tokenize, "token ids of a text, or the text of ids",
     "quire tokenize MODEL [-p TEXT | -f FILE | --decode IDS]",
     "  quire tokenize builtin -p \"Once upon a time\" --ids\n"
     "  quire tokenize builtin --decode 0,48,1314\n"},
    {"logits", CLI_LOGITS, command_logits, "every logit of a prompt, as a .npy file",
     "quire logits MODEL --ids 1,2,3 | --ids-file FILE  --out FILE.npy",
     "  quire logits model.gguf --ids 1,2,3 --out a.npy --compute f32\n"
     "  quire logits model.gguf --ids 1,2,3 --out b.npy --compute f32 --page-size 1 --chunk 1 --batch-with others.json\n"
     "  cmp a.npy b.npy                                        they are the same bytes\n"},
    {"inspect", CLI_INSPECT, command_inspect, "what a model file holds and the memory it needs", "quire inspect MODEL",
     "  quire inspect model.gguf --json\n"},
    {"pack", CLI_PACK, command_pack, "write a model as one file that starts in milliseconds and is shared between processes",
     "quire pack MODEL -o FILE [--compute MODE]",
     "  quire pack model.gguf -o model.quire\n"
     "  quire serve model.quire\n"},
    {"bench", CLI_BENCH, command_bench, "prefill and decode speed against what memory and arithmetic allow", "quire bench MODEL",
     "  quire bench model.gguf --batch 1,16 --context 128,1024\n"},
    {"sim", CLI_SIM, command_sim, "what a prefix cache of some size and policy finds in a trace of requests",
     "quire sim TRACE [--pages LIST] [--policy LIST|all]",
     "  quire sim conversation.jsonl --pages 100000,400000 --policy all --svg hits.svg\n"
     "  quire sim conversation.jsonl --compare --described llama-3-8b,a100-80gb --slo first=5,gap=0.1\n"
     "a trace: Mooncake's jsonl (timestamp, input_length, output_length, hash_ids), Azure's csv, or a line a request:\n"
     "  {\"t\": 1.5, \"tenant\": \"a\", \"prompt\": [[\"system\", 2000], [\"user 7\", 30]], \"output\": [[\"answer 7\", 150]]}\n"
     "where [\"name\", n] is the first n tokens of the text of that name, a number in the list a token id, and a number\n"
     "in its place so many tokens that no other request has; t in seconds\n"},
    {"bench speed", CLI_BENCH_SPEED, command_bench_speed, "a 1.1B model by type of weights, attention, memory: beside limits and goals",
     "quire bench speed",
     "  quire bench speed\n"
     "  quire bench speed --types q4_0,int8 --batch 1,32 --json\n"},
    {"bench roofline", CLI_BENCH_ROOFLINE, command_bench_roofline, "what this machine can read and compute at best", "quire bench roofline",
     "  quire bench roofline\n"
     "  quire bench roofline --threads 1,2 --isa avx2 --json\n"},
    {"bench profile", CLI_BENCH_PROFILE, command_bench_profile, "where the time of a step goes, stage by stage",
     "quire bench profile [MODEL]",
     "  quire bench profile\n"
     "  quire bench profile builtin --batch 4 --prompt 64 --per-layer\n"},
    {"bench kv", CLI_BENCH_KV, command_bench_kv, "time of the page pool's and the index's operations", "quire bench kv",
     "  quire bench kv\n"
     "  quire bench kv --threads 1,8 --pages 1000000 --json\n"},
    {"bench engine", CLI_BENCH_ENGINE, command_bench_engine, "the engine's own work in a step, without a model", "quire bench engine",
     "  quire bench engine\n"
     "  quire bench engine --running 256 --prompt 4096 --json\n"},
    {"bench memory", CLI_BENCH_MEMORY, command_bench_memory, "memory that pages take over the least that would do", "quire bench memory",
     "  quire bench memory\n"
     "  quire bench memory --shape 32,8,128 --weights 16060522496 --pages 16,64 --json\n"},
    {"bench preempt", CLI_BENCH_PREEMPT, command_bench_preempt, "swapping a sequence out and in against computing it again",
     "quire bench preempt MODEL",
     "  quire bench preempt builtin\n"
     "  quire bench preempt model.gguf --pages 1,16,256 --lengths 512,4096 --json\n"},
    {"bench attention", CLI_BENCH_ATTENTION, command_bench_attention, "how fast attention is by itself, and what pages cost it",
     "quire bench attention", "  quire bench attention --context 1024,32768 --threads 1 --json\n"},
    {"bench runs", CLI_BENCH_RUNS, command_bench_runs, "what block table entries for runs of adjacent pages would gain", "quire bench runs",
     "  quire bench runs\n"
     "  quire bench runs --shape 1,8,64 --context 131072       a group of one layer: its pages lie closer together\n"},
    {"bench serving", CLI_BENCH_SERVING, command_bench_serving, "requests a second under a bound on latency, simulated or really served",
     "quire bench serving [MODEL]",
     "  quire bench serving --described opt-13b,a100-40gb --lengths sharegpt --rate 2 --slo token=0.2\n"
     "  quire bench serving builtin --lengths alpaca --rate 30 --requests 500 --cost cost.json\n"
     "  quire bench serving builtin --trace requests.jsonl --shrink 64 --speed 10 --calibrate\n"
     "without a MODEL nothing is run: the engine's planner is, on a described device or one that was calibrated\n"},
    {"bench calibrate", CLI_BENCH_CALIBRATE, command_bench_calibrate, "what a step of a model costs on this machine",
     "quire bench calibrate MODEL [--out FILE]",
     "  quire bench calibrate builtin --out cost.json\n"
     "  quire sim requests.jsonl --cost cost.json --speed 10\n"},
    {"bench sampler", CLI_BENCH_SAMPLER, command_bench_sampler, "what choosing a token costs", "quire bench sampler",
     "  quire bench sampler --vocabulary 32000 --rows 256\n"},
    {"bench kernels", CLI_BENCH_KERNELS, command_bench_kernels, "matrix products by type of weights and number of rows",
     "quire bench kernels", "  quire bench kernels --types int8,q4_0 --rows 1,16,512 --threads 1,2\n"},
    {"bench stall", CLI_BENCH_STALL, command_bench_stall, "how much a long prompt slows the streams beside it", "quire bench stall MODEL",
     "  quire bench stall model.gguf --step-target-ms 50 --prompt 8192\n"},
    {"bench start", CLI_BENCH_START, command_bench_start, "from exec to a model's first token", "quire bench start MODEL",
     "  quire bench start model.quire\n"
     "  quire bench start model.gguf --compute int8 --runs 20 --json\n"},
    {"bench pages", CLI_EXPERIMENT, command_bench_pages, "speed, waste and tables by page size", "quire bench pages",
     "  quire bench pages --pages 4,16,64\n"},
    {"bench sharing", CLI_EXPERIMENT, command_bench_sharing, "what sharing a prompt's pages among its answers saves", "quire bench sharing",
     "  quire bench sharing --samples 2,4,6\n"},
    {"bench prefix", CLI_EXPERIMENT, command_bench_prefix, "what the prefix index costs strangers, and what it saves", "quire bench prefix",
     "  quire bench prefix --runs 15 --threads 1\n"},
    {"bench workload", CLI_EXPERIMENT, command_bench_workload, "speed and hit rate of kinds of requests, by cache and policy",
     "quire bench workload [NAME]",
     "  quire bench workload chatbot                           also: mmlu5 gsm8k react json long chat unique\n"},
    {"bench ablation", CLI_EXPERIMENT, command_bench_ablation, "workloads with one mechanism switched off", "quire bench ablation [NAME]",
     "  quire bench ablation chat --json\n"},
    {"bench scenario", CLI_EXPERIMENT, command_bench_scenario, "memory and speed of a model, alone and with others",
     "quire bench scenario [NAME]", "  quire bench scenario mixed-random                      also: single mixed chat long\n"},
    {"bench tiers", CLI_BENCH_TIERS, command_bench_tiers, "first tokens of prompts that come back from host memory, file, Redis",
     "quire bench tiers MODEL",
     "  quire bench tiers builtin\n"
     "  quire bench tiers model.gguf --kv-tier-file /nvme/tier --kv-tier-redis redis://127.0.0.1 --lengths 1000,8000\n"},
    {"demo", CLI_DEMO, command_demo, "what paging and continuous batching are for, shown", "quire demo [NAME]",
     "  quire demo                                             lists the demonstrations\n"
     "  quire demo radix --page-size 4\n"
     "  quire demo waste --lengths 10,199,25,199 --max-tokens 200 --json\n"},
};

enum { N_COMMANDS = (int)(sizeof commands / sizeof commands[0]) };

static void print_help(void) {
    printf("quire %s: runs and serves language models\n\nusage: quire COMMAND [MODEL] [flags]\n\n", quire_version());
    for (int i = 0; i < N_COMMANDS; i++) {
        printf("  %-12s %s\n", commands[i].name, commands[i].summary);
    }
    printf("\nMODEL is a .gguf file, a Hugging Face directory, a packed model (quire pack), or `builtin`, a tiny model in here.\n"
           "`quire COMMAND --help` lists a command's flags; `quire --version` prints the version.\n\n"
           "  quire run -p \"The prince looked at her and\"    the built-in model goes on\n"
           "  quire run model.gguf                           chat\n"
           "  quire serve model.gguf                         OpenAI's API on http://127.0.0.1:8000\n");
}

static void print_command_help(const command *c, bool all) {
    printf("usage: %s\n%s\n\n", c->usage, c->summary);
    cli_options_help(c->flag, all);
    printf("\nexamples:\n%s", c->examples);
}

/* Reads the flags, runs the command; the exit status. */
static int dispatch(const command *c, int argc, char **argv) {
    cli_options o;
    quire_error err = {.code = QUIRE_OK, .position = -1};
    if (cli_options_init(&o) != QUIRE_OK) {
        log_line(LOG_ERROR, "out of memory");
        return 1;
    }
    int status = 0;
    if (cli_options_parse(&o, c->flag, argc, argv, &err) != QUIRE_OK) {
        log_line(LOG_ERROR, "%s", err.message);
        status = 2;
    } else if (o.help || o.help_all) {
        print_command_help(c, o.help_all);
    } else {
        quire_err e = c->run(&o, &err);
        if (e != QUIRE_OK) {
            log_line(LOG_ERROR, "%s", err.message[0] ? err.message : quire_err_text(e));
            status = e == QUIRE_INVALID ? 2 : 1;
        }
    }
    cli_options_deinit(&o);
    return status;
}

/* How many of the arguments a command's name takes: one for each of its words, 0 when they are others. */
static int count_words(const char *name, int argc, char **argv) {
    int n = 0;
    for (const char *p = name; *p; n++) {
        size_t length = strcspn(p, " ");
        if (n == argc || strlen(argv[n]) != length || strncmp(argv[n], p, length) != 0) {
            return 0;
        }
        p += length + (p[length] == ' ');
    }
    return n;
}

static int run_main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "--help";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help();
        return argc > 1 ? 0 : 2;
    }
    if (strcmp(name, "--version") == 0) {
        printf("quire %s\n", quire_version());
        return 0;
    }
    for (int i = N_COMMANDS - 1; i >= 0; i--) { /* a command of two words stands behind that of its first */
        int n_words = count_words(commands[i].name, argc - 1, argv + 1);
        if (n_words > 0) {
            return dispatch(&commands[i], argc - 1 - n_words, argv + 1 + n_words);
        }
    }
    log_line(LOG_ERROR, "%s: no such command; `quire --help` lists them", name);
    return 2;
}

int main(int argc, char **argv) {
    setlocale(LC_CTYPE, "");
    standard_files_open();
    return standard_files_finish(run_main(argc, argv));
}
