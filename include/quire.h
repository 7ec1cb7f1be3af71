/* Quire: the public C API. An engine serves one model to many requests at once.
 *
 *   quire_options_init -> quire_engine_open -> quire_queue_open
 *   quire_request_parse -> quire_submit -> quire_queue_next -> quire_stream_release
 *   quire_queue_close -> quire_engine_close
 *
 * Threads: any thread may use an engine; one thread reads a queue. The caller owns a
 * request until quire_submit takes it. Text is UTF-8 with explicit length. Token ids are
 * 0-based and index the model's vocabulary. */
#ifndef QUIRE_H
#define QUIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quire_err.h"
#include "quire_explain.h"
#include "quire_kv.h"
#include "quire_stats.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The library exports the declarations below and nothing else. */
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* The version of this header; the build reads it from here. */
#define QUIRE_VERSION "0.1.0"

/* The version of the library that is linked; a static string. */
const char *quire_version(void);

typedef struct quire_engine quire_engine;
typedef struct quire_request quire_request;
typedef struct quire_stream quire_stream;
typedef struct quire_queue quire_queue;

/* ---- engine ---- */

/* A prefix of prompts, given as token ids or, if ids is NULL, as text. Text is tokenised
 * like a completion's prompt: special tokens are parsed, and BOS is added if the model
 * says so. Prefixes are matched by token; a chat's prompt begins with the chat template's
 * output. */
typedef struct quire_prefix {
    const char *text;
    size_t n_text;
    const int32_t *ids;
    size_t n_ids;
} quire_prefix;

/* The kinds of requests. TOKENIZE, DETOKENIZE, APPLY_TEMPLATE and RENDER kinds only
 * prepare prompts: they generate nothing and never reach the engine
 * (quire_request_more.prompt_only). */
typedef enum quire_endpoint {
    QUIRE_COMPLETIONS,
    QUIRE_CHAT,
    QUIRE_EMBEDDINGS,
    QUIRE_OLLAMA_CHAT,
    QUIRE_OLLAMA_GENERATE,
    QUIRE_OLLAMA_RAW, /* as GENERATE, without the chat template; a GENERATE body with `raw` becomes one */
    QUIRE_MESSAGES,   /* chat, Anthropic's Messages API */
    QUIRE_RESPONSES,  /* chat, OpenAI's Responses API */
    QUIRE_TOKENIZE,   /* text to ids; a body with `messages` or `content` becomes one of the next two kinds */
    QUIRE_TOKENIZE_CHAT,    /* chat to ids */
    QUIRE_TOKENIZE_CONTENT, /* text to ids, with llama.cpp's fields */
    QUIRE_DETOKENIZE,       /* ids to text */
    QUIRE_APPLY_TEMPLATE,   /* chat to the text of its prompt */
    QUIRE_POOLING,          /* embeddings, vLLM's API */
    QUIRE_EMBEDDING,        /* embeddings, llama.cpp's API */
    QUIRE_SCORE,            /* scores pairs of texts */
    QUIRE_RERANK,           /* ranks documents by relevance to a query */
    QUIRE_RERANKING,        /* as QUIRE_RERANK, llama.cpp's API */
    /* prompt ids and sampling parameters of a completion or chat; nothing is generated */
    QUIRE_COMPLETIONS_RENDER,
    QUIRE_CHAT_RENDER,
    QUIRE_CHAT_BATCH,        /* several chats that share all other fields */
    QUIRE_LLAMA_COMPLETION,  /* completions, llama.cpp's API */
    QUIRE_LLAMA_INFILL,      /* fills the gap between two texts, llama.cpp's API */
    QUIRE_OLLAMA_EMBED,      /* embeddings, Ollama's API */
    QUIRE_OLLAMA_EMBEDDINGS, /* the embedding of one text, Ollama's older API */
    QUIRE_SGLANG_GENERATE,   /* completions, SGLang's API */
    QUIRE_SGLANG_ENCODE      /* embeddings, SGLang's API */
} quire_endpoint;

/* Values of quire_options. The first of each enum is the default unless its comment says
 * otherwise. */

/* How matrix products are computed. AUTO chooses by the weights. FP8 is for checking
 * checkpoints in FP8, MX and NVFP4 formats. */
typedef enum quire_compute {
    QUIRE_COMPUTE_AUTO,
    QUIRE_COMPUTE_F32,
    QUIRE_COMPUTE_BF16,
    QUIRE_COMPUTE_INT8,
    QUIRE_COMPUTE_FP8
} quire_compute;

/* How keys and values are stored. AUTO: fp8_e4m3 if the checkpoint's quantization_config
 * asks for it, else f32 with f32 compute, else bf16. */
typedef enum quire_kv_dtype {
    QUIRE_KV_AUTO,
    QUIRE_KV_F32,
    QUIRE_KV_F16,
    QUIRE_KV_BF16,
    QUIRE_KV_FP8_E4M3,
    QUIRE_KV_INT8,
    QUIRE_KV_INT4
} quire_kv_dtype;

/* How much of a prompt can be reused from earlier prompts of its tenant: nothing, whole
 * pages, or every leading token that matches (the default). */
typedef enum quire_prefix_cache {
    QUIRE_PREFIX_CACHE_NONE,
    QUIRE_PREFIX_CACHE_PAGE,
    QUIRE_PREFIX_CACHE_TOKEN
} quire_prefix_cache;

/* Which cached page is evicted first (docs/kv.md). */
typedef enum quire_eviction {
    QUIRE_EVICTION_LRU,
    QUIRE_EVICTION_LFU,
    QUIRE_EVICTION_GDSF,
    QUIRE_EVICTION_LEARNED
} quire_eviction;

/* Which waiting request is admitted first (docs/scheduling.md). AUTO means FCFS, or FAIR
 * in `quire serve` with two or more API keys. */
typedef enum quire_schedule {
    QUIRE_SCHEDULE_AUTO,
    QUIRE_SCHEDULE_FCFS,
    QUIRE_SCHEDULE_PRIORITY,
    QUIRE_SCHEDULE_PREFIX,
    QUIRE_SCHEDULE_FAIR
} quire_schedule;

/* How a preempted sequence resumes: by whichever way is measured to be cheaper, by
 * recomputing its tokens, or by swapping its pages in whenever there was room to swap
 * them out. */
typedef enum quire_preemption {
    QUIRE_PREEMPTION_AUTO,
    QUIRE_PREEMPTION_RECOMPUTE,
    QUIRE_PREEMPTION_SWAP
} quire_preemption;

/* When pages are written to the file and Redis tiers: on eviction from the pool, or soon
 * after they are computed. */
typedef enum quire_tier_write { QUIRE_TIER_WRITE_EVICT, QUIRE_TIER_WRITE_THROUGH } quire_tier_write;

/* Special tokens in the text of chat messages and other client fields: treated as plain
 * text, or parsed as tokens. */
typedef enum quire_message_tokens {
    QUIRE_MESSAGE_TOKENS_PLAIN,
    QUIRE_MESSAGE_TOKENS_PARSE
} quire_message_tokens;

/* Properties that a JSON Schema doesn't list, for requests that don't set it themselves.
 * CLOSED: forbidden if the schema lists properties and says nothing about others. SCHEMA:
 * as the standard says. */
typedef enum quire_json_properties {
    QUIRE_JSON_PROPERTIES_CLOSED,
    QUIRE_JSON_PROPERTIES_SCHEMA
} quire_json_properties;

/* White space in answers that follow a JSON Schema, for requests that don't set it
 * themselves. COMPACT: none. LINES (the default): a space, or one or two line breaks and
 * up to 20 spaces. ANY: up to 20 characters in a row. */
typedef enum quire_json_space {
    QUIRE_JSON_SPACE_COMPACT,
    QUIRE_JSON_SPACE_LINES,
    QUIRE_JSON_SPACE_ANY
} quire_json_space;

/* Type of recurrent states. States are rounded to it after each token. */
typedef enum quire_state_dtype { QUIRE_STATE_F32, QUIRE_STATE_BF16 } quire_state_dtype;

/* Embeddings of models that generate text and whose files name no pooling. REQUESTED (the
 * default): requests name it. LAST: those of the last token, unless a request names
 * another pooling. */
