/* Shared by some commands: measurements that one takes for another (each in its command's
 * file), options and flags of the experiments, and the texts of those that score one. */
#ifndef LAB_COMMANDS_MEASURES_H
#define LAB_COMMANDS_MEASURES_H

#include "base/err.h"
#include "base/str.h"
#include "cli/files.h"
#include "core/kv_layout.h"
#include "core/model_desc.h"
#include "file/model_file.h"
#include "lab/bench/lab.h"
#include "lab/bench/model_shape.h"
#include "lab/bench/op_profile.h"
#include "lab/commands/lab_commands.h"
#include "text/tokenizer.h"

/* bench profile: the costs of n_steps decodes of `batch` sequences with a model of random
 * weights; out->layers is NULL. Uses o's threads and instruction set. */
quire_err profile_decode(const quire_options *o, int32_t batch, int32_t n_steps, step_costs *out,
                         quire_error *err);

/* Milliseconds from before the program is started to its first bytes of output for the
 * logits of a one-token prompt. */
typedef struct start_figure {
    double least_ms, median_ms;
} start_figure;

/* All with the files in the page cache: a first start is not counted. */
typedef struct start_times {
    start_figure first;  /* with an empty pack cache; for a packed model, without one */
    start_figure second; /* with the entry that an earlier start has written */
    bool has_second;     /* false for packed models and the built-in one, which are never cached */
    double token_ms;     /* least time of the same request in an open engine */
} start_times;

/* bench start: starts quire, found beside quire-lab or in PATH, repeatedly. Uses o's
 * model, compute mode, KV type, threads and instruction set. */
quire_err start_measure(const quire_options *o, int32_t n_runs, start_times *out, quire_error *err);

/* Whether a model of random weights is made, and whether it gets ids alone or texts, for
 * which it needs --tokenizer. */
typedef enum shaped_use { SHAPED_NOT, SHAPED_IDS, SHAPED_TEXTS } shaped_use;

/* Opens a model for names given to --shape and --type, and makes it e's model; refuses
 * flags that would have no effect. Close *out unless this fails. */
quire_err shaped_open(const cli_options *o, const char *shape, const char *type, shaped_use use,
                      quire_options *e, synthetic *out, quire_error *err);
#define SHAPE_FLAGS                                                                                          \
    {"--shape", "NAME", "random weights of a published shape, as in bench speed --shape", TEXT(shape)}, {    \
        "--type", "TYPE", "of its weights: q4_0, q8_0, q4_k, mxfp4, int8, bf16, f32", TEXT(type)             \
    }

/* bench speed */
typedef struct bench_speed_options {
    cli_options cli;
    const char *types;   /* types of weights: "q4_0,q8_0,q4_k,int8,bf16"; NULL: these, or q4_0 with shapes */
    const char *batches; /* sequences that decode together: "1,4,16,32" */
    /* NULL: the 1.1B model compared with limits; else these models compared with it:
     * "qwen3-0.6b,mixtral", "all" */
    const char *shapes;
    const char *isa;
    int32_t n_threads; /* 0: one per core */
    int32_t n_runs;    /* runs per figure, for mean and spread */
    int32_t context;   /* longest context of attention alone */
    bool small;        /* a model of a few million weights, to test that everything works */
} bench_speed_options;

/* bench speed --shape: compares models of published shapes with Llama's. Measures and
 * prints to stdout. INVALID: an unknown shape. Parts that do not fit in memory are left
 * out with a message. */
quire_err bench_shapes_run(const bench_speed_options *o, quire_error *err);

/* Options of the experiments, `quire bench pages|sharing|prefix|workload|ablation`, whose
 * runs alternate and of which the fastest counts. NULL or 0: the experiment chooses. The
 * argument selects a workload; NULL: all. */
typedef struct experiment_options {
    cli_options cli;
    const char *pages; /* tokens per page, "1,16,256" */
    const char *as;    /* workload: ways to run programs, "program,requests"; NULL: requests by cache */
    const char *data;  /* workload --as: a directory of texts; NULL: tokens are drawn */
    /* workload --as: random weights of a published shape instead of the model, and their
     * type; NULL: none */
    const char *shape, *type;
    const char *samples; /* answers per prompt, "2,4,6" */
    int32_t n_prompt;    /* sharing: tokens of each prompt */
    int32_t n_output;    /* sharing: tokens of each answer */
    int32_t n_runs;
} experiment_options;

void experiment_defaults(cli_options *o);
extern const flag flags_experiment[], flags_experiment_page[];

/* The row of an experiment, whose function is experiment_NAME; its own flags come
 * last. */
#define EXPERIMENT(own, follows, parsed, does, how, ...)                                                     \
    LAB_COMMAND_OF(bench_##own, experiment_options, experiment_defaults, experiment_##own, "bench " #own,    \
                   follows, parsed, does, how, __VA_ARGS__, flags_experiment, flags_compute, FLAGS_KV,       \
                   flags_threads, flags_json, flags_help)

/* bench_programs.c: bench workload --as. */
quire_err experiment_programs(const experiment_options *o, quire_error *err);

/* bench_workload.c: the last table of bench ablation. machine: from lab_describe. */
quire_err experiment_batching(const experiment_options *o, const char *machine, quire_error *err);

/* What a command that scores a text calls it: the name of its file, or of --ids-file. */
static inline const char *scored_name(const cli_options *o) {
    return o->ids_file ? o->ids_file : o->argument;
}
/* Describes the model and appends to ids the tokens of the text that the command `name`
 * scores: of a file, with what the tokenizer puts before a text (BOS), or of --ids-file as
 * given. QUIRE_UNSUPPORTED: the model generates no tokens. QUIRE_INVALID: o names not one
 * of both; an id that the model lacks, or text for a model without a vocabulary; or the
 * errors of reading. */
quire_err scored_tokens(const cli_options *o, const char *name, const model_file *f, model_desc *d,
                        token_list *ids, quire_error *err);

#endif
