#include "cli/flags.h"

#include <stddef.h>

#define AT(member) offsetof(cli_options, member)
#define INT32_TOP 2147483647.0

enum {
    GENERATE = CLI_RUN,
    ENGINE = CLI_RUN | CLI_SERVE | CLI_LOGITS | CLI_BENCH,
    PLANNED = ENGINE | CLI_INSPECT, /* what a memory plan depends on */
    ALL = ENGINE | CLI_TOKENIZE | CLI_INSPECT
};

static const flag_choice compute_modes[] = {
    {"auto", "auto"},     {"f32", "f32"},       {"float32", "f32"}, {"float", "f32"}, {"bf16", "bf16"},
    {"bfloat16", "bf16"}, {"int8", "int8"},     {NULL, NULL},
};
static const flag_choice kv_types[] = {
    {"auto", "auto"},   {"f32", "f32"},   {"float32", "f32"},   {"f16", "f16"}, {"float16", "f16"},
    {"half", "f16"},    {"bf16", "bf16"}, {"bfloat16", "bf16"}, {NULL, NULL},
};
static const flag_choice schedules[] = {{"fcfs", "fcfs"}, {"priority", "priority"}, {"prefix", "prefix"}, {"fair", "fair"}, {NULL, NULL}};
static const flag_choice preemption_modes[] = {{"auto", "auto"}, {"recompute", "recompute"}, {"swap", "swap"}, {NULL, NULL}};
static const flag_choice tier_writes[] = {{"evict", "evict"}, {"through", "through"}, {NULL, NULL}};
static const flag_choice prefix_caches[] = {{"none", "none"}, {"page", "page"}, {"token", "token"}, {NULL, NULL}};
static const flag_choice prefix_cache_on[] = {{"token", "token"}, {NULL, NULL}}, prefix_cache_off[] = {{"none", "none"}, {NULL, NULL}};
static const flag_choice isas[] = {{"auto", "auto"}, {"plain", "plain"}, {"avx2", "avx2"}, {"avx512", "avx512"}, {NULL, NULL}};