typedef enum quire_convert { QUIRE_CONVERT_REQUESTED, QUIRE_CONVERT_LAST } quire_convert;

/* Whether tokens that a grammar forces are computed together in one step or one by one.
 * The answers are the same. */
typedef enum quire_jump_forward { QUIRE_JUMP_FORWARD_ON, QUIRE_JUMP_FORWARD_OFF } quire_jump_forward;

typedef struct quire_options {
    /* sizeof this struct in the caller's quire.h, set by quire_options_init. Later
     * versions add members at the end */
    size_t size;
    const char *model; /* a .gguf file, a Hugging Face directory, a packed model, or "builtin" */
    quire_compute compute;
    quire_kv_dtype kv_dtype;
    quire_prefix_cache prefix_cache;
    quire_eviction eviction_policy;
    quire_schedule schedule;
    /* QUIRE_SCHEDULE_PREFIX: number of cached tokens that one second of waiting is
     * worth */
    double schedule_lambda;
    /* longest step while sequences decode: prefill chunks are cut to fit it, or twice the
     * time of the decodes if that is longer; 0: no limit */
    int64_t step_target_us;
    /* [n_public_prefixes] prefixes whose pages all tenants share; copied */
    const quire_prefix *public_prefixes;
    int32_t n_public_prefixes;
    /* file that records live, reserved and wasted bytes at each page allocation; NULL:
     * none */
    const char *audit;
    /* "auto", "plain", "avx2", "avxvnni", "avx512", "amx", "avx512bf16", "neon",
     * "i8mm" */
    const char *isa;
    const char *chat_template; /* text of a chat template; NULL: the model's own */
    int32_t n_threads;         /* compute threads; 0: one for each core that the process may use */
    /* "none": threads are not pinned; "auto": each is pinned to a processor if they fill
     * the cores; or a list of processors: "0-3,8" */
    const char *cpu_bind;
    int32_t page_tokens;       /* power of two, 1..256 */
    int32_t n_pages;           /* KV pages; 0: computed from memory_utilization */
    double memory_utilization; /* part of the memory left after weights and buffers to use for KV pages */
    bool lock_memory; /* lock weights, pages and buffers in memory so that they are never paged out */
    /* most tokens of a sequence; 0: the model's limit, or what the pool holds if that is
     * less */
    int32_t max_model_len;
    int32_t max_batched_tokens; /* most rows in a step */
    int32_t max_seqs;           /* most sequences that run at once */
    int32_t prefill_chunk;      /* most prompt tokens of one sequence in a step; 0: as many as fit */
    /* prefill each prompt in a single step; max_batched_tokens must be at least
     * max_model_len + max_seqs */
    bool no_chunked_prefill;
    bool no_cascade; /* attention reads a shared prefix once per sequence instead of once per step */
    /* threads that tokenise and render templates; 0: as many as compute leaves
     * processors, at least 2 */
    int32_t n_text_threads;
    /* memory for the constraint states (grammars, schemas) of all requests (256M), capped
     * at a sixteenth of the machine's memory */
    int64_t rule_bytes;
    /* host memory that keeps the token ids of conversations for their next turn (64M); 0:
     * none */
    int64_t text_cache_bytes;
    /* speculative decoding: a JSON object with vLLM's names (docs/speculation.md); NULL:
     * off */
    const char *speculative_config;
    /* host memory to which preempted sequences are swapped out; 0: none */
    int64_t swap_bytes;
    quire_preemption preemption_mode;
    int64_t tier_host_bytes; /* host memory for cached pages evicted from the pool; 0: none */
    /* directory for cached pages evicted from the pool, reused by the next start; NULL:
     * none */
    const char *tier_file;
    int64_t tier_file_bytes;
    /* Redis or Valkey server for evicted pages: redis://host:port/number or unix:///path;
     * NULL: none */
    const char *tier_redis;
    int64_t tier_redis_bytes; /* most bytes that this process stores there */
    quire_tier_write tier_write;
    /* longest time that a request waits for its pages from tiers before it computes
     * them */
    int64_t tier_wait_us;
    /* where the defaults of temperature, top_k, top_p, min_p and repetition_penalty come
     * from. "auto": the model's generation_config.json or general.sampling.*; "none": the
     * API's own defaults; or the path of such a file or its directory */
    const char *generation_config;
    /* most bytes of a response as JSON: requests whose n, echo, logprobs and max_tokens
     * could exceed it are refused; 0: no limit */
    int64_t max_answer_bytes;
    /* JSON object of request defaults that override generation_config: the fields named
     * there, presence_penalty, frequency_penalty, seed and max_tokens; NULL: none */
    const char *request_defaults;
    /* most top_logprobs that a request may ask for, 1..20; below 20 it limits llama.cpp's
     * n_probs too */
    int32_t max_logprobs;
    int32_t max_tool_calls; /* most tool calls in one answer, 1..1024; a request may ask for fewer */
    /* request body to validate after the model's metadata are read and before its weights
     * are: if it is bad, opening fails with QUIRE_INVALID; NULL: none */
    const char *request_check;
    /* directory of packed models, from which later starts load in milliseconds. Created
     * if missing, written after the start; processes of one user may share it. NULL:
     * none */
    const char *pack_cache;
    int64_t pack_cache_bytes; /* most bytes in pack_cache; the least recently used models are removed first */
    quire_endpoint request_check_kind; /* endpoint of request_check */
    /* corrections of the model's metadata (docs/models.md): a JSON object merged into
     * config.json, or for GGUF "KEY=TYPE:VALUE,..". A key that is never read is an error.
     * NULL: none */
    const char *hf_overrides, *override_kv;
    /* expressions that change the attention of all requests (docs/attention.md): which
     * keys a query sees besides the model's own mask, and how scores change; NULL:
     * none */
    const char *mask_mod, *score_mod;
    const char *attention_arrays; /* .npz file with the arrays that both expressions name; NULL: none */
    bool trust_request_attention; /* requests may bring expressions of their own (field `attention`) */
    /* tokenizer to use instead of the model's, with its chat template if it has one: a
     * directory, tokenizer.json, SentencePiece .model, rank file, tekken.json or GGUF
     * file; NULL: the model's own */
    const char *tokenizer;
    quire_message_tokens special_tokens_in_messages;
    bool trust_request_chat_template; /* a request's chat_template may be the text of a template */
    /* format in which the model writes tool calls and reasoning (docs/tools.md): a name,
     * "none", or "auto" to detect it from the chat template */
    const char *tool_call_parser, *reasoning_parser;
    quire_json_properties json_additional_properties;
    quire_json_space json_whitespace;
    quire_jump_forward jump_forward;
    /* models that load faster than this are not stored in pack_cache; 0: all are
     * stored */
    int64_t pack_cache_least_us;
    /* format to which 16-bit and 32-bit weights are quantised at load
     * (docs/quantisation.md): "q8_0", "q6_k", "q5_k", "q4_k", "q4_0", "iq4_xs", "mxfp4",
     * "int8" or "fp8". Or "published:METHOD", such as "published:gptq": the checkpoint
     * must be quantised by that method and is used as it is. NULL: weights are not
     * quantised */
    const char *quantization;
    quire_kv_dtype kv_dtype_values; /* how values are stored; QUIRE_KV_AUTO: as keys are */
    /* secret that signs the reasoning which clients send back (quire_sign); replicas that
     * serve one conversation need the same secret. NULL: a random one */
    const char *signing_key;
    /* models with recurrent states (docs/kv.md): take a snapshot every so many tokens, in
     * addition to those at the ends of prompts, messages and answers; 0: only those */
    int32_t state_snapshot_tokens;
    /* most bytes of the pool in state snapshots; 0: half of the pool, or all of it if the
     * model has only recurrent layers */
    int64_t state_snapshot_bytes;
    /* requests may name LoRA adapters (docs/adapters.md). Implied by the next four
     * members */
    bool enable_lora;
    /* adapters by name, one a line: NAME=PATH, or {"name": .., "path": ..}; NULL: none */
    const char *lora_modules;
    const char *lora_dir; /* directory whose entries are adapters, loaded when first named; NULL: none */
    /* adapters by number, one a line: PATH or PATH:SCALE. They apply, with these scales,
     * to requests that name no adapter; NULL: none */
    const char *loras;
    bool lora_init_without_apply; /* adapters of loras have scale 0 until it is changed */
    int32_t max_loras;            /* most different adapters running at once, 1..256 (8) */
    int32_t max_lora_rank;        /* largest rank of an adapter, 1..256 (64) */
    int32_t max_cpu_loras;        /* most adapters loaded at once; 0: four times max_loras */
    quire_state_dtype state_dtype;
    /* most bytes of the pool held by parks (quire_park): of all tenants (0: half of the
     * pool), and of one tenant (0: no separate limit) */
    int64_t parked_bytes, parked_tenant_bytes;
    /* called by the loading thread before each tensor with the part of the weights that
     * is loaded, 0 to 1. If it returns false, loading stops and opening fails with
     * QUIRE_CANCELLED. May be NULL */
    bool (*load_progress)(void *user, double part);
    void *load_progress_user;
    /* most engines that will be open beside this one at once, 0..63. All of them take KV
     * pages from one memory budget, with a guaranteed share for each (docs/kv.md). 0:
     * each engine has its own memory */
    int32_t n_beside;
    /* most memory for weights, buffers and KV pages of this engine and those beside it;
     * 0: all that the machine has */
    int64_t models_memory_bytes;
    quire_convert convert, runner; /* LAST in either is enough */
} quire_options;

