#include "options/engine_flags.h"

#include <stdio.h>
#include <string.h>

#define AT(member) .offset = offsetof(quire_options, member)
#define MiB        (1024.0 * 1024.0)
#define GiB        (1024.0 * MiB)
#define MOST_BYTES .maximum = 0x1p62

/* ---- choices ---- */

const flag_choice choices_compute[] = {
    {"auto", NULL, QUIRE_COMPUTE_AUTO},
    {"f32", NULL, QUIRE_COMPUTE_F32},
    {"float32", NULL, QUIRE_COMPUTE_F32},
    {"float", NULL, QUIRE_COMPUTE_F32},
    {"bf16", NULL, QUIRE_COMPUTE_BF16},
    {"bfloat16", NULL, QUIRE_COMPUTE_BF16},
    {"int8", NULL, QUIRE_COMPUTE_INT8},
    {"fp8", NULL, QUIRE_COMPUTE_FP8},
    {0},
};
const flag_choice choices_kv_dtype[] = {
    {"auto", NULL, QUIRE_KV_AUTO},
    {"f32", NULL, QUIRE_KV_F32},
    {"float32", NULL, QUIRE_KV_F32},
    {"f16", NULL, QUIRE_KV_F16},
    {"float16", NULL, QUIRE_KV_F16},
    {"half", NULL, QUIRE_KV_F16},
    {"bf16", NULL, QUIRE_KV_BF16},
    {"bfloat16", NULL, QUIRE_KV_BF16},
    {"fp8_e4m3", NULL, QUIRE_KV_FP8_E4M3},
    {"fp8", NULL, QUIRE_KV_FP8_E4M3},
    {"int8", NULL, QUIRE_KV_INT8},
    {"q8_0", NULL, QUIRE_KV_INT8},
    {"int4", NULL, QUIRE_KV_INT4},
    {"q4_0", NULL, QUIRE_KV_INT4},
    {0},
};
const flag_choice choices_prefix_cache[] = {{"none", NULL, QUIRE_PREFIX_CACHE_NONE},
                                            {"page", NULL, QUIRE_PREFIX_CACHE_PAGE},
                                            {"token", NULL, QUIRE_PREFIX_CACHE_TOKEN},
                                            {0}};
const flag_choice choices_schedule[] = {
    {"auto", NULL, QUIRE_SCHEDULE_AUTO},         {"fcfs", NULL, QUIRE_SCHEDULE_FCFS},
    {"priority", NULL, QUIRE_SCHEDULE_PRIORITY}, {"prefix", NULL, QUIRE_SCHEDULE_PREFIX},
    {"fair", NULL, QUIRE_SCHEDULE_FAIR},         {0}};
const flag_choice choices_preemption[] = {{"auto", NULL, QUIRE_PREEMPTION_AUTO},
                                          {"recompute", NULL, QUIRE_PREEMPTION_RECOMPUTE},
                                          {"swap", NULL, QUIRE_PREEMPTION_SWAP},
                                          {0}};
const flag_choice choices_eviction[] = {{"lru", NULL, QUIRE_EVICTION_LRU},
                                        {"lfu", NULL, QUIRE_EVICTION_LFU},
                                        {"gdsf", NULL, QUIRE_EVICTION_GDSF},
                                        {"learned", NULL, QUIRE_EVICTION_LEARNED},
                                        {0}};
const flag_choice choices_isa[] = {{"auto", "auto", 0},
                                   {"plain", "plain", 0},
                                   {"avx2", "avx2", 0},
                                   {"avxvnni", "avxvnni", 0},
                                   {"avx512", "avx512", 0},
                                   {"amx", "amx", 0},
                                   {"avx512bf16", "avx512bf16", 0},
                                   {"neon", "neon", 0},
                                   {"i8mm", "i8mm", 0},
                                   {0}};
static const flag_choice state_dtypes[] = {{"f32", NULL, QUIRE_STATE_F32},
                                           {"float32", NULL, QUIRE_STATE_F32},
                                           {"bf16", NULL, QUIRE_STATE_BF16},
                                           {"bfloat16", NULL, QUIRE_STATE_BF16},
                                           {0}};
