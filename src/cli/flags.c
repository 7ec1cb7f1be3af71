#include "cli/flags.h"

#include <stddef.h>

#define AT(member) .offset = offsetof(cli_options, member)

const flag_choice choices_compute[] = {
    {"auto", "auto"},     {"f32", "f32"},   {"float32", "f32"}, {"float", "f32"}, {"bf16", "bf16"},
    {"bfloat16", "bf16"}, {"int8", "int8"}, {"fp8", "fp8"},     {NULL, NULL},
};
const flag_choice choices_kv_dtype[] = {
    {"auto", "auto"}, {"f32", "f32"},   {"float32", "f32"},   {"f16", "f16"},           {"float16", "f16"},
    {"half", "f16"},  {"bf16", "bf16"}, {"bfloat16", "bf16"}, {"fp8_e4m3", "fp8_e4m3"}, {"fp8", "fp8_e4m3"},
    {"int8", "int8"}, {"q8_0", "int8"}, {"int4", "int4"},     {"q4_0", "int4"},         {NULL, NULL},
};
const flag_choice choices_quantization[] = {
    {"q8_0", "q8_0"},
    {"q6_k", "q6_k"},
    {"q5_k", "q5_k"},
    {"q4_k", "q4_k"},
    {"q4_0", "q4_0"},
    {"iq4_xs", "iq4_xs"},
    {"mxfp4", "mxfp4"},
    {"int8", "int8"},
    {"fp8", "fp8"},
    {"gguf", "published:gguf"},
    {"compressed-tensors", "published:compressed-tensors"},
    {"gptq", "published:gptq"},
    {"gptq_marlin", "published:gptq"},
    {"awq", "published:awq"},
    {"awq_marlin", "published:awq"},
    {"modelopt", "published:modelopt"},
    {"modelopt_fp4", "published:modelopt"},
    {"bitsandbytes", "published:bitsandbytes"},
    {NULL, NULL},
};
static const flag_choice schedules[] = {{"auto", "auto"},     {"fcfs", "fcfs"}, {"priority", "priority"},
                                        {"prefix", "prefix"}, {"fair", "fair"}, {NULL, NULL}};
static const flag_choice message_tokens[] = {{"plain", "plain"}, {"parse", "parse"}, {NULL, NULL}};
static const flag_choice preemption_modes[] = {{"auto", "auto"}, {"recompute", "recompute"}, {"swap", "swap"}, {NULL, NULL}};
static const flag_choice tier_writes[] = {{"evict", "evict"}, {"through", "through"}, {NULL, NULL}};
const flag_choice choices_prefix_cache[] = {{"none", "none"}, {"page", "page"}, {"token", "token"}, {NULL, NULL}};
static const flag_choice prefix_cache_on[] = {{"token", "token"}, {NULL, NULL}}, prefix_cache_off[] = {{"none", "none"}, {NULL, NULL}};
const flag_choice choices_isa[] = {
    {"auto", "auto"}, {"plain", "plain"}, {"avx2", "avx2"}, {"avx512", "avx512"}, {"avx512bf16", "avx512bf16"},
    {"neon", "neon"}, {"i8mm", "i8mm"},   {NULL, NULL}};

/* Rows of commands that take models by name. */
#define ROW_CACHE                                                                                                                          \
    {                                                                                                                                      \
        "--download-dir", "DIR", "the cache of models by name (HF_HUB_CACHE, else ~/.cache/huggingface/hub)", FLAG_TEXT, AT(download_dir), \
            .rare = true                                                                                                                   \
    }
#define ROW_OFFLINE                                                                                                                        \
    {                                                                                                                                      \
        "--offline", NULL, "fetch nothing (as HF_HUB_OFFLINE=1): models by name are those of the cache", FLAG_SWITCH, AT(offline),         \
            .rare = true                                                                                                                   \
    }
#define ROW_TOKEN                                                                                                                          \
    {                                                                                                                                      \
        "--hf-token -hft", "TOKEN", "shown to the hub (HF_TOKEN, else the file that `hf auth login` writes)", FLAG_TEXT, AT(hf_token),     \
            .rare = true, .secret = true                                                                                                   \
    }