/* Sets the defaults in a struct of `size` bytes; for callers that cannot include this
 * header, such as bindings. Bytes beyond this library's members are set to 0. */
void quire_options_init_sized(quire_options *o, size_t size);
/* Sets the defaults. A program built with another version's header works: options missing
 * from its header keep their defaults. An option missing from the library must keep the
 * value set here, or functions that take the struct fail with QUIRE_INVALID. */
static inline void quire_options_init(quire_options *o) {
    quire_options_init_sized(o, sizeof *o);
}

/* Sets the option of a `quire serve` flag ("max-num-seqs", "--max-num-seqs" or
 * "max_num_seqs"; aliases too) to a value as written on the command line ("64", "8G",
 * "fp8"; switches: "true"). The struct borrows the strings. INVALID: nothing is changed,
 * and err names the option and the values allowed. */
quire_err quire_options_set(quire_options *o, const char *name, const char *value, quire_error *err);

/* Loads the model and starts the engine's threads. On failure *out is NULL and err says
 * what to do. */
quire_err quire_engine_open(const quire_options *o, quire_engine **out, quire_error *err);
/* Opens another model beside a running engine, the host. Both compute on the host's
 * threads, one step at a time, and share the time equally while both have requests. The
 * host keeps running steps while the model loads. If the host was opened with n_beside,
 * o's own n_beside, memory_utilization and models_memory_bytes are ignored, and
 * QUIRE_NO_MEMORY can mean that the shared memory is full: try again after closing an
 * engine. Engines beside each other may be closed in any order. Any thread; do not close
 * host during the call. */
quire_err quire_engine_open_beside(quire_engine *host, const quire_options *o, quire_engine **out,
                                   quire_error *err);
/* Cancels running requests, waits for the threads and frees everything. Close the queues
 * first. */
void quire_engine_close(quire_engine *e);

/* Writes the model that o names to path as one packed file for o's compute mode; *n_bytes
 * is its size. A packed model opens in milliseconds and its memory is shared between
 * processes. An existing file is replaced only once the new one is complete. */
quire_err quire_pack(const quire_options *o, const char *path, int64_t *n_bytes, quire_error *err);

/* Properties of an open engine. The engine owns the strings. */
typedef struct quire_info {
    const char *model_path, *architecture, *model_name;
    /* for example "int8", "bf16", "cpu, avx2, 2 threads bound to 0-1" */
    const char *compute, *kv_dtype, *backend;
    int32_t n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff, n_vocab;
    int32_t max_model_len, page_tokens, n_pages, max_batched_tokens, max_seqs;
    int32_t n_threads; /* compute threads */
    int64_t n_params, weight_bytes, page_bytes, token_bytes, buffer_bytes;
    int32_t bos, eos; /* -1: none */
    /* has_chat_template: the model can chat; chat_form says in which form */
    bool has_vocabulary, has_chat_template, caches_prefixes;
    /* source of the chat template: "file" (given by option), "model", or, for a model
     * without one, "chatml" or "plain" (docs/http.md); NULL: the model cannot chat */
    const char *chat_form;
    int32_t n_page_groups; /* groups of layers with separate pages: a token takes one slot in each */
    /* file from which request defaults were read; NULL: only the API's own apply */
    const char *generation_config;
    /* defaults from that file and from quire_options.request_defaults, as in "temperature
     * 0.6, top_k 20"; "": none */
    const char *generation_defaults;
    size_t max_answer_bytes; /* 0: no limit */
    /* how the number of pages was computed, for people: "50% (--memory-utilization, 0.5
     * by default) of the 21.3 GB that the machine has available .." */
    const char *pool_plan;
    int32_t model_max_len; /* most tokens of a sequence that the model supports; max_model_len may be less */
    /* number of sequences of max_model_len tokens that fit in the pool; tokens outside a
     * layer's window take no pages */
    int64_t n_full_requests;
    const char *tool_format, *reasoning_format; /* formats in which chat responses are parsed; NULL: none */
    /* how chat prompts begin, for people: "with BOS, <s>: the template writes it"; NULL:
     * the model cannot chat */
    const char *chat_start;
    /* tokens that end an answer, for people: "</s> (2, by a key of the file), .."; NULL:
     * the model has no vocabulary */
    const char *end_tokens;
} quire_info;

const quire_info *quire_engine_info(const quire_engine *e);

/* The rows (embeddings or scores) that an engine returns for pooled requests. */
typedef struct quire_row_info {
    size_t size;   /* sizeof this struct in the library; later versions add members at the end */
    int32_t n_row; /* elements of a pooled row, before `dimensions` cuts it */
    /* scores per input, for a model with a head of scores instead of embeddings; 0:
     * embeddings */
    int32_t n_scores;
    /* scores are raw logits: the model's files name no activation function */
    bool scores_are_logits;
    /* the model supports shortened rows (`is_matryoshka`, `matryoshka_dimensions`) of the
     * lengths widths[n_widths]; n_widths 0: any length */
    bool is_matryoshka;
    const int32_t *widths;
    int32_t n_widths;
} quire_row_info;

const quire_row_info *quire_engine_rows(const quire_engine *e);

/* Empties the prefix cache: requests submitted from now on only find pages that running
 * requests hold, and the memory of unused pages is returned to the system. With tiers,
 * the pages are written to them as on any eviction. Answers don't change. Returns at
 * once; takes effect before the next step. Any thread. */
void quire_engine_drop_cache(quire_engine *e);
/* As above, for all prefixes of one tenant, with any salt and adapter. The pool keeps the
 * memory. NO_MEMORY: nothing was dropped. Any thread. */
quire_err quire_engine_drop_tenant(quire_engine *e, const char *tenant);

/* Counts of earlier answers that chats named by id (quire_stream_recall). */
typedef struct quire_turn_stats {
    size_t size; /* sizeof this struct in the caller's quire.h; set before the call */
    /* reused by their token ids; no longer kept; sent back with different text */
    int64_t n_reused, n_gone, n_differ;
} quire_turn_stats;
void quire_engine_turns(const quire_engine *e, quire_turn_stats *out);

/* Snapshots of recurrent states, as of the last step. Any thread. */
void quire_engine_snapshots(const quire_engine *e, quire_snapshot_stats *out);

/* Memory of KV pages, as of the last step. Any thread. */
void quire_engine_page_memory(const quire_engine *e, quire_page_memory *out);

/* Pages held by parks (quire_park), as of the last step. Any thread. */
void quire_engine_parked(const quire_engine *e, quire_parked_stats *out);

/* Reads all counters and gauges. Any thread. */
void quire_engine_stats(const quire_engine *e, quire_stats *out);
/* False if the current step has been running for over a minute: the engine is stuck. */
bool quire_engine_healthy(const quire_engine *e);

/* ---- text ---- */

/* Tokenises text. Special tokens in it are parsed; add_special adds BOS if the model says
 * so. Free *ids with quire_free. UNSUPPORTED: the model has no vocabulary. */
