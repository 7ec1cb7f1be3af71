/* The options of an engine, one row for each member of quire_options that a user may set.
 *
 * Rows form groups; a command lists groups in the order of its help. Each group ends with
 * a flag whose names are NULL. */
#ifndef OPTIONS_ENGINE_FLAGS_H
#define OPTIONS_ENGINE_FLAGS_H

#include "options/flag.h"
#include "quire.h"

extern const flag flags_model[], flags_overrides[], flags_generation_config[], flags_tokenizer[],
    flags_template_text[];
extern const flag flags_message_tokens[], flags_answers[], flags_attention[], flags_compute[],
    flags_quantization[], flags_kv_dtype[], flags_kv_values[], flags_state_dtype[];
extern const flag flags_prefix_cache[], flags_snapshots[], flags_lora[], flags_eviction[], flags_audit[],
    flags_schedule[], flags_schedule_lambda[], flags_step_target[];
extern const flag flags_isa[], flags_threads[], flags_cpu_bind[], flags_text[], flags_trust[],
    flags_answer_limits[];
extern const flag flags_model_len[], flags_step_rows[], flags_seqs[], flags_chunk[], flags_page_size[],
    flags_pool[], flags_models_memory[], flags_mlock[];
extern const flag flags_pack_cache[], flags_pack_cache_limits[], flags_memory[], flags_tier_file[],
    flags_tier_file_bytes[];
extern const flag flags_tier_redis[], flags_tier_limits[];

/* All groups of an engine's flags; ends with NULL. */
extern const flag *const engine_flags[];

/* Lists of choices that several options use; each ends with a NULL spelling. */
extern const flag_choice choices_compute[], choices_kv_dtype[], choices_prefix_cache[], choices_isa[],
    choices_schedule[];
extern const flag_choice choices_preemption[], choices_eviction[];

/* Finds a flag by any of its names, with or without leading dashes, its words joined by
 * '-' or '_'. NULL: there is none. */
const flag *engine_flag_find(const char *name);

#endif