static const flag_choice quantizations[] = {
    {"q8_0", "q8_0", 0},
    {"q6_k", "q6_k", 0},
    {"q5_k", "q5_k", 0},
    {"q4_k", "q4_k", 0},
    {"q4_0", "q4_0", 0},
    {"iq4_xs", "iq4_xs", 0},
    {"mxfp4", "mxfp4", 0},
    {"int8", "int8", 0},
    {"fp8", "fp8", 0},
    {"gguf", "published:gguf", 0},
    {"compressed-tensors", "published:compressed-tensors", 0},
    {"gptq", "published:gptq", 0},
    {"gptq_marlin", "published:gptq", 0},
    {"awq", "published:awq", 0},
    {"awq_marlin", "published:awq", 0},
    {"w8a8_int8", "published:compressed-tensors", 0},
    {"w8a8_fp8", "published:compressed-tensors", 0},
    {"fbgemm_fp8", "published:fbgemm_fp8", 0},
    {"modelopt", "published:modelopt", 0},
    {"modelopt_fp8", "published:modelopt", 0},
    {"modelopt_fp4", "published:modelopt", 0},
    {"bitsandbytes", "published:bitsandbytes", 0},
    {"quark", "published:quark", 0},
    {"auto-round", "published:auto-round", 0},
    {0},
};
static const flag_choice message_tokens[] = {
    {"plain", NULL, QUIRE_MESSAGE_TOKENS_PLAIN}, {"parse", NULL, QUIRE_MESSAGE_TOKENS_PARSE}, {0}};
static const flag_choice conversions[] = {{"none", NULL, QUIRE_CONVERT_REQUESTED},
                                          {"auto", NULL, QUIRE_CONVERT_REQUESTED},
                                          {"embed", NULL, QUIRE_CONVERT_LAST},
                                          {0}};
static const flag_choice runners[] = {{"generate", NULL, QUIRE_CONVERT_REQUESTED},
                                      {"auto", NULL, QUIRE_CONVERT_REQUESTED},
                                      {"pooling", NULL, QUIRE_CONVERT_LAST},
                                      {0}};
static const flag_choice tier_writes[] = {
    {"evict", NULL, QUIRE_TIER_WRITE_EVICT}, {"through", NULL, QUIRE_TIER_WRITE_THROUGH}, {0}};
static const flag_choice cache_on[] = {{"token", NULL, QUIRE_PREFIX_CACHE_TOKEN}, {0}};
static const flag_choice cache_off[] = {{"none", NULL, QUIRE_PREFIX_CACHE_NONE}, {0}};
static const flag_choice additional[] = {
    {"closed", NULL, QUIRE_JSON_PROPERTIES_CLOSED}, {"schema", NULL, QUIRE_JSON_PROPERTIES_SCHEMA}, {0}};
static const flag_choice spaces[] = {{"compact", NULL, QUIRE_JSON_SPACE_COMPACT},
                                     {"lines", NULL, QUIRE_JSON_SPACE_LINES},
                                     {"any", NULL, QUIRE_JSON_SPACE_ANY},
                                     {0}};
static const flag_choice compact[] = {{"compact", NULL, QUIRE_JSON_SPACE_COMPACT}, {0}};
static const flag_choice on_or_off[] = {
    {"on", NULL, QUIRE_JUMP_FORWARD_ON}, {"off", NULL, QUIRE_JUMP_FORWARD_OFF}, {0}};

/* ---- the model ---- */