quire_err quire_tokenize(const quire_engine *e, const char *text, size_t n, bool add_special, int32_t **ids,
                         size_t *n_ids, quire_error *err);
/* Tokenises two texts as one input of a cross-encoder (quire_input): with the tokens that
 * the tokenizer puts around a pair, and a token type per id. Special tokens in the texts
 * are plain text. Free *ids and *types with quire_free; *types is NULL if the model has
 * no token types. UNSUPPORTED: the model has no vocabulary. */
quire_err quire_tokenize_pair(const quire_engine *e, const char *text, size_t n_text, const char *pair,
                              size_t n_pair, int32_t **ids, int32_t **types, size_t *n, quire_error *err);
/* Detokenises ids. *text is 0-terminated; free it with quire_free. */
quire_err quire_detokenize(const quire_engine *e, const int32_t *ids, size_t n, bool skip_special,
                           char **text, size_t *n_text, quire_error *err);
/* Returns the bytes that a token adds to text after another token, possibly only part of
 * a character; for a special token, its text. *bytes is 0-terminated; free it with
 * quire_free. UNSUPPORTED: no vocabulary. BAD_REQUEST: id out of range. */
quire_err quire_token_bytes(const quire_engine *e, int32_t id, char **bytes, size_t *n, quire_error *err);
/* The spelling of an id in the vocabulary; "" if it has none. The engine owns it. */
const char *quire_token_piece(const quire_engine *e, int32_t id, size_t *n);
/* The Jinja source of the chat template: *n bytes, not 0-terminated, owned by the engine;
 * empty if the model cannot chat. Any thread. */
const char *quire_engine_chat_template(const quire_engine *e, size_t *n);

/* A tokenizer without a model, of any architecture: from a directory, a GGUF file, a
 * packed model, a tokenizer file (tokenizer.json, SentencePiece .model, rank file,
 * tekken.json) or "builtin". Immutable, so any thread may use it. Its calls work like
 * those above. */
typedef struct quire_tokenizer quire_tokenizer;
quire_err quire_tokenizer_open(const char *path, quire_tokenizer **out, quire_error *err);
void quire_tokenizer_close(quire_tokenizer *t);
quire_err quire_tokenizer_encode(const quire_tokenizer *t, const char *text, size_t n, bool add_special,
                                 int32_t **ids, size_t *n_ids, quire_error *err);
quire_err quire_tokenizer_decode(const quire_tokenizer *t, const int32_t *ids, size_t n, bool skip_special,
                                 char **text, size_t *n_text, quire_error *err);
const char *quire_tokenizer_piece(const quire_tokenizer *t, int32_t id, size_t *n);
void quire_free(void *p);
/* Allocates n bytes, freed with quire_free; NULL when out of memory. */
void *quire_alloc(size_t n);

#define QUIRE_SIGNATURE_BYTES 64
/* Signs reasoning that a client may send back in a QUIRE_MESSAGES request. digest is the
 * SHA-256 of the reasoning's text. out receives hexadecimal digits and a 0 byte. */
void quire_sign(const quire_engine *e, const uint8_t digest[32], char out[QUIRE_SIGNATURE_BYTES + 1]);

/* ---- requests ---- */

/* Parses and validates a JSON request body of the endpoint. On failure err->param names
 * the wrong field. Does not tokenise. */
quire_err quire_request_parse(const quire_engine *e, quire_endpoint endpoint, const char *body, size_t n,
                              quire_request **out, quire_error *err);
void quire_request_free(quire_request *r);

/* Writes the JSON Schema (draft 2020-12) of an endpoint's request bodies: type, range,
 * default and meaning of each field. A body that the schema rejects is refused; one that
 * it accepts may still be refused for what a schema cannot say, such as fields that
 * exclude each other or a limit of the model. *json is n bytes and a 0; free it with
 * quire_free; NULL on failure. NO_MEMORY. */
quire_err quire_request_schema(const quire_engine *e, quire_endpoint endpoint, char **json, size_t *n,
                               quire_error *err);

/* A parse on a text thread, for bodies that take long. A PARSED event delivers the
 * request or the error. */
typedef struct quire_parse quire_parse;
/* Starts a parse. Takes body, memory from quire_alloc, even on failure. Text threads
 * serve tenants in turn, and the parse counts as tenant's (quire_request_tenant). Does
 * not block. Call on q's thread. *out is valid until its PARSED event is delivered.
 * QUIRE_NO_MEMORY. */
quire_err quire_parse_start(quire_queue *q, quire_endpoint endpoint, char *body, size_t n, const char *tenant,
                            void *user, quire_parse **out);
/* Checks the first n bytes of a longer body for a field that is too large, so that the
 * body can be refused before the rest arrives. A LOOKED event delivers the result and
 * gives begin back. Otherwise like quire_parse_start. O(n); builds nothing. */
quire_err quire_look_start(quire_queue *q, quire_endpoint endpoint, char *begin, size_t n, const char *tenant,
                           void *user, quire_parse **out);
/* Cancels a parse or look: no event follows, and the parsed request or begin is freed.
 * Call on q's thread. */
void quire_parse_cancel(quire_parse *p);

/* Reports how a rule for responses would be enforced, without generating. A CHECKED event
 * delivers the report or the error. body is {"schema": ..} or an object with one of the
 * request fields that set a rule (docs/structured.md). Otherwise like quire_parse_start;
 * cancel it with quire_parse_cancel. */
quire_err quire_check_start(quire_queue *q, char *body, size_t n, const char *tenant, void *user,
                            quire_parse **out);
/* Counts the prompt tokens of a QUIRE_MESSAGES body, which may lack max_tokens. The
 * CHECKED event's text is {"input_tokens": n}. Otherwise like quire_check_start. */
quire_err quire_count_start(quire_queue *q, char *body, size_t n, const char *tenant, void *user,
                            quire_parse **out);

/* Makes a request whose prompt is token ids. Copies the ids. Set other fields with
 * quire_request_set; until then they have the defaults of a request body that leaves them
 * out (quire_options.generation_config). */
quire_err quire_request_ids(const quire_engine *e, const int32_t *ids, size_t n, quire_request **out,
                            quire_error *err);
/* An input to embed, given as token ids or, if ids is NULL, as text, which is tokenised
 * like a completion's prompt. */
typedef struct quire_input {
    const char *text;
    size_t n_text;
    const int32_t *ids;
    size_t n_ids;
    /* [n_ids] a token type per id, as for a cross-encoder's pair; NULL: all are 0 */
    const int32_t *types;
} quire_input;

/* How an input's rows are pooled into one. { NULL, 0, -1 }: as the model's files say. */
typedef struct quire_embed_options {
    /* "mean", "cls", "last" or "rank" (scores); NULL: as the model's files say,
     * BAD_REQUEST if they don't */
    const char *pooling;
    int32_t dimensions; /* elements to keep of each row (Matryoshka embeddings); 0: all */
    /* 1: scale the kept elements to length 1; 0: don't; -1: as the model's files say, 1
     * if they don't */
    int normalize;
} quire_embed_options;

/* Makes a request for one pooled row for each of 1 to 1,024 inputs, like
 * quire_request_parse with a QUIRE_EMBEDDINGS body ({"input": .., "token_type_ids",
 * "pooling", "dimensions", "normalize"}). Copies the inputs. o may be NULL. For a model
 * with a head of scores (a cross-encoder) the row is its scores, never normalised. Each
 * input is a choice, whose row an EMBEDDING event delivers. */
quire_err quire_request_embed(const quire_engine *e, const quire_input *inputs, size_t n,
                              const quire_embed_options *o, quire_request **out, quire_error *err);
/* Computes the rows of any number of inputs and blocks until they are done, on a queue of
 * its own. Any thread, also several at once. Inputs share steps with each other and with
 * all other requests. *rows is [n][*n_row]; free it with quire_free; NULL on failure.
 * QUIRE_BUSY: the engine is full. */
quire_err quire_embed(quire_engine *e, const quire_input *inputs, size_t n, const quire_embed_options *o,
                      float **rows, size_t *n_row, quire_error *err);
/* Makes a request that continues a text (a completion) or answers a chat. Copies the
 * texts. Other fields have the defaults of a request body that leaves them out;
 * quire_request_set changes them. */