const flag flags_hub[] = {ROW_CACHE, ROW_OFFLINE, ROW_TOKEN, {0}};
const flag flags_model[] = {
    {"--model -m", "MODEL", "a .gguf file, a Hugging Face directory, a packed model, builtin, ORG/NAME", FLAG_TEXT, AT(engine.model)},
    {"--hf-repo -hf -hfr", "NAME", "the same, ORG/NAME[:QUANT] alone", FLAG_TEXT, AT(hf_repo), .rare = true},
    {"--hf-file -hff", "FILE", "the GGUF file of ORG/NAME to take, as ORG/NAME:FILE", FLAG_TEXT, AT(hf_file), .rare = true},
    {"--revision", "REV", "the branch, tag or commit of ORG/NAME, as ORG/NAME@REV (main)", FLAG_TEXT, AT(revision), .rare = true},
    ROW_CACHE,
    ROW_OFFLINE,
    ROW_TOKEN,
    {"--hf-overrides", "JSON", "an object merged into config.json: {\"max_position_embeddings\":8192}", FLAG_TEXT, AT(engine.hf_overrides),
     .rare = true},
    {"--override-kv", "KEY=TYPE:VALUE", "sets a GGUF file's key; int, float, bool, str or arr; several with commas (repeatable)", FLAG_LIST,
     AT(engine.override_kv), .rare = true},
    {0},
};
const flag flags_prompt[] = {
    {"--prompt -p", "TEXT", "the text to go on from", FLAG_TEXT, AT(prompt)},
    {"--file -f", "FILE", "read it from FILE instead (- is standard input)", FLAG_TEXT, AT(prompt_file)},
    {0},
};
const flag flags_out[] = {
    {"--out -o", "FILE", "where answers go, as JSON Lines (logits: a .npy file)", FLAG_TEXT, AT(out)},
    {0},
};
const flag flags_generation_config[] = {
    {"--generation-config", "auto|none|PATH", "where defaults of sampling come from (auto: as the model says)", FLAG_TEXT,
     AT(engine.generation_config)},
    {0},
};
const flag flags_tokenizer[] = {
    {"--tokenizer", "PATH", "a tokenizer to use instead of the model's: a directory, or a file of any format", FLAG_TEXT,
     AT(engine.tokenizer), .rare = true},
    {0},
};
const flag flags_chat_template[] = {
    {"--chat-template --chat-template-file", "FILE|TEXT", "a Jinja template to use instead of the model's", FLAG_TEXT, AT(chat_template)},
    {"--special-tokens-in-messages", NULL, "what a special token's text is in a chat's messages: ordinary text, or that token", FLAG_CHOICE,
     AT(engine.special_tokens_in_messages), .choices = message_tokens, .rare = true},
    {0},
};
const flag flags_answers[] = {
    {"--tool-call-parser", "NAME", "format of the model's tool calls: auto (by the template's marks), none, or a name of docs/tools.md",
     FLAG_TEXT, AT(engine.tool_call_parser), .rare = true},
    {"--reasoning-parser", "NAME", "format of the model's reasoning: auto, none, or a name of docs/tools.md", FLAG_TEXT,
     AT(engine.reasoning_parser), .rare = true},
    {0},
};
const flag flags_attention[] = {
    {"--mask-mod", "TEXT", "which keys a query sees, beside the model's mask: 'q_idx - kv_idx < 64' (docs/attention.md)", FLAG_TEXT,
     AT(engine.mask_mod), .rare = true},
    {"--score-mod", "TEXT", "what becomes of scores: 'score + slope[h] * (kv_idx - q_idx)'", FLAG_TEXT, AT(engine.score_mod), .rare = true},
    {"--attention-arrays", "FILE", "an .npz file with the arrays that they name", FLAG_TEXT, AT(engine.attention_arrays), .rare = true},
    {0},
};
const flag flags_json[] = {
    {"--json", NULL, "for programs: JSON", FLAG_SWITCH, AT(json)},
    {0},
};
const flag flags_compute[] = {
    {"--compute --dtype", NULL, "how matrix products are computed", FLAG_CHOICE, AT(engine.compute), .choices = choices_compute},
    FLAG_QUANTIZATION(AT(engine.quantization)),
    {0},
};
const flag flags_quantization[] = {FLAG_QUANTIZATION(AT(engine.quantization)), {0}};
const flag flags_kv_dtype[] = {
    {"--kv-dtype --kv-cache-dtype -ctk --cache-type-k", NULL, "type of stored keys and values", FLAG_CHOICE, AT(engine.kv_dtype),
     .choices = choices_kv_dtype},
    {"--cache-type-v -ctv", NULL, "type of stored values, if not as keys", FLAG_CHOICE, AT(engine.kv_dtype_values),
     .choices = choices_kv_dtype, .rare = true},
    {0},
};
const flag flags_prefix_cache[] = {
    {"--prefix-cache", NULL, "reuse of prompts' beginnings, by token or by page", FLAG_CHOICE, AT(engine.prefix_cache),
     .choices = choices_prefix_cache},
    {"--enable-prefix-caching --cache-prompt", NULL, "as --prefix-cache token", FLAG_PRESET, AT(engine.prefix_cache),
     .choices = prefix_cache_on},
    {"--no-enable-prefix-caching --no-cache-prompt", NULL, "as --prefix-cache none", FLAG_PRESET, AT(engine.prefix_cache),
     .choices = prefix_cache_off},
    {0},
};
const flag flags_eviction[] = {
    {"--eviction-policy", "POLICY", "which cached page goes first: lru, lfu, gdsf or learned", FLAG_TEXT, AT(engine.eviction_policy),
     .rare = true},
    {0},
};
const flag flags_audit[] = {
    {"--audit", "FILE", "write live, reserved and wasted bytes at every allocation of pages", FLAG_TEXT, AT(engine.audit), .rare = true},
    {0},
};
const flag flags_schedule[] = {
    {"--schedule --scheduling-policy", NULL, "who is admitted first; auto: fair where serve has two keys, else fcfs", FLAG_CHOICE,
     AT(engine.schedule), .choices = schedules},
    {0},
};
const flag flags_step_target[] = {
    {"--step-target-ms", "MS", "longest step while streams run, beyond twice their own; 0: none (100)", FLAG_MILLISECONDS,
     AT(engine.step_target_us), .minimum = 0, .maximum = 1e7, .rare = true},
    {0},
};
const flag flags_isa[] = {
    {"--isa", NULL, "instruction set of the kernels", FLAG_CHOICE, AT(engine.isa), .choices = choices_isa, .rare = true},
    {0},
};
const flag flags_threads[] = {
    {"--threads -t", "N", "compute threads (0: one a core)", FLAG_COUNT, AT(engine.n_threads), .minimum = 0, .maximum = 1024},
    {0},
};
const flag flags_cpu_bind[] = {
    {"--cpu-bind", "WHERE", "keep threads on processors: auto (where they fill the cores), none, or 0-3,8 (none)", FLAG_TEXT,
     AT(engine.cpu_bind), .rare = true},
    {0},
};
const flag flags_model_len[] = {
    {"--max-model-len --ctx-size -c", "N", "tokens a sequence may have (0: the model's own)", FLAG_COUNT, AT(engine.max_model_len),
     .minimum = 0, .maximum = INT32_MAX},
    {0},
};
const flag flags_step_rows[] = {
    {"--max-num-batched-tokens --batch-size -b", "N", "rows a step", FLAG_COUNT, AT(engine.max_batched_tokens), .minimum = 1,
     .maximum = 1 << 20},
    {0},
};
const flag flags_seqs[] = {
    {"--max-num-seqs --parallel -np", "N", "sequences running at once", FLAG_COUNT, AT(engine.max_seqs), .minimum = 1, .maximum = 1 << 16},
    {"--disable-cascade-attn --no-cascade", NULL, "attention reads a shared prefix for each sequence by itself", FLAG_SWITCH,
     AT(engine.no_cascade), .rare = true},
    {0},
};
const flag flags_chunk[] = {
    {"--chunk", "N", "most prompt tokens of one sequence in a step (0: as many as fit)", FLAG_COUNT, AT(engine.prefill_chunk), .minimum = 0,
     .maximum = INT32_MAX, .rare = true},
    {"--no-chunked-prefill --no-enable-chunked-prefill", NULL, "compute each prompt in one step", FLAG_SWITCH,
     AT(engine.no_chunked_prefill), .rare = true},
    {0},
};
const flag flags_page_size[] = {
    {"--page-size --block-size", "N", "tokens a KV page holds", FLAG_POWER_OF_TWO, AT(engine.page_tokens), .minimum = 1, .maximum = 256},
    {0},
};
const flag flags_pool[] = {
    {"--kv-pages --num-gpu-blocks-override", "N", "KV pages (0: what the memory holds)", FLAG_COUNT, AT(engine.n_pages), .minimum = 0,
     .maximum = INT32_MAX},
    {"--memory-utilization", "PART", "part of the free memory for KV pages (0.5)", FLAG_PART, AT(engine.memory_utilization),
     .minimum = 0.001, .maximum = 1},
    {"--gpu-memory-utilization", "X", "there is no GPU; --memory-utilization PART is the part of the free host memory for KV pages",
     FLAG_TAKEN_VALUE, .offset = 0},
    {0},
};
const flag flags_mlock[] = {
    {"--mlock", NULL, "keep weights and pages in memory, never paged out", FLAG_SWITCH, AT(engine.lock_memory), .rare = true},
    {0},
};
const flag flags_memory[] = {
    {"--speculative-config", "JSON", "guess tokens and verify several a step: {\"method\":\"ngram\"}", FLAG_TEXT,
     AT(engine.speculative_config)},
    {"--swap-space", "GIB", "host memory for preempted sequences (0)", FLAG_GIB, AT(engine.swap_bytes)},
    {"--preemption-mode", NULL, "what becomes of preempted sequences: auto is what costs less", FLAG_CHOICE, AT(engine.preemption_mode),
     .choices = preemption_modes, .rare = true},
    {"--kv-tier-host-bytes", "BYTES", "host memory for cached pages that leave the pool (8G; 0)", FLAG_BYTES, AT(engine.tier_host_bytes)},
    {0},
};
const flag flags_tier_file[] = {
    {"--kv-tier-file", "DIR", "a directory for them, which the next start adopts", FLAG_TEXT, AT(engine.tier_file)},
    {0},
};
const flag flags_tier_file_bytes[] = {
    {"--kv-tier-file-bytes", "BYTES", "most that they may take there (16G)", FLAG_BYTES, AT(engine.tier_file_bytes), .rare = true},
    {0},
};
const flag flags_tier_redis[] = {
    {"--kv-tier-redis", "URL", "a Redis or Valkey server for them: redis://host:port/0", FLAG_TEXT, AT(engine.tier_redis), .secret = true,
     .rare = true},
    {0},
};
const flag flags_tier_limits[] = {
    {"--kv-tier-redis-bytes", "BYTES", "most that this process leaves there (4G)", FLAG_BYTES, AT(engine.tier_redis_bytes), .rare = true},
    {"--kv-tier-write", NULL, "to file and Redis when pages leave the pool, or once computed", FLAG_CHOICE, AT(engine.tier_write),
     .choices = tier_writes, .rare = true},
    {"--kv-tier-wait", "S", "seconds a request waits for pages from there (0.2)", FLAG_SECONDS, AT(engine.tier_wait_us), .minimum = 0,
     .maximum = 60, .rare = true},
    {0},
};
const flag flags_pack_cache[] = {
    {"--pack-cache", "auto|DIR|none", "where packed forms of models are kept for later starts (auto: ~/.cache/quire)", FLAG_TEXT,
     AT(engine.pack_cache), .rare = true},
    {"--pack-cache-bytes", "BYTES", "most that they may take there (20G)", FLAG_BYTES, AT(engine.pack_cache_bytes), .rare = true},
    {"--pack-cache-least-ms", "MS", "models that load in less are not packed there: they would gain nothing (150)", FLAG_MILLISECONDS,
     AT(engine.pack_cache_least_us), .minimum = 0, .maximum = 1e7, .rare = true},
    {0},
};
const flag flags_pack_cache_place[] = {
    {"--pack-cache", "auto|DIR|none", "where packed forms of models are kept (auto: ~/.cache/quire)", FLAG_TEXT, AT(engine.pack_cache),
     .rare = true},
    {0},
};
const flag flags_quiet[] = {
    {"--quiet -q", NULL, "say less on standard error", FLAG_SWITCH, AT(quiet)},
    {0},
};
const flag flags_help[] = {
    {"--help -h", NULL, "this page", FLAG_SWITCH, AT(help)},
    {0},
};
const flag flags_help_all[] = {
    {"--help-all", NULL, "the flags that are seldom needed too", FLAG_SWITCH, AT(help_all), .rare = true},
    {0},
};