const flag flags_model[] = {
    {"--model -m", "MODEL", "a .gguf file, Hugging Face directory, packed model, builtin, or ORG/NAME",
     FLAG_TEXT, AT(model), .text = "builtin"},
    {0},
};
const flag flags_overrides[] = {
    {"--hf-overrides", "JSON", "an object merged into config.json: {\"max_position_embeddings\":8192}",
     FLAG_TEXT, AT(hf_overrides), .rare = true},
    {"--override-kv", "KEY=TYPE:VALUE",
     "override a GGUF key; TYPE is int, float, bool, str or arr; separate several with commas (repeatable)",
     FLAG_LIST, AT(override_kv), .rare = true},
    {0},
};
const flag flags_generation_config[] = {
    {"--generation-config", "auto|none|PATH",
     "where sampling defaults come from; auto: the model's own files", FLAG_TEXT, AT(generation_config),
     .text = "auto"},
    {0},
};
const flag flags_tokenizer[] = {
    {"--tokenizer", "PATH", "a tokenizer to use instead of the model's: a directory, or a file of any format",
     FLAG_TEXT, AT(tokenizer), .rare = true},
    {0},
};
const flag flags_template_text[] = {
    {"--chat-template", "TEXT", "a Jinja template to use instead of the model's", FLAG_TEXT,
     AT(chat_template)},
    {0},
};
const flag flags_message_tokens[] = {
    {"--special-tokens-in-messages", NULL,
     "how a special token's text in a chat message is read: as plain text, or parsed as the token",
     FLAG_CHOICE, AT(special_tokens_in_messages), .choices = message_tokens, .rare = true},
    {0},
};
const flag flags_answers[] = {
    {"--tool-call-parser", "NAME",
     "format of tool calls: auto (from the chat template), none, or a name from docs/tools.md", FLAG_TEXT,
     AT(tool_call_parser), .text = "auto", .rare = true},
    {"--reasoning-parser", "NAME",
     "format of reasoning: auto (from the chat template), none, or a name from docs/tools.md", FLAG_TEXT,
     AT(reasoning_parser), .text = "auto", .rare = true},
    {"--convert", NULL,
     "default pooling for embeddings of a model that generates text: none, or (embed) its last token",
     FLAG_CHOICE, AT(convert), .choices = conversions, .rare = true},
    {"--runner", NULL, "pooling: the same as --convert embed", FLAG_CHOICE, AT(runner), .choices = runners,
     .rare = true},
    {0},
};
const flag flags_attention[] = {
    {"--mask-mod", "TEXT", "expression that further limits which keys a query sees: 'q_idx - kv_idx < 64'",
     FLAG_TEXT, AT(mask_mod), .rare = true},
    {"--score-mod", "TEXT", "expression that changes attention scores: 'score + slope[h] * (kv_idx - q_idx)'",
     FLAG_TEXT, AT(score_mod), .rare = true},
    {"--attention-arrays", "FILE", "an .npz file with the arrays that --mask-mod and --score-mod name",
     FLAG_TEXT, AT(attention_arrays), .rare = true},
    {0},
};

/* ---- numbers ---- */

#define ROW_QUANTIZATION                                                                                     \
    {                                                                                                        \
        "--quantization", NULL, "quantise 16-bit weights while loading", FLAG_NAME, AT(quantization),        \
            .choices = quantizations, .others = "the file's own type, without effect"                        \
    }
const flag flags_compute[] = {
    {"--compute --dtype", NULL, "how matrix products are computed", FLAG_CHOICE, AT(compute),
     .choices = choices_compute},
    ROW_QUANTIZATION,
    {0},
};
const flag flags_quantization[] = {ROW_QUANTIZATION, {0}};
const flag flags_kv_dtype[] = {
    {"--kv-dtype --kv-cache-dtype -ctk --cache-type-k", NULL, "type of stored keys and values", FLAG_CHOICE,
     AT(kv_dtype), .choices = choices_kv_dtype},
    {0},
};
const flag flags_kv_values[] = {
    {"--cache-type-v -ctv", NULL, "type of stored values; auto: the same as the keys", FLAG_CHOICE,
     AT(kv_dtype_values), .choices = choices_kv_dtype, .rare = true},
    {0},
};