quire_err quire_request_text(const quire_engine *e, const char *text, size_t n, quire_request **out,
                             quire_error *err);
typedef struct quire_message {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
    size_t n_content;
} quire_message;
quire_err quire_request_chat(const quire_engine *e, const quire_message *messages, size_t n,
                             quire_request **out, quire_error *err);
/* Sets a field by its OpenAI name to a value given as JSON text ("0.7", "true",
 * "[\"a\"]"). */
quire_err quire_request_set(quire_request *r, const char *field, const char *json, quire_error *err);
/* Sets the tenant; only requests of one tenant share prefixes. Copied. By default all
 * requests are of one tenant. QUIRE_INVALID: the name is longer than QUIRE_TENANT_BYTES
 * bytes; the request is unchanged. */
quire_err quire_request_tenant(quire_request *r, const char *tenant);
#define QUIRE_TENANT_BYTES 128
/* Sets the LoRA adapter by name (from quire_adapter_load, or quire_options' lora_modules
 * and lora_dir), which replaces those of quire_options.loras; NULL: none. Copied. An
 * unknown name fails the stream with QUIRE_NOT_FOUND. INVALID: the request's field `lora`
 * already sets adapters. NO_MEMORY. On failure the request is unchanged. */
quire_err quire_request_adapter(quire_request *r, const char *name);
/* Adds time that the request waited before quire_submit, for its model to load for
 * example, so that ttft_deadline_ms includes it. 0 by default. */
void quire_request_waited(quire_request *r, int64_t us);
/* Writes all logits of the prompt to out, f32 [n_prompt_tokens, n_vocab]. out must stay
 * valid until the stream is done or, if the stream is released earlier, until its queue
 * is closed. Only for requests with a single prompt that are not forks. */
void quire_request_logits(quire_request *r, float *out);
/* Makes r a step of a program: a tree of requests that continue each other. Among the
 * waiting steps of one program the deepest is admitted first, then the oldest, so that
 * one branch finishes before the next begins; requests outside the program are not
 * delayed. When the engine is full, a step waits instead of being refused. program: a
 * number unique to the program within its tenant; 0 (the default): not a step. depth:
 * distance from the root, at least 0. Under QUIRE_SCHEDULE_PREFIX only cached tokens
 * decide the order. */
void quire_request_step(quire_request *r, uint64_t program, int32_t depth);

/* What a server needs to know of a parsed request. The request owns the strings; after
 * quire_submit its stream does. */
typedef struct quire_request_info {
    quire_endpoint endpoint;
    const char *model; /* NULL if absent, null or "" */
    bool explain;      /* END events carry a report */
    bool stream, include_usage, continuous_usage, echo, return_token_ids;
    /* n_samples times the number of prompts (completions) or inputs (embeddings), 1 for a
     * chat. The choices of one prompt are adjacent */
    int32_t n_choices;
    /* samples generated for each prompt, and how many of them are returned (fewer with
     * best_of) */
    int32_t n_samples, n_best;
    /* beam search of this width; the best beams are the samples, best first; 0: no beam
     * search */
    int32_t beam_width;
    /* most likely tokens to report for each token of the response, and of the prompt; -1:
     * no log-probabilities */
    int32_t logprobs, prompt_logprobs;
    /* body members that were ignored, "foo, bar": the first few, printable; NULL: none */
    const char *ignored;
    bool names_call; /* tool_choice names the function to call */
    bool old_calls;  /* the request uses `functions`, so its call is returned as function_call */
    /* a chat whose response is split into content, reasoning and tool calls: DELTAs have
     * parts */
    bool has_parts;
} quire_request_info;

const quire_request_info *quire_request_describe(const quire_request *r);

/* A QUIRE_RESPONSES request: what its response repeats and what is stored. */
typedef struct quire_responses_info {
    const char *members; /* JSON members to repeat in the response, separated by commas */
    /* items of `input`, one JSON object a line, each starting with its "id" */
    const char *input;
    size_t n_input;       /* bytes */
    const char *previous; /* previous_response_id; NULL: none */
    bool is_stored, is_background;
} quire_responses_info;

/* NULL for other kinds of requests and for forks. The request owns the strings, as in
 * quire_request_info. */
const quire_responses_info *quire_request_responses(const quire_request *r);

/* Callback for a request with previous_response_id: finds the items of that response and
 * of all that it continues. *lines has one JSON object a line, as in
 * quire_responses_info.input: n bytes from quire_alloc, freed by the caller.
 * QUIRE_NOT_FOUND: the tenant has no such response. QUIRE_NO_MEMORY. Any thread. */
typedef quire_err (*quire_history)(void *user, const char *tenant, const char *id, char **lines, size_t *n);
/* Sets the callback; NULL, the default: no response is found. Not while requests are
 * being parsed. */
void quire_engine_history(quire_engine *e, quire_history find, void *user);

/* More facts for a server. The request owns the strings, as in quire_request_info. */
typedef struct quire_request_more {
    size_t size; /* sizeof this struct in the library; later versions add members at the end */
    /* the request only prepares prompts: each choice has a START and an END, and START's
     * text is the endpoint's result */
    bool prompt_only;
    /* QUIRE_COMPLETIONS_RENDER and QUIRE_CHAT_RENDER: the JSON members after the ids in
     * the response; else NULL */
    const char *render;
    int32_t stream_interval; /* tokens in each streamed piece, except the first and last */
    bool tokens_as_ids;      /* log-probabilities name tokens by id */
    bool return_prompt_text; /* chat: START's text is the template's output */
    const char *request_id;  /* the client's name for the request, visible ASCII; NULL: none */
    bool rows_base64;        /* embeddings: encoding_format is "base64" */
    int32_t dimensions;      /* embeddings: elements to keep of each row; 0: all */
    /* QUIRE_SCORE and the rerank kinds with an embedding model: the first n_queries
     * choices are queries, the rest documents, all with rows of length 1. 0: each choice
     * is a pair and its row is the pair's score */
    int32_t n_queries;
    int32_t top_n;         /* rerank: most results to return; 0: all */
    bool return_documents; /* rerank: START's text is the document */
    /* tokenize kinds: return each id's spelling. QUIRE_SGLANG_GENERATE: return the text
     * of each token in its lists */
    bool token_texts;
    /* chat with echo that ends with an assistant message: that message's content, with
     * which the response begins; else NULL */
    const char *echo;
    size_t n_echo;
    bool return_progress; /* send PROGRESS events */
    /* QUIRE_LLAMA_COMPLETION and QUIRE_LLAMA_INFILL, else NULL and false. settings: a
     * JSON object of the generation's settings. response_fields: a JSON array of the
     * paths of members to return; NULL: all */
    const char *settings, *response_fields;
    bool return_tokens;     /* return the generated ids */
    bool timings_per_token; /* each streamed piece has timings */
    bool has_prediction;    /* the chat has the field `prediction` */
    /* the conversation names an earlier answer by id (quire_stream_recall) */
    bool names_answers;
    /* SGLang: request_id has one name per prompt, 0-terminated and one after the other */
    bool names_prompts;
    bool is_list; /* SGLang: the response is an array with an element per choice */
    /* QUIRE_SGLANG_GENERATE: index of the prompt token at which lists of
     * log-probabilities begin; -1: only the last token */
    int32_t logprobs_start;
    /* Ollama's keep_alive: how long the model stays loaded when idle; negative: for
     * ever */
    bool has_keep_alive;
    int64_t keep_alive_us;
    /* QUIRE_SGLANG_GENERATE: number of ids whose log-probabilities the request asks for;
     * they follow the most likely tokens and have rank 0 */
    int32_t n_scored;
} quire_request_more;

const quire_request_more *quire_request_describe_more(const quire_request *r);

/* Sets the tools of a chat request: a JSON array for its template, copied. A second call
 * replaces them. BAD_REQUEST: not such an array. UNSUPPORTED: not a chat. On failure r is
 * unchanged. */
quire_err quire_request_tools(quire_request *r, const char *json, size_t n, quire_error *err);
/* Sets every field of a JSON object, like quire_request_parse. An unknown member is
 * refused if it would change the output; otherwise info lists it as ignored. After an
 * error, free r. */