const flag cli_flags[] = {
    {"--model -m", "MODEL", "a .gguf file, a Hugging Face directory, or builtin", ALL | CLI_BENCH_PREEMPT, FLAG_TEXT, AT(engine.model), 0, 0, NULL, NULL},

    {"--prompt -p", "TEXT", "the text to go on from", CLI_RUN | CLI_TOKENIZE, FLAG_TEXT, AT(prompt), 0, 0, NULL, NULL},
    {"--file -f", "FILE", "read the prompt from FILE (- is standard input)", CLI_RUN | CLI_TOKENIZE, FLAG_TEXT, AT(prompt_file), 0, 0, NULL, NULL},
    {"--system -sys", "TEXT", "the system message of a chat", CLI_RUN, FLAG_TEXT, AT(system), 0, 0, NULL, NULL},
    {"--complete -no-cnv", NULL, "complete text even where the model has a chat template", CLI_RUN, FLAG_SWITCH, AT(complete), 0, 0, NULL, NULL},
    {"--echo", NULL, "print the prompt before its continuation", CLI_RUN, FLAG_SWITCH, AT(echo), 0, 0, NULL, NULL},
    {"--prompts", "FILE", "run every line of a JSON Lines file, at once; needs --out", CLI_RUN, FLAG_TEXT, AT(prompts), 0, 0, NULL, NULL},
    {"--out -o", "FILE", "where answers go, as JSON Lines (logits: a .npy file)", CLI_RUN | CLI_LOGITS, FLAG_TEXT, AT(out), 0, 0, NULL, NULL},

    {"--max-tokens -n --predict --n-predict", "N", "most tokens to produce (-1: until the end)", CLI_RUN, FLAG_COUNT, AT(n_predict), -1,
     INT32_TOP, NULL, NULL},
    {"--temp --temperature", "T", "0: the likeliest token; 1: as the model says", GENERATE, FLAG_FIELD_NUMBER, 0, 0, 0, NULL, "temperature"},
    {"--top-k", "N", "choose among the N likeliest tokens", GENERATE, FLAG_FIELD_INTEGER, 0, 0, 0, NULL, "top_k"},
    {"--top-p", "P", "choose among the likeliest tokens of probability P together", GENERATE, FLAG_FIELD_NUMBER, 0, 0, 0, NULL, "top_p"},
    {"--min-p", "P", "leave out what is less likely than P times the likeliest", GENERATE, FLAG_FIELD_NUMBER, 0, 0, 0, NULL, "min_p"},
    {"--seed -s", "N", "makes sampling repeatable", GENERATE, FLAG_FIELD_INTEGER, 0, 0, 0, NULL, "seed"},
    {"--stop -r --reverse-prompt", "TEXT", "end at this text (may be given again)", GENERATE, FLAG_FIELD_TEXTS, 0, 0, 0, NULL, "stop"},
    {"--ignore-eos", NULL, "go on after the end-of-sequence token", GENERATE | FLAG_RARE, FLAG_FIELD_SWITCH, 0, 0, 0, NULL, "ignore_eos"},

    {"--host", "NAME", "address to listen on (127.0.0.1)", CLI_SERVE, FLAG_TEXT, AT(server.host), 0, 0, NULL, NULL},
    {"--port", "N", "port to listen on (8000; 0: any free one)", CLI_SERVE, FLAG_COUNT, AT(server.port), 0, 65535, NULL, NULL},
    {"--api-key", "KEY", "who asks must show it (may be given again)", CLI_SERVE, FLAG_KEY, 0, 0, 0, NULL, NULL},
    {"--api-key-file", "FILE", "keys, one tenant:key a line", CLI_SERVE, FLAG_TEXT, AT(server.api_key_file), 0, 0, NULL, NULL},
    {"--operator-key", "KEY", "the key that shows what KV pages hold (/pool)", CLI_SERVE, FLAG_TEXT, AT(server.operator_key), 0, 0, NULL, NULL},
    {"--served-model-name", "NAME", "what the API calls the model", CLI_SERVE, FLAG_TEXT, AT(server.served_model_name), 0, 0, NULL, NULL},
    {"--allow-origin", "ORIGIN", "web pages that may ask (* or one origin)", CLI_SERVE, FLAG_TEXT, AT(server.allow_origin), 0, 0, NULL, NULL},
    {"--max-connections", "N", "more are answered 503", CLI_SERVE | FLAG_RARE, FLAG_COUNT, AT(server.max_connections), 1, 1000000, NULL, NULL},
    {"--server-threads", "N", "threads that speak HTTP", CLI_SERVE | FLAG_RARE, FLAG_COUNT, AT(server.n_loops), 1, 256, NULL, NULL},
    {"--header-timeout", "S", "seconds a request's header may take", CLI_SERVE | FLAG_RARE, FLAG_SECONDS, AT(server.header_deadline_us), 0.01, 1e6, NULL, NULL},
    {"--body-timeout", "S", "seconds its body may take", CLI_SERVE | FLAG_RARE, FLAG_SECONDS, AT(server.body_deadline_us), 0.01, 1e6, NULL, NULL},
    {"--chat-template", "FILE|TEXT", "a Jinja template to use instead of the model's", CLI_RUN | CLI_SERVE, FLAG_TEXT, AT(chat_template), 0, 0, NULL, NULL},

    {"--ids", NULL, "print ids only", CLI_TOKENIZE, FLAG_SWITCH, AT(show_ids), 0, 0, NULL, NULL},
    {"--decode", "IDS", "print the text of ids instead", CLI_TOKENIZE, FLAG_TEXT, AT(ids), 0, 0, NULL, NULL},

    {"--ids", "1,2,3", "the prompt", CLI_LOGITS, FLAG_TEXT, AT(ids), 0, 0, NULL, NULL},
    {"--ids-file", "FILE", "the prompt as JSON: [1,2,3] or {\"prompt\": [1,2,3]}", CLI_LOGITS, FLAG_TEXT, AT(ids_file), 0, 0, NULL, NULL},
    {"--batch-with", "FILE", "JSON list of id lists that run in the same batch", CLI_LOGITS, FLAG_TEXT, AT(batch_with), 0, 0, NULL, NULL},

    {"--batch", "LIST", "requests at once (1,4,16)", CLI_BENCH, FLAG_TEXT, AT(bench.batches), 0, 0, NULL, NULL},
    {"--context", "LIST", "tokens before the decoded ones (128,1024)", CLI_BENCH, FLAG_TEXT, AT(bench.contexts), 0, 0, NULL, NULL},
    {"--decode -n --n", "N", "tokens decoded for each request (257)", CLI_BENCH, FLAG_COUNT, AT(bench.n_decode), 2, 1000000, NULL, NULL},
    {"--runs", "N", "runs behind each figure (3)", CLI_BENCH, FLAG_COUNT, AT(bench.n_runs), 1, 1000, NULL, NULL},
    {"--pages", "LIST", "capacities in pages (halves of what the whole trace fills)", CLI_SIM, FLAG_TEXT, AT(sim.pages), 0, 0, NULL, NULL},
    {"--policy", "LIST", "eviction: all, or some of lru,lfu,gdsf,learned,belady (lru)", CLI_SIM, FLAG_TEXT, AT(sim.policies), 0, 0, NULL, NULL},
    {"--page-size --block-size --page-tokens", "N", "tokens a page holds (16)", CLI_SIM, FLAG_POWER_OF_TWO, AT(sim.page_tokens), 1, 512, NULL, NULL},
    {"--prefix-cache", "token|page", "reuse to the token, or of whole pages only (token)", CLI_SIM, FLAG_TEXT, AT(sim.prefix_cache), 0, 0, NULL, NULL},
    {"--concurrency", "N", "requests open at once (1)", CLI_SIM, FLAG_COUNT, AT(sim.concurrency), 1, 1 << 16, NULL, NULL},
    {"--limit", "N", "read this many requests (0: all)", CLI_SIM, FLAG_COUNT, AT(sim.limit), 0, INT32_TOP, NULL, NULL},
    {"--svg", "FILE", "plot hit rate against capacity", CLI_SIM, FLAG_TEXT, AT(sim.svg), 0, 0, NULL, NULL},
    {"--threads -t", "LIST", "threads in the pool at once (1,2,4,8)", CLI_BENCH_KV, FLAG_TEXT, AT(bench_kv.threads), 0, 0, NULL, NULL},
    {"--pages", "LIST", "pages a pool has (256,4096,65536,1000000)", CLI_BENCH_KV, FLAG_TEXT, AT(bench_kv.pages), 0, 0, NULL, NULL},
    {"--page-size", "N", "tokens a page of the index holds (16)", CLI_BENCH_KV, FLAG_POWER_OF_TWO, AT(bench_kv.page_tokens), 1, 256, NULL, NULL},
    {"--lengths", "LIST", "tokens of the answers (alloc: of whole sequences)", CLI_DEMO, FLAG_TEXT, AT(demo.lengths), 0, 0, NULL, NULL},
    {"--prompt-lengths", "LIST", "tokens of the prompts", CLI_DEMO, FLAG_TEXT, AT(demo.prompt_lengths), 0, 0, NULL, NULL},
    {"--batch", "LIST", "sequences at once", CLI_DEMO, FLAG_TEXT, AT(demo.batches), 0, 0, NULL, NULL},
    {"--context", "LIST", "tokens of a sequence, before those that are measured", CLI_DEMO, FLAG_TEXT, AT(demo.contexts), 0, 0, NULL, NULL},
    {"--runs", "N", "runs behind each measured figure", CLI_DEMO, FLAG_COUNT, AT(demo.n_runs), 1, 64, NULL, NULL},
    {"--model -m", "MODEL", "the model that is run (builtin)", CLI_DEMO, FLAG_TEXT, AT(demo.engine.model), 0, 0, NULL, NULL},
    {"--compute --dtype", NULL, "how matrix products are computed", CLI_DEMO, FLAG_CHOICE, AT(demo.engine.compute), 0, 0, compute_modes, NULL},
    {"--kv-dtype", NULL, "type of stored keys and values", CLI_DEMO, FLAG_CHOICE, AT(demo.engine.kv_dtype), 0, 0, kv_types, NULL},
    {"--threads -t", "N", "compute threads (0: all processors)", CLI_DEMO, FLAG_COUNT, AT(demo.engine.n_threads), 0, 1024, NULL, NULL},
    {"--max-tokens -n", "N", "most tokens of an answer; of table: tokens behind the prompt", CLI_DEMO, FLAG_COUNT, AT(demo.n_tokens), 1, 1 << 20, NULL, NULL},
    {"--max-len", "N", "room for the longest sequence (2048)", CLI_DEMO, FLAG_COUNT, AT(demo.max_len), 1, 1 << 24, NULL, NULL},
    {"--max-num-seqs", "N", "sequences that run at once (4)", CLI_DEMO, FLAG_COUNT, AT(demo.slots), 1, 1 << 16, NULL, NULL},
    {"--max-num-batched-tokens", "N", "rows a step (schedule: 8)", CLI_DEMO, FLAG_COUNT, AT(demo.n_rows), 1, 1 << 20, NULL, NULL},
    {"--kv-pages", "N", "pages of the pool", CLI_DEMO, FLAG_COUNT, AT(demo.n_pages), 1, 1 << 20, NULL, NULL},
    {"--page-size", "N", "tokens a page holds (16; schedule 4, radix 1)", CLI_DEMO, FLAG_POWER_OF_TWO, AT(demo.page_tokens), 1, 256, NULL, NULL},
    {"--milliseconds", "N", "least time of a run (20)", CLI_BENCH_KV, FLAG_COUNT, AT(bench_kv.run_ms), 1, 100000, NULL, NULL},
    {"--runs", "N", "runs behind each figure (5)", CLI_BENCH_KV, FLAG_COUNT, AT(bench_kv.n_runs), 1, 64, NULL, NULL},
    {"--shape", "L,H,D", "layers of a group, KV heads and head width (16,8,64)", CLI_BENCH_RUNS, FLAG_TEXT, AT(bench_runs.shape), 0, 0, NULL, NULL},
    {"--context", "LIST", "tokens of the sequence (1024,8192)", CLI_BENCH_RUNS, FLAG_TEXT, AT(bench_runs.contexts), 0, 0, NULL, NULL},
    {"--page-size", "N", "tokens a page holds (16)", CLI_BENCH_RUNS, FLAG_POWER_OF_TWO, AT(bench_runs.page_tokens), 1, 256, NULL, NULL},
    {"--runs", "N", "runs behind each figure, the least of which counts (15)", CLI_BENCH_RUNS, FLAG_COUNT, AT(bench_runs.n_runs), 1, 64, NULL, NULL},
    {"--shape", "L,H,D", "layers, KV heads and head width of the model (16,8,64)", CLI_BENCH_MEMORY, FLAG_TEXT, AT(bench_memory.shape), 0, 0, NULL, NULL},
    {"--weights", "BYTES", "of the model (2471628800)", CLI_BENCH_MEMORY, FLAG_PART, AT(bench_memory.weight_bytes), 0, 1e15, NULL, NULL},
    {"--pages", "LIST", "tokens a page holds (1,2,4,8,16,32,64,128,256)", CLI_BENCH_MEMORY, FLAG_TEXT, AT(bench_memory.pages), 0, 0, NULL, NULL},
    {"--kv-dtype", NULL, "type of keys and values", CLI_BENCH_MEMORY, FLAG_CHOICE, AT(bench_memory.kv_dtype), 0, 0, kv_types, NULL},
    {"--max-model-len", "N", "room for each sequence where nobody knows better (131072)", CLI_BENCH_MEMORY, FLAG_COUNT, AT(bench_memory.max_model_len), 1,
     1 << 24, NULL, NULL},
    {"--pages", "LIST", "tokens a page holds (1,2,4,8,16,32,64,128,256)", CLI_BENCH_PREEMPT, FLAG_TEXT, AT(bench_preempt.pages), 0, 0, NULL, NULL},
    {"--lengths", "LIST", "tokens of the preempted sequence (128,512,1024)", CLI_BENCH_PREEMPT, FLAG_TEXT, AT(bench_preempt.lengths), 0, 0, NULL, NULL},
    {"--runs", "N", "runs behind each figure (3)", CLI_BENCH_PREEMPT, FLAG_COUNT, AT(bench_preempt.n_runs), 1, 64, NULL, NULL},
    {"--json", NULL, "for programs: JSON", CLI_INSPECT | CLI_BENCH | CLI_SIM | CLI_BENCH_KV | CLI_BENCH_MEMORY | CLI_BENCH_RUNS | CLI_DEMO | CLI_BENCH_PREEMPT, FLAG_SWITCH,
     AT(json), 0, 0, NULL, NULL},

    {"--compute --dtype", NULL, "how matrix products are computed", ENGINE | CLI_BENCH_PREEMPT, FLAG_CHOICE, AT(engine.compute), 0, 0, compute_modes, NULL},
    {"--kv-dtype --kv-cache-dtype -ctk", NULL, "type of stored keys and values", PLANNED | CLI_BENCH_PREEMPT, FLAG_CHOICE, AT(engine.kv_dtype), 0, 0, kv_types, NULL},
    {"--prefix-cache", NULL, "reuse of prompts' beginnings, by token or by page", ENGINE, FLAG_CHOICE, AT(engine.prefix_cache), 0, 0, prefix_caches, NULL},
    {"--enable-prefix-caching", NULL, "as --prefix-cache token", ENGINE, FLAG_PRESET, AT(engine.prefix_cache), 0, 0, prefix_cache_on, NULL},
    {"--no-enable-prefix-caching", NULL, "as --prefix-cache none", ENGINE, FLAG_PRESET, AT(engine.prefix_cache), 0, 0, prefix_cache_off, NULL},
    {"--eviction-policy", "POLICY", "which cached page goes first: lru, lfu, gdsf or learned", CLI_SERVE | CLI_BENCH | FLAG_RARE, FLAG_TEXT, AT(engine.eviction_policy), 0, 0, NULL, NULL},
    {"--audit", "FILE", "write live, reserved and wasted bytes at every allocation of pages", ENGINE | FLAG_RARE, FLAG_TEXT, AT(engine.audit), 0, 0, NULL, NULL},
    {"--schedule --scheduling-policy", NULL, "who is admitted first", CLI_SERVE | CLI_BENCH, FLAG_CHOICE, AT(engine.schedule), 0, 0, schedules, NULL},
    {"--step-target-ms", "MS", "longest step while streams run, beyond twice their own; 0: none (100)", CLI_SERVE | CLI_BENCH | FLAG_RARE, FLAG_MILLISECONDS, AT(engine.step_target_us), 0, 1e7, NULL, NULL},
    {"--schedule-lambda", "N", "--schedule prefix: cached tokens that a second of waiting is worth (500)", CLI_SERVE | FLAG_RARE, FLAG_PART, AT(engine.schedule_lambda), 0, 1e9, NULL, NULL},
    {"--public-prefix", "FILE", "a prompt's beginning that tenants share: a text, or ids in a .json (repeatable)", CLI_SERVE, FLAG_PREFIX, 0, 0, 0, NULL, NULL},
    {"--isa", NULL, "instruction set of the kernels", ENGINE | FLAG_RARE | CLI_BENCH_PREEMPT, FLAG_CHOICE, AT(engine.isa), 0, 0, isas, NULL},
    {"--threads -t", "N", "compute threads (0: all processors)", ENGINE | CLI_BENCH_PREEMPT, FLAG_COUNT, AT(engine.n_threads), 0, 1024, NULL, NULL},
    {"--text-threads", "N", "threads that tokenise", CLI_SERVE | FLAG_RARE, FLAG_COUNT, AT(engine.n_text_threads), 1, 256, NULL, NULL},
    {"--max-model-len --ctx-size -c", "N", "tokens a sequence may have (0: the model's own)", PLANNED, FLAG_COUNT, AT(engine.max_model_len), 0, INT32_TOP, NULL, NULL},
    {"--max-num-batched-tokens --batch-size -b", "N", "rows a step", ENGINE | CLI_BENCH_PREEMPT, FLAG_COUNT, AT(engine.max_batched_tokens), 1, 1 << 20, NULL, NULL},
    {"--max-num-seqs --parallel -np", "N", "sequences running at once", ENGINE, FLAG_COUNT, AT(engine.max_seqs), 1, 1 << 16, NULL, NULL},
    {"--chunk", "N", "most prompt tokens of one sequence in a step (0: as many as fit)", ENGINE | FLAG_RARE, FLAG_COUNT, AT(engine.prefill_chunk), 0, INT32_TOP, NULL, NULL},
    {"--no-chunked-prefill", NULL, "compute each prompt in one step", ENGINE | FLAG_RARE, FLAG_SWITCH, AT(engine.no_chunked_prefill), 0, 0, NULL, NULL},
    {"--no-fork-sharing", NULL, "samples of one prompt share nothing", ENGINE | FLAG_RARE, FLAG_SWITCH, AT(engine.no_fork_sharing), 0, 0, NULL, NULL},
    {"--page-size --block-size", "N", "tokens a KV page holds", PLANNED, FLAG_POWER_OF_TWO, AT(engine.page_tokens), 1, 256, NULL, NULL},
    {"--kv-pages --num-gpu-blocks-override", "N", "KV pages (0: what the memory holds)", PLANNED, FLAG_COUNT, AT(engine.n_pages), 0, INT32_TOP, NULL, NULL},
    {"--memory-utilization --gpu-memory-utilization", "PART", "part of the free memory for KV pages", PLANNED, FLAG_PART,
     AT(engine.memory_utilization), 0.001, 1, NULL, NULL},
    {"--speculative-config", "JSON", "guess tokens and verify several a step: {\"method\":\"ngram\"}", ENGINE, FLAG_TEXT, AT(engine.speculative_config), 0, 0, NULL, NULL},
    {"--no-jump-forward", NULL, "compute forced tokens one by one", ENGINE | FLAG_RARE, FLAG_SWITCH, AT(engine.no_jump_forward), 0, 0, NULL, NULL},
    {"--swap-space", "GIB", "host memory for preempted sequences (0)", ENGINE, FLAG_GIB, AT(engine.swap_bytes), 0, 0, NULL, NULL},
    {"--preemption-mode", NULL, "what becomes of preempted sequences: auto is what costs less", ENGINE | FLAG_RARE, FLAG_CHOICE,
     AT(engine.preemption_mode), 0, 0, preemption_modes, NULL},
    {"--kv-tier-host-bytes", "BYTES", "host memory for cached pages that leave the pool (8G; 0)", ENGINE, FLAG_BYTES,
     AT(engine.tier_host_bytes), 0, 0, NULL, NULL},
    {"--kv-tier-file", "DIR", "a directory for them, which the next start adopts", ENGINE, FLAG_TEXT, AT(engine.tier_file), 0, 0, NULL, NULL},
    {"--kv-tier-file-bytes", "BYTES", "most that they may take there (16G)", ENGINE | FLAG_RARE, FLAG_BYTES, AT(engine.tier_file_bytes), 0, 0, NULL, NULL},
    {"--kv-tier-redis", "URL", "a Redis or Valkey server for them: redis://host:port/0", ENGINE, FLAG_TEXT, AT(engine.tier_redis), 0, 0, NULL, NULL},
    {"--kv-tier-redis-bytes", "BYTES", "most that this process leaves there (4G)", ENGINE | FLAG_RARE, FLAG_BYTES, AT(engine.tier_redis_bytes), 0, 0, NULL,
     NULL},
    {"--kv-tier-write", NULL, "to file and Redis when pages leave the pool, or once computed", ENGINE | FLAG_RARE, FLAG_CHOICE, AT(engine.tier_write), 0, 0,
     tier_writes, NULL},
    {"--kv-tier-wait", "S", "seconds a request waits for pages from there (0.2)", ENGINE | FLAG_RARE, FLAG_SECONDS, AT(engine.tier_wait_us), 0, 60, NULL,
     NULL},
    {"--quiet -q", NULL, "say less on standard error", ENGINE, FLAG_SWITCH, AT(quiet), 0, 0, NULL, NULL},
    {"--help -h", NULL, "this page", ALL | CLI_SIM | CLI_BENCH_KV | CLI_BENCH_MEMORY | CLI_BENCH_RUNS | CLI_DEMO | CLI_BENCH_PREEMPT, FLAG_SWITCH,
     AT(help), 0, 0, NULL, NULL},
    {"--help-all", NULL, "the flags that are seldom needed too", ALL | FLAG_RARE, FLAG_SWITCH, AT(help_all), 0, 0, NULL, NULL},
};

const int cli_n_flags = (int)(sizeof cli_flags / sizeof cli_flags[0]);