const flag flags_state_dtype[] = {
    {"--state-dtype", NULL, "type of recurrent states; bf16 rounds them after each token, in half the memory",
     FLAG_CHOICE, AT(state_dtype), .choices = state_dtypes, .rare = true},
    {0},
};

/* ---- the prefix cache, the scheduler ---- */

const flag flags_prefix_cache[] = {
    {"--prefix-cache", NULL, "reuse the beginnings of earlier prompts, by token or by page", FLAG_CHOICE,
     AT(prefix_cache), .choices = choices_prefix_cache, .number = QUIRE_PREFIX_CACHE_TOKEN},
    {"--enable-prefix-caching --cache-prompt", NULL, "as --prefix-cache token", FLAG_SYNONYM,
     AT(prefix_cache), .choices = cache_on},
    {"--no-enable-prefix-caching --no-cache-prompt", NULL, "as --prefix-cache none", FLAG_SYNONYM,
     AT(prefix_cache), .choices = cache_off},
    {0},
};
const flag flags_snapshots[] = {
    {"--state-snapshot-tokens", "N",
     "also snapshot recurrent states every N tokens, not only where messages end; 0: off", FLAG_COUNT,
     AT(state_snapshot_tokens), .minimum = 0, .maximum = INT32_MAX, .rare = true},
    {"--state-snapshot-bytes", "BYTES",
     "most memory for snapshots of recurrent states; 0: half of the KV pages", FLAG_BYTES,
     AT(state_snapshot_bytes), MOST_BYTES, .rare = true},
    {0},
};
const flag flags_lora[] = {
    {"--enable-lora", NULL,
     "let requests name LoRA adapters; implied by --lora-modules, --lora-dir and --lora", FLAG_SWITCH,
     AT(enable_lora), .rare = true},
    {"--lora-modules", "NAME=PATH",
     "a LoRA adapter (a path, or ORG/NAME) for requests that name it (repeatable)", FLAG_LINES,
     AT(lora_modules)},
    {"--lora-dir", "DIR", "directory from which adapters are loaded when a request first names them",
     FLAG_TEXT, AT(lora_dir), .rare = true},
    {"--lora --lora-scaled", "FILE",
     "apply a LoRA adapter to requests that name none; FILE:SCALE or FILE SCALE", FLAG_SCALED, AT(loras),
     .rare = true},
    {"--lora-init-without-apply", NULL,
     "start the adapters of --lora with scale 0; POST /lora-adapters sets it", FLAG_SWITCH,
     AT(lora_init_without_apply), .rare = true},
    {"--max-loras", "N", "most LoRA adapters that run at once", FLAG_COUNT, AT(max_loras), .minimum = 1,
     .maximum = 256, .number = 8, .rare = true},
    {"--max-lora-rank", "N", "largest rank of a LoRA adapter", FLAG_COUNT, AT(max_lora_rank), .minimum = 1,
     .maximum = 256, .number = 64, .rare = true},
    {"--max-cpu-loras", "N", "most LoRA adapters loaded at once; 0: four times --max-loras", FLAG_COUNT,
     AT(max_cpu_loras), .minimum = 0, .maximum = 1000000, .rare = true},
    {0},
};
const flag flags_eviction[] = {
    {"--eviction-policy", NULL, "which cached page is evicted first", FLAG_CHOICE, AT(eviction_policy),
     .choices = choices_eviction, .rare = true},
    {0},
};
const flag flags_audit[] = {
    {"--audit", "FILE", "record live, reserved and wasted bytes at each page allocation in FILE", FLAG_TEXT,
     AT(audit), .rare = true},
    {0},
};
const flag flags_schedule[] = {
    {"--schedule --scheduling-policy", NULL, "admission order; auto: fair with several keys, else fcfs",
     FLAG_CHOICE, AT(schedule), .choices = choices_schedule},
    {0},
};
const flag flags_schedule_lambda[] = {
    {"--schedule-lambda", "N", "with --schedule prefix: cached tokens that one second of waiting outweighs",
     FLAG_PART, AT(schedule_lambda), .minimum = 1e-9, .maximum = 1e9, .number = 500.0, .rare = true},
    {0},
};
const flag flags_step_target[] = {
    {"--step-target-ms", "MS", "target for the longest step while streams decode; 0: no limit",
     FLAG_MILLISECONDS, AT(step_target_us), .minimum = 0, .maximum = 1e7, .number = 100000, .rare = true},
    {0},
};