quire_err quire_request_set_all(quire_request *r, const char *json, size_t n, quire_error *err);

/* Tokens that a QUIRE_TOKENIZE or QUIRE_TOKENIZE_CHAT request continues. They are kept as
 * they are; the request's text is encoded as the middle of a text, without BOS, and
 * appended. For QUIRE_CHAT, ids (at least one) are the whole prompt and replace the
 * template's output; only ids, n_ids and n_start may be set. */
typedef struct quire_continuation {
    size_t size;        /* sizeof this struct in the caller's quire.h */
    const int32_t *ids; /* [n_ids] the tokens to continue; the request's ids begin with them */
    size_t n_ids;
    /* chats: the part of the template's output to encode: from the end of the first
     * `after` (NULL: the start) to the next `before` (NULL: the end). 0-terminated */
    const char *after, *before;
    /* texts: [2 * n_plain] spans (first byte, byte after the last) in which special
     * tokens are plain text; ascending */
    const size_t *plain;
    size_t n_plain;
    /* QUIRE_CHAT: how many of the last ids are the newest turn, from which the parser
     * sees whether the answer starts inside reasoning (the last 16 are read); 0: all */
    size_t n_start;
} quire_continuation;

/* Sets the continuation; copies everything. BAD_REQUEST: an id outside the vocabulary,
 * spans out of order, or members that a chat does not take. UNSUPPORTED: another kind of
 * request. NO_MEMORY. On failure r is unchanged. If the template does not write `after`
 * or `before`, the stream fails with BAD_REQUEST. */
quire_err quire_request_continue(quire_request *r, const quire_continuation *c, quire_error *err);

/* ---- streams ---- */

typedef enum quire_finish {
    QUIRE_FINISH_NONE,
    QUIRE_FINISH_STOP,
    QUIRE_FINISH_LENGTH,
    QUIRE_FINISH_CANCELLED,
    QUIRE_FINISH_ERROR
} quire_finish;

typedef enum quire_event_kind {
    /* a choice's first event: its prompt is accepted and counted. Missing if the choice
     * failed before its first token */
    QUIRE_EVENT_START,
    /* new tokens; text may be empty while a character or a possible stop string is
     * incomplete */
    QUIRE_EVENT_DELTA,
    /* this choice was rolled back (quire_stream_rollback); the event holds what
     * remains */
    QUIRE_EVENT_ROLLBACK,
    /* a rollback or steer failed (see error); the choice continues unchanged */
    QUIRE_EVENT_REFUSED,
    QUIRE_EVENT_EMBEDDING, /* the pooled row of this choice; once, between START and END, instead of DELTAs */
    QUIRE_EVENT_END,       /* this choice is finished */
    /* the stream's last event: all choices have ended, or the request failed (finish
     * ERROR, error set) */
    QUIRE_EVENT_DONE,
    /* result of quire_parse_start: the receiver owns request, or it is NULL and error is
     * set. stream is NULL */
    QUIRE_EVENT_PARSED,
    /* result of quire_check_start: text is the report, a JSON object, or error is set */
    QUIRE_EVENT_CHECKED,
    /* result of quire_look_start: text is begin, which the receiver owns; error says why
     * the body is refused, or is NULL */
    QUIRE_EVENT_LOOKED,
    /* more of this choice's prompt is computed (quire_stream_progress). Sent before
     * START, if the request has return_progress; for samples of one prompt, on the first.
     * Only the newest one waits in the queue, and the last one covers the whole prompt */
    QUIRE_EVENT_PROGRESS
} quire_event_kind;

/* A token's log-probability by the model's own logits. rank: number of tokens at least as
 * likely; 1 is the most likely. */
typedef struct quire_logprob {
    int32_t token, rank;
    float logprob;
} quire_logprob;

typedef enum quire_part_kind {
    QUIRE_PART_REASONING,
    QUIRE_PART_CONTENT,
    QUIRE_PART_CALL, /* start of a tool call; text is the function's name */
    /* a piece of the call's arguments. All pieces together are JSON, unless the length
     * limit cut the response off */
    QUIRE_PART_ARGUMENTS,
    QUIRE_PART_CALL_END
} quire_part_kind;

/* A piece of a chat response. The parts of all DELTAs, in order, make up the content,
 * reasoning and calls. Marks such as <think> belong to no part. */
typedef struct quire_part {
    quire_part_kind kind;
    int32_t call;     /* parts of calls: index of the call in the response, from 0 */
    const char *text; /* not 0-terminated; valid as long as the event's text */
    size_t n_text;
    bool is_custom; /* parts of calls: the tool is a custom tool, whose ARGUMENTS are plain text, not JSON */
    const char *id; /* CALL: the id that the model wrote; empty: none */
    size_t n_id;
} quire_part;

typedef struct quire_event {
    quire_stream *stream;
    void *user; /* as given to quire_submit */
    quire_event_kind kind;
    int32_t choice;
    /* DELTA: the new text. ROLLBACK: the response's remaining text. START: the prompt's
     * text, if the request has echo. CHECKED, LOOKED: owned by the receiver. Otherwise
     * valid until the next call of quire_queue_next or quire_stream_release. Not
     * 0-terminated */
    const char *text;
    size_t n_text;
    /* DELTA: bytes of text of its token. text is shorter while these may begin a stop
     * string, or if they end one; longer if it includes text withheld before. ROLLBACK:
     * likewise for all remaining tokens */
    size_t n_decoded;
    /* START with echo and logprobs: [n_tokens] end offset of each token in text; a token
     * not shown in text ends where the previous one does. Valid as long as text.
     * Otherwise NULL */
    const size_t *token_ends;
    /* DELTA: the new ids. ROLLBACK: the response's remaining ids. START: the prompt's
     * ids */
    const int32_t *tokens;
    int32_t n_tokens;
    /* if requested. DELTA: n_logprobs entries: the token's own, then the most likely
     * ones. START: as many for each prompt token but the first; those before
     * prompt_logprobs_start have rank 0. Otherwise NULL and 0. Valid as long as text */
    const quire_logprob *logprobs;
    int32_t n_logprobs;
    quire_finish finish;     /* END and DONE */
    int32_t stop_token;      /* END by a stop token of the request: its id; -1 otherwise, as for EOS */
    const char *stop_string; /* END by a stop string of the request: that string; otherwise NULL */
    /* END: the report on the choice, if requested; otherwise NULL. Valid until the stream
     * is released */
    const quire_explain *explain;
    double sum_logprob; /* END with logprobs, best_of or beam search: sum over the choice's tokens */
    double beam_score;  /* END: the score that ranks beams */
    /* of this choice so far; in DONE, sums over all choices that count each prompt
     * once */
    int32_t prompt_tokens, completion_tokens;
    /* prompt_tokens found in the prefix cache; known from the first DELTA on */
    int32_t cached_tokens;
    /* DONE with finish ERROR, REFUSED, PARSED without a request, CHECKED without a
     * report, LOOKED: the error; otherwise NULL */
    const quire_error *error;
    quire_request *request; /* PARSED */
    const float *row; /* EMBEDDING: n_row elements, valid until the stream is released; otherwise NULL */
    int32_t n_row;
    /* time that the choice waited for admission; known from the first DELTA on; in DONE
     * the longest of all choices */
    int64_t queue_us;
    /* DELTA with info.has_parts: the parts recognised since the last DELTA. text has all
     * of the text, marks included */
    const quire_part *parts;
    int32_t n_parts;
} quire_event;

/* Opens a queue to which streams deliver their events. */
quire_err quire_queue_open(quire_engine *e, quire_queue **out);
/* Cancels the streams that still deliver to the queue, waits for them and frees it. */
void quire_queue_close(quire_queue *q);
/* Whether no stream will deliver to the queue any more, including released ones; then
 * quire_queue_close does not wait. Call on the queue's thread. */
bool quire_queue_idle(const quire_queue *q);
/* A file descriptor that is readable while there may be events, for poll or epoll. */
int quire_queue_fd(const quire_queue *q);
/* Gets the next event; false if there is none. Detokenises and matches stop strings on
 * the calling thread. Call it until it returns false, then wait for the fd. */
