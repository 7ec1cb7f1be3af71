/* The command line: one table of flags for every command, and the options it fills.
 *
 * A flag has our name first, then its aliases (vLLM's names, llama.cpp's short ones). Flags that are request fields are kept as JSON under
 * their OpenAI names, so that the API's own table judges their values. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "cli/body.h"

#include "base/str.h"
#include "cli/files.h"
#include "lab/bench/bench.h"
#include "lab/bench/bench_attention.h"
#include "lab/bench/bench_calibrate.h"
#include "lab/bench/bench_engine.h"
#include "lab/bench/bench_kernels.h"
#include "lab/bench/bench_kv.h"
#include "lab/bench/bench_memory.h"
#include "lab/bench/bench_preempt.h"
#include "lab/bench/bench_profile.h"
#include "lab/bench/bench_roofline.h"
#include "lab/bench/bench_sampler.h"
#include "lab/bench/bench_serving.h"
#include "lab/bench/bench_speed.h"
#include "lab/bench/bench_stall.h"
#include "lab/bench/bench_start.h"
#include "lab/bench/bench_tiers.h"
#include "lab/bench/experiment.h"
#include "lab/bench/runs.h"
#include "lab/demo/demo.h"
#include "lab/sim/sim.h"
#include "quire.h"
#include "server/server.h"

#define CLI_MAX_API_KEYS 64
#define CLI_MAX_PREFIXES 16

typedef enum cli_command {
    CLI_RUN = 1,
    CLI_SERVE = 2,
    CLI_TOKENIZE = 4,
    CLI_LOGITS = 8,
    CLI_INSPECT = 16,
    CLI_BENCH = 32,
    CLI_SIM = 64,
    CLI_BENCH_KV = 128,
    CLI_BENCH_MEMORY = 256,
    CLI_DEMO = 512,
    CLI_BENCH_RUNS = 1024,
    CLI_BENCH_PREEMPT = 2048,
    CLI_BENCH_SERVING = 4096,
    CLI_BENCH_CALIBRATE = 8192,
    CLI_BENCH_STALL = 16384,
    CLI_EXPERIMENT = 32768, /* bench pages, sharing, prefix, workload, ablation, scenario */
    CLI_BENCH_TIERS = 65536,
    CLI_BENCH_SAMPLER = 131072,
    CLI_BENCH_ENGINE = 262144,
    CLI_BENCH_KERNELS = 524288,
    CLI_BENCH_ROOFLINE = 1048576,
    CLI_BENCH_ATTENTION = 2097152,
    CLI_PACK = 4194304,
    CLI_BENCH_PROFILE = 8388608,
    CLI_BENCH_SPEED = 16777216,
    CLI_BENCH_START = 33554432
} cli_command;

typedef struct cli_options {
    quire_options engine;
    server_options server;
    bench_options bench;
    sim_options sim;
    bench_kv_options bench_kv;
    bench_memory_options bench_memory;
    bench_preempt_options bench_preempt;
    bench_tiers_options bench_tiers;
    bench_engine_options bench_engine;
    bench_roofline_options bench_roofline;
    bench_profile_options bench_profile;
    bench_speed_options bench_speed;
    bench_runs_options bench_runs;
    bench_attention_options bench_attention;
    bench_stall_options bench_stall;
    bench_start_options bench_start;
    bench_sampler_options bench_sampler;
    bench_kernels_options bench_kernels;
    demo_options demo;
    bench_serving_options bench_serving;
    calibrate_options calibrate;
    experiment_options experiment;
    const char *api_keys[CLI_MAX_API_KEYS];
    const char *prompt, *prompt_file, *system; /* NULL: not given */
    const char *prompts, *out;
    const char *ids, *ids_file, *batch_with;
    const char *chat_template;                 /* as given: a file or the text */
    strbuf template_text;                      /* owned: what engine.chat_template points to when it was a file */
    const char *prefix_files[CLI_MAX_PREFIXES];
    strbuf prefix_texts[CLI_MAX_PREFIXES];     /* owned: what engine.public_prefixes points to, and ids where the file has those */
    id_list prefix_ids[CLI_MAX_PREFIXES];
    quire_prefix prefixes[CLI_MAX_PREFIXES];
    body fields;                             /* owned: request fields that flags set */
    int32_t n_predict;                         /* -1: until the model ends or the sequence is full */
    bool echo, complete, json, show_ids, quiet, resume, help, help_all;
    int n_arguments;                         /* as given behind the command's name, borrowed */
    char **arguments;
} cli_options;

/* Defaults; cli_options_deinit frees what parsing added. argv is borrowed until then. */
quire_err cli_options_init(cli_options *o);
void cli_options_deinit(cli_options *o);

/* Reads the arguments after the command's name. INVALID: err names the flag and says what to do. */
quire_err cli_options_parse(cli_options *o, cli_command command, int argc, char **argv, quire_error *err);

/* Prints the command's flags, one a line; all: those that are seldom needed too. */
void cli_options_help(cli_command command, bool all);

#endif