/* ---- the machine ---- */

const flag flags_isa[] = {
    {"--isa", NULL, "instruction set of the kernels", FLAG_NAME, AT(isa), .choices = choices_isa,
     .text = "auto", .rare = true},
    {0},
};
const flag flags_threads[] = {
    {"--threads -t", "N", "compute threads; 0: one per core", FLAG_COUNT, AT(n_threads), .minimum = 0,
     .maximum = 1024},
    {0},
};
const flag flags_cpu_bind[] = {
    {"--cpu-bind", "WHERE",
     "pin threads to processors: none, auto (if they fill the cores), or a list: 0-3,8", FLAG_TEXT,
     AT(cpu_bind), .text = "none", .rare = true},
    {0},
};

/* ---- text ---- */

const flag flags_trust[] = {
    {"--trust-request-attention", NULL,
     "let requests carry their own attention masks and score changes (docs/attention.md)", FLAG_SWITCH,
     AT(trust_request_attention), .rare = true},
    {"--trust-request-chat-template", NULL, "let a request's chat_template field be the text of a template",
     FLAG_SWITCH, AT(trust_request_chat_template), .rare = true},
    {0},
};
const flag flags_answer_limits[] = {
    {"--max-answer-bytes", "BYTES", "refuse requests whose answer could be larger than this as JSON; 0: none",
     FLAG_BYTES, AT(max_answer_bytes), MOST_BYTES, .rare = true},
    {"--max-tool-calls", "N", "most tool calls in one answer", FLAG_COUNT, AT(max_tool_calls), .minimum = 1,
     .maximum = 1024, .number = 16, .rare = true},
    {"--max-logprobs", "N",
     "most top_logprobs that a request may ask for; below 20 it bounds llama.cpp's n_probs too", FLAG_COUNT,
     AT(max_logprobs), .minimum = 1, .maximum = 20, .number = 20, .rare = true},
    {"--signing-key", "TEXT",
     "secret that signs reasoning in answers of /v1/messages; replicas must share it; default: a new one",
     FLAG_TEXT, AT(signing_key), .secret = true, .rare = true},
    {0},
};
const flag flags_text[] = {
    {"--json-additional-properties", NULL,
     "unlisted properties in JSON answers: none, or as the schema allows", FLAG_CHOICE,
     AT(json_additional_properties), .choices = additional, .rare = true},
    {"--json-whitespace", NULL,
     "white space in JSON answers; lines: a space, or a line break and indentation", FLAG_CHOICE,
     AT(json_whitespace), .choices = spaces, .number = QUIRE_JSON_SPACE_LINES, .rare = true},
    {"--guided-decoding-disable-any-whitespace", NULL, "as --json-whitespace compact", FLAG_SYNONYM,
     AT(json_whitespace), .choices = compact},
    {"--jump-forward", NULL, "compute tokens that a grammar forces in one step; answers stay the same",
     FLAG_CHOICE, AT(jump_forward), .choices = on_or_off, .rare = true},
    {"--text-threads", "N",
     "threads that tokenise and render templates; 0: the cores that compute leaves, at least 2", FLAG_COUNT,
     AT(n_text_threads), .minimum = 0, .maximum = 64, .rare = true},
    {"--rule-memory-bytes", "BYTES", "memory for the grammar states of all requests", FLAG_BYTES,
     AT(rule_bytes), .minimum = MiB, MOST_BYTES, .number = 256 * MiB, .rare = true},
    {"--text-cache-bytes", "BYTES", "host memory for cached token ids of conversations; 0: none", FLAG_BYTES,
     AT(text_cache_bytes), MOST_BYTES, .number = 64 * MiB, .rare = true},
    {0},
};