bool quire_queue_next(quire_queue *q, quire_event *out);
/* Blocks until the fd is readable or timeout_us have passed (-1: no limit). */
void quire_queue_wait(quire_queue *q, int64_t timeout_us);

/* Starts a request, whose events are delivered to q. Takes r, even on failure. Does not
 * block: text threads tokenise. A full engine is reported later, by a DONE event with
 * QUIRE_BUSY; steps of programs wait instead (quire_request_step). */
quire_err quire_submit(quire_queue *q, quire_request *r, void *user, quire_stream **out, quire_error *err);
/* Like quire_submit, for a request whose first tokens are not known yet. Work that does
 * not need them is done now (compiling its rule, reading its adapter), so that it can
 * start as soon as the request that it continues has ended; nothing runs before
 * quire_stream_start. r must have one prompt of ids (quire_request_ids, or a chat's
 * quire_request_continue): the end of the whole prompt, such as constant text; for a chat
 * it shows how the answer begins. If cancelled before it starts, it fails with
 * QUIRE_CANCELLED. INVALID: r has another kind of prompt, is a fork, or has the field
 * `prediction`. */
quire_err quire_prepare(quire_queue *q, quire_request *r, void *user, quire_stream **out, quire_error *err);
/* Starts a stream of quire_prepare. The prompt is ids[0..n), copied, followed by the
 * request's own ids. If the stream is ready, the request is in the engine when the call
 * returns and joins the next step planned; otherwise it starts when it is ready. A faulty
 * prompt fails the stream. INVALID: already started, or not from quire_prepare.
 * NO_MEMORY. Call on the queue's thread. */
quire_err quire_stream_start(quire_stream *s, const int32_t *ids, size_t n, quire_error *err);
/* Submits a request on a queue of its own and blocks until it is done. Takes r, even on
 * failure. Any thread, also several at once. *text: the text of choice 0, or only its
 * content for a chat with parts; 0-terminated; free it with quire_free; NULL on failure.
 * QUIRE_BUSY: the engine is full. */
quire_err quire_generate(quire_engine *e, quire_request *r, char **text, size_t *n, quire_error *err);
/* Cancels the stream; its DONE event still comes. Call on the queue's thread. */
void quire_stream_cancel(quire_stream *s);
/* Releases the stream, after DONE or at any time: an unfinished stream is cancelled and
 * its later events are dropped. Call on the queue's thread. */
void quire_stream_release(quire_stream *s);
/* Gives an id to the answer of a chat's choice that has ended: the id of its first tool
 * call or, without calls, an id for the message. A later chat of the same tenant
 * continues from the exact ids of this answer if its assistant message carries that id
 * (in a call, or in the member `id`) and renders to the text that was generated. Only the
 * id's last nine characters count. Answers are kept in a part of text_cache_bytes while
 * there is room. INVALID: a shorter id, or the choice has not ended. NO_MEMORY. Call on
 * the queue's thread, before the release. */
quire_err quire_stream_recall(quire_stream *s, int32_t choice, const char *id);
/* How much of a choice's prompt is processed. */
typedef struct quire_progress {
    size_t size;         /* sizeof this struct in the caller's quire.h; set before the call */
    int32_t n_prompt;    /* tokens of the prompt */
    int32_t n_cached;    /* of these, tokens found in the prefix cache */
    int32_t n_processed; /* cached or computed so far */
    int64_t us;          /* time since admission */
} quire_progress;

/* Fills *out as of the last PROGRESS event of the choice, or of the first sample of its
 * prompt; all 0 before that event and without return_progress. INVALID: no such choice.
 * Call on the queue's thread. */
quire_err quire_stream_progress(const quire_stream *s, int32_t choice, quire_progress *out);
/* The rest of the report on a choice (quire_event.explain). */
typedef struct quire_explain_more {
    size_t size; /* sizeof this struct in the library; later versions add members at the end */
    /* how many waiting requests were ahead of it when it began to wait, in the order of
     * `schedule` (never AUTO). Requests still being tokenised do not count */
    int32_t n_ahead;
    quire_schedule schedule;
    /* earlier answers that the conversation names by id (quire_stream_recall): continued
     * from their ids; no longer kept; sent back with different text */
    int32_t n_reused, n_gone, n_differ;
    /* prompt tokens whose pages were cached at its first admission. More than
     * quire_explain.matched only on models with recurrent states, if the cache has no
     * snapshot of the state after them (docs/kv.md) */
    int32_t n_prefix;
    /* its LoRA adapter, or NULL; time until the adapter was read; time and number of
     * waits for one of the max_loras places. Valid until the stream is released */
    const char *adapter;
    int64_t adapter_load_us, adapter_wait_us;
    int32_t n_adapter_waits;
    /* numbers of the steps that produced its first and last token, counted as in
     * quire_explain_chunk; -1: no token */
    int64_t first_token_step, last_token_step;
} quire_explain_more;

/* NULL if the choice has no report yet, or never will. Valid until the stream is
 * released. Call on the queue's thread. */
const quire_explain_more *quire_stream_explain(const quire_stream *s, int32_t choice);
/* Tokens of a chat's `prediction` field that were drafted: *n_accepted are in the answer,
 * *n_rejected are not. Counts up to the choice's last event; choice -1: all choices
 * together. Both 0 without a prediction and for an unknown choice. Call on the queue's
 * thread. */
void quire_stream_prediction(const quire_stream *s, int32_t choice, int32_t *n_accepted, int32_t *n_rejected);
const quire_request_info *quire_stream_describe(const quire_stream *s);
const quire_request_more *quire_stream_describe_more(const quire_stream *s);
/* QUIRE_RESPONSES: for a called name of n bytes, NAMESPACE.NAME, the length of its
 * namespace in bytes; 0: its tool has none. Any thread. */
size_t quire_stream_namespace(const quire_stream *s, const char *name, size_t n);

/* ---- streams that branch: docs/streams.md ---- */

/* Positions count tokens from the start of the prompt. A choice can be branched at any
 * position from the end of its prompt to the last token that quire_queue_next delivered,
 * until its END is delivered, even if the engine has gone further or finished. QUIRE_HERE
 * is that last token. Call all three functions on the queue's thread. On failure the
 * stream is unchanged. QUIRE_NOT_FOUND: the choice has ended. QUIRE_BUSY: it is still
 * being prepared, or a rollback or steer of it is pending. QUIRE_BAD_REQUEST: not
 * possible; err->param is "index", "position" or a field. */
#define QUIRE_HERE (-1)

/* Fork: makes a request that continues from the first `position` tokens of a choice and
 * shares their pages, even if the stream is released first.
 *
 * It copies the fields of the choice's request except stream, stream_options, n, best_of,
 * echo and prompt_logprobs. Its seed is derived from the choice's seed and the number of
 * earlier forks, so that its output differs; with the choice's own seed the output is the
 * same. Change fields with quire_request_set. Submit it to any queue of the same engine;
 * with another engine quire_submit fails with QUIRE_INVALID. Its events report all tokens
 * before `position` as prompt, and max_tokens and min_tokens count from there (unless
 * set, it ends where the choice would); penalties still distinguish prompt from generated
 * tokens. The caller owns *out until quire_submit takes it. */
quire_err quire_stream_fork(quire_stream *s, int32_t choice, int32_t position, quire_request **out,
                            quire_error *err);

/* Rollback: drops the tokens of a choice after the first `position`, releases their pages
 * and continues from there.
 *
 * `fields`, a JSON object or NULL, changes seed, max_tokens, stop_token_ids and fields
 * that affect sampling. Noise depends on seed and position: with no field changed, the
 * same tokens are generated again. A ROLLBACK event reports when it is done, with what
 * remains; new DELTAs follow. DELTAs delivered before it belong to the dropped tail, and
 * no END comes before it. If it fails later, a REFUSED event reports why: the tail does
 * not fit, the engine is full, or the stream was cancelled. Not available with best_of or
 * beam search. O(position) on a text thread. */
quire_err quire_stream_rollback(quire_stream *s, int32_t choice, int32_t position, const char *fields,
                                size_t n_fields, quire_error *err);

/* Tokens that replace a dropped tail: ids or, if ids is NULL, text in which special
 * tokens are parsed. Copied. */
