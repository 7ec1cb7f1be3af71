/* Command line flags that are not engine options, and groups of flags that several
 * commands take. */
#ifndef CLI_FLAGS_H
#define CLI_FLAGS_H

#include "cli/options.h"
#include "options/engine_flags.h"

/* Flags of vLLM and llama-server that scripts may still pass: accepted without effect, or
 * refused with the reason (docs/flags.md). A command's own flags take precedence. */
extern const flag flags_carried[];

/* Each group ends with a flag without names. */
/* flags_help is the last group of every command; flags_help_all follows if any of the
 * command's flags is rarely needed */
extern const flag flags_help[], flags_help_all[];
extern const flag flags_json[], flags_quiet[], flags_hub[], flags_hub_model[], flags_prompt[], flags_out[],
    flags_chat_template[];

/* The struct that flag f's offset refers to. */
static inline void *cli_options_of(cli_options *o, const flag *f) {
    return f->of == FLAG_OF_SERVER ? (void *)&o->server : o;
}

/* Flags that choose the model. */
#define FLAGS_MODEL flags_model, flags_hub_model, flags_hub, flags_overrides

/* Groups of every command with an engine; other groups may stand between them. */
#define FLAGS_KV      flags_kv_dtype, flags_kv_values
#define FLAGS_NUMERIC flags_compute, FLAGS_KV, flags_state_dtype, flags_prefix_cache
#define FLAGS_MACHINE flags_isa, flags_threads, flags_cpu_bind
#define FLAGS_BATCH   flags_model_len, flags_step_rows, flags_seqs, flags_chunk, flags_page_size, flags_pool
#define FLAGS_MEMORY                                                                                         \
    flags_memory, flags_tier_file, flags_tier_file_bytes, flags_tier_redis, flags_tier_limits, flags_quiet,  \
        flags_help, flags_help_all

#endif