/* ---- batches and pages ---- */

const flag flags_model_len[] = {
    {"--max-model-len --ctx-size -c", "N", "most tokens of a sequence; 0: the model's own limit", FLAG_COUNT,
     AT(max_model_len), .minimum = 0, .maximum = INT32_MAX},
    {0},
};
const flag flags_step_rows[] = {
    {"--max-num-batched-tokens --batch-size -b", "N", "most tokens computed in a step", FLAG_COUNT,
     AT(max_batched_tokens), .minimum = 1, .maximum = 1 << 20, .number = 512},
    {0},
};
const flag flags_seqs[] = {
    {"--max-num-seqs --parallel -np", "N", "most sequences running at once", FLAG_COUNT, AT(max_seqs),
     .minimum = 1, .maximum = 1 << 16, .number = 64},
    {"--disable-cascade-attn --no-cascade", NULL,
     "read a shared prefix once for each sequence, not once for all of them", FLAG_SWITCH, AT(no_cascade),
     .rare = true},
    {0},
};
const flag flags_chunk[] = {
    {"--chunk", "N", "most prompt tokens of one sequence in a step; 0: as many as fit", FLAG_COUNT,
     AT(prefill_chunk), .minimum = 0, .maximum = 1 << 20, .rare = true},
    {"--no-chunked-prefill --no-enable-chunked-prefill", NULL, "compute each prompt in one step", FLAG_SWITCH,
     AT(no_chunked_prefill), .rare = true},
    {0},
};
const flag flags_page_size[] = {
    {"--page-size --block-size", "N", "tokens in a KV page", FLAG_POWER_OF_TWO, AT(page_tokens), .minimum = 1,
     .maximum = 256, .number = 16},
    {0},
};
const flag flags_pool[] = {
    {"--kv-pages --num-gpu-blocks-override", "N",
     "KV pages in the pool; 0: as many as --memory-utilization allows", FLAG_COUNT, AT(n_pages), .minimum = 0,
     .maximum = 1 << 30},
    {"--memory-utilization", "PART", "fraction of the free memory to use for KV pages", FLAG_PART,
     AT(memory_utilization), .minimum = 0.001, .maximum = 1, .number = 0.5},
    {0},
};
const flag flags_models_memory[] = {
    {"--models-memory-bytes", "BYTES",
     "most memory for weights, buffers and KV pages of all loaded models; 0: what the machine has",
     FLAG_BYTES, AT(models_memory_bytes), MOST_BYTES, .rare = true},
    {0},
};
const flag flags_mlock[] = {
    {"--mlock", NULL, "lock weights and pages in memory, so that they are never paged out", FLAG_SWITCH,
     AT(lock_memory), .rare = true},
    {0},
};
const flag flags_pack_cache[] = {
    {"--pack-cache", "auto|DIR|none", "where packed models are kept for later starts; auto: ~/.cache/quire",
     FLAG_TEXT, AT(pack_cache), .rare = true},
    {0},
};
const flag flags_pack_cache_limits[] = {
    {"--pack-cache-bytes", "BYTES", "most disk space of the pack cache", FLAG_BYTES, AT(pack_cache_bytes),
     MOST_BYTES, .number = 20 * GiB, .rare = true},
    {"--pack-cache-least-ms", "MS", "do not pack models that load faster than this", FLAG_MILLISECONDS,
     AT(pack_cache_least_us), .minimum = 0, .maximum = 1e7, .number = 150000, .rare = true},
    {0},
};
const flag flags_memory[] = {
    {"--speculative-config", "JSON", "draft tokens and verify several in a step: {\"method\":\"ngram\"}",
     FLAG_TEXT, AT(speculative_config)},
    {"--swap-space", "GIB", "host memory for the pages of preempted sequences", FLAG_GIB, AT(swap_bytes),
     MOST_BYTES},
    {"--preemption-mode", NULL, "what happens to preempted sequences; auto: whichever costs less",
     FLAG_CHOICE, AT(preemption_mode), .choices = choices_preemption, .rare = true},
    {"--parked-bytes", "BYTES",
     "most memory of the KV pool for parked prefixes of programs; 0: half of the pool", FLAG_BYTES,
     AT(parked_bytes), MOST_BYTES, .rare = true},
    {"--parked-tenant-bytes", "BYTES",
     "most memory of the KV pool for one tenant's parked prefixes; 0: no separate limit", FLAG_BYTES,
     AT(parked_tenant_bytes), MOST_BYTES, .rare = true},
    {"--kv-tier-host-bytes", "BYTES", "host memory for cached pages evicted from the pool, such as 8G",
     FLAG_BYTES, AT(tier_host_bytes), MOST_BYTES},
    {0},
};
const flag flags_tier_file[] = {
    {"--kv-tier-file", "DIR", "directory for cached pages evicted from the pool, which the next start reuses",
     FLAG_TEXT, AT(tier_file)},
    {0},
};
const flag flags_tier_file_bytes[] = {
    {"--kv-tier-file-bytes", "BYTES", "most disk space of --kv-tier-file", FLAG_BYTES, AT(tier_file_bytes),
     MOST_BYTES, .number = 16 * GiB, .rare = true},
    {0},
};
const flag flags_tier_redis[] = {
    {"--kv-tier-redis", "URL", "a Redis or Valkey server for cached pages: redis://host:port/0", FLAG_TEXT,
     AT(tier_redis), .secret = true, .rare = true},
    {0},
};
const flag flags_tier_limits[] = {
    {"--kv-tier-redis-bytes", "BYTES", "most memory that this process uses on --kv-tier-redis", FLAG_BYTES,
     AT(tier_redis_bytes), MOST_BYTES, .number = 4 * GiB, .rare = true},
    {"--kv-tier-write", NULL,
     "when pages are written to file and Redis: on eviction, or (through) once computed", FLAG_CHOICE,
     AT(tier_write), .choices = tier_writes, .rare = true},
    {"--kv-tier-wait", "S", "seconds that a request waits for its pages from file or Redis", FLAG_SECONDS,
     AT(tier_wait_us), .minimum = 0, .maximum = 60, .number = 200000, .rare = true},
    {0},
};