typedef struct quire_tail {
    const char *text;
    size_t n_text;
    const int32_t *ids;
    size_t n_ids;
} quire_tail;

/* Steer: a rollback, then appends the tail as if the choice had generated it, then
 * continues. The tail's DELTAs have no log-probabilities; stop strings match in it, stop
 * tokens do not. */
quire_err quire_stream_steer(quire_stream *s, int32_t choice, int32_t position, const quire_tail *tail,
                             const char *fields, size_t n_fields, quire_error *err);

/* ---- parked prefixes: docs/streams.md ---- */

/* A park keeps the pages of one sequence (keys, values, recurrent states) after the
 * sequence has ended. The pages are held as if the sequence still ran: they are neither
 * evicted nor moved to tiers. A request of the same tenant, cache_salt, adapter and
 * attention whose prompt begins with the sequence's tokens finds all of them in the
 * prefix cache.
 *
 * A park is empty at first. quire_request_park names the choice that parks in it. When
 * that choice ends (STOP, LENGTH or CANCELLED), its computed tokens replace what the park
 * held: the prompt, and the answer without its last token, which was never computed. The
 * replacement is atomic, so no page can be evicted in between. A choice that ends with an
 * error, or with nothing computed, leaves the park unchanged. A request with max_tokens 0
 * computes the uncached part of its prompt, generates nothing, and parks that; its park
 * also keeps the logits after the prompt if they were computed, so that a request for
 * exactly these tokens samples without computing any row. A fork (quire_stream_fork) with
 * max_tokens 0 parks the tokens of a running choice up to a position.
 *
 * parked_bytes and parked_tenant_bytes of quire_options limit parks; a page in several
 * parks counts once. A sequence that exceeds a limit by itself is not parked. Otherwise
 * the oldest parks are emptied until the limits hold: those of the same tenant, or of the
 * tenant whose parks hold most. The oldest parks are also emptied when no request could
 * run otherwise, so every accepted request can be computed. The pages of an emptied park
 * are cached like others. Parks hold only what the prefix cache can find: nothing without
 * one, whole pages under QUIRE_PREFIX_CACHE_PAGE, and no rows computed with an activated
 * adapter. quire_engine_drop_cache does not affect parks. */
typedef struct quire_park quire_park;

/* Opens an empty park. Close it before the engine. Any thread. NO_MEMORY. */
quire_err quire_park_open(quire_engine *e, quire_park **out);
/* Closes a park: its pages are cached like others, and choices that were to park in it
 * end normally. Returns at once. NULL is allowed. Any thread. */
void quire_park_close(quire_park *p);
/* Makes the choice of that index, 0 to 1,023, park in p; NULL, the default: nowhere. A
 * choice that is rolled back or steered parks only at its end. p may be closed at any
 * time. quire_submit fails with QUIRE_INVALID for beam search, requests that generate no
 * tokens, and a park of another engine. INVALID: no such index. NO_MEMORY. */
quire_err quire_request_park(quire_request *r, int32_t choice, quire_park *p);

/* What a park holds. */
typedef struct quire_park_info {
    size_t size;      /* sizeof this struct in the caller's quire.h; set before the call */
    int32_t n_tokens; /* tokens of the parked sequence; 0: empty */
    int32_t n_pages;  /* pages that hold them; other parks and requests may share some */
    /* sequences parked here; how often a limit emptied the park or kept a sequence out */
    int64_t n_parked, n_bounded;
} quire_park_info;

/* Fills *out. Parking is complete when the choice's END is delivered. Any thread. */
void quire_park_look(const quire_park *p, quire_park_info *out);

/* ---- LoRA adapters: docs/adapters.md ---- */

/* An adapter that was loaded or listed under a name. */
typedef struct quire_adapter {
    size_t size; /* sizeof this struct in the library; later versions add members at the end */
    const char *name, *path;
    /* adapters of quire_options.loras: number, and scale for requests that name no
     * adapter; otherwise -1 and 0 */
    int32_t number;
    float scale;
    /* is_running, is_waiting: sequences that use it are running, or waiting */
    bool is_loaded, is_running, is_waiting;
    /* as of its last load; 0: never loaded */
    int32_t rank;
    int64_t n_bytes, load_us;
    /* totals of requests that have ended */
    int64_t n_requests, prompt_tokens, completion_tokens;
} quire_adapter;

/* Lists the adapters that the engine knows, except those of lora_dir that no request has
 * named yet. *list is an array of n pointers in one allocation; free it with quire_free;
 * NULL: none. Any thread. NO_MEMORY. */
quire_err quire_adapters(const quire_engine *e, quire_adapter ***list, size_t *n);
/* Loads an adapter (a PEFT directory or a GGUF file) under a name that requests can use
 * from now on (quire_request_adapter). in_place: replaces an adapter of that name, whose
 * requests keep the old one until they end; otherwise a known name is INVALID.
 * UNSUPPORTED: the engine was opened without adapters. After a failure nothing is
 * changed, and err names the tensor that does not fit. The engine keeps running steps.
 * Blocks. Any thread. */
quire_err quire_adapter_load(quire_engine *e, const char *name, const char *path, bool in_place,
                             quire_error *err);
/* Like quire_adapter_load, without blocking: a CHECKED event on q delivers a confirmation
 * or the error. quire_parse_cancel cancels the event, not the load. NO_MEMORY. Call on
 * q's thread. */
quire_err quire_adapter_start(quire_queue *q, const char *name, const char *path, bool in_place, void *user,
                              quire_parse **out);
/* Removes an adapter. Its requests keep it until they end; then its memory is freed.
 * NOT_FOUND. Any thread. */
quire_err quire_adapter_unload(quire_engine *e, const char *name, quire_error *err);
/* Sets the scale of an adapter of quire_options.loras for requests that name no adapter,
 * from now on. BAD_REQUEST: no such number. Any thread. */
quire_err quire_adapter_scale(quire_engine *e, int32_t number, float scale, quire_error *err);
/* Whether requests may name this adapter: it is known, or lora_dir will be searched for
 * it. Does not block. Any thread. */
bool quire_adapter_known(const quire_engine *e, const char *name);

/* Limits, counts and memory of an engine's adapters. */
typedef struct quire_adapter_stats {
    size_t size; /* sizeof this struct in the caller's quire.h; set before the call */
    /* most that run at once (0: opened without adapters), largest rank, most that are
     * loaded at once */
    int32_t max_running, max_rank, max_loaded;
    int32_t n_loaded, most_loaded; /* now, and the most so far */
    int64_t n_bytes;               /* bytes of loaded adapters */
    /* totals: files loaded; adapters unloaded to make room for others */
    int64_t n_loads, n_evictions;
} quire_adapter_stats;
void quire_adapter_count(const quire_engine *e, quire_adapter_stats *out);

/* ---- snapshots of the pages ---- */

/* A snapshot of an engine's pages, sequences and prefix tree. One thread requests it
 * without blocking; the engine fills it between two steps. */
typedef struct quire_pool_view quire_pool_view;

#define QUIRE_POOL_VIEW_PAGES 65536

/* Allocates a view for at most QUIRE_POOL_VIEW_PAGES pages, 4,096 sequences and 256
 * events. */
quire_err quire_pool_view_open(quire_engine *e, quire_pool_view **out);
/* Closes the view and drops a pending request. Close it before the engine. NULL is
 * allowed. */
void quire_pool_view_close(quire_pool_view *v);
/* A file descriptor that is readable from when a snapshot is filled until
 * quire_pool_view_get. */
int quire_pool_view_fd(const quire_pool_view *v);
/* Requests a snapshot of the current state, with the tokens of one page (-1: none) and
 * the KV events after number `after`. Ignored while another request is pending. */
void quire_pool_view_ask(quire_pool_view *v, int32_t page, uint64_t after);
/* The snapshot requested last, valid until the next request; NULL while it is pending or
 * before the first. A sequence's id is its request's number in order of arrival. Waiting
 * sequences hold no pages and are not included. */
const quire_kv_view *quire_pool_view_get(quire_pool_view *v);

/* ---- model files without an engine ---- */

/* Describes a model file, for people or (json) for programs. Free *text with
 * quire_free. */
quire_err quire_inspect(const quire_options *o, bool json, char **text, quire_error *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