const flag *const engine_flags[] = {
    flags_model,           flags_overrides,     flags_generation_config,
    flags_tokenizer,       flags_template_text, flags_message_tokens,
    flags_answers,         flags_attention,     flags_compute,
    flags_kv_dtype,        flags_kv_values,     flags_state_dtype,
    flags_prefix_cache,    flags_snapshots,     flags_lora,
    flags_eviction,        flags_audit,         flags_schedule,
    flags_schedule_lambda, flags_step_target,   flags_isa,
    flags_threads,         flags_cpu_bind,      flags_trust,
    flags_answer_limits,   flags_text,          flags_model_len,
    flags_step_rows,       flags_seqs,          flags_chunk,
    flags_page_size,       flags_pool,          flags_models_memory,
    flags_mlock,           flags_pack_cache,    flags_pack_cache_limits,
    flags_memory,          flags_tier_file,     flags_tier_file_bytes,
    flags_tier_redis,      flags_tier_limits,   NULL,
};

const flag *engine_flag_find(const char *name) {
    char spelling[64];
    size_t dashes = strspn(name, "-");
    int n = snprintf(spelling, sizeof spelling, "--%s", name + dashes);
    if (n < 0 || (size_t)n >= sizeof spelling) {
        return NULL;
    }
    for (char *p = spelling; *p != 0; p++) {
        *p = *p == '_' ? '-' : *p;
    }
    for (const flag *const *group = engine_flags; *group != NULL; group++) {
        for (const flag *f = *group; f->names != NULL; f++) {
            /* "-t" has one dash, "--threads" two */
            if (flag_is(f, str_of(spelling)) || flag_is(f, str_of(spelling + 1))) {
                return f;
            }
        }
    }
    return NULL;
}
