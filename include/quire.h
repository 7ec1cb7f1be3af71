/* Quire: the public C API. An engine serves one model to many requests at once.
 *
 *   quire_options_init -> quire_engine_open -> quire_queue_open
 *   quire_request_parse -> quire_submit -> quire_queue_next (events) -> quire_stream_release
 *   quire_queue_close -> quire_engine_close
 *
 * Threads: any thread may use an engine. One thread reads a queue. The maker of a request
 * owns it until quire_submit takes it. Text is UTF-8 with explicit length. All ids are
 * 0-based token ids of the model's vocabulary. */
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

/* The library exports what is declared here, and nothing else. */
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* The version of this header; the build reads it from here. */
#define QUIRE_VERSION "0.1.0"

/* The version of the library in use. Static. */
const char *quire_version(void);

typedef struct quire_engine quire_engine;
typedef struct quire_request quire_request;
typedef struct quire_stream quire_stream;
typedef struct quire_queue quire_queue;

/* ---- engine ---- */

/* The first tokens of prompts: ids or, where those are NULL, a text. The text is
 * tokenised like a completion's prompt, with special tokens parsed and BOS by the model's
 * setting. Prompts are compared as tokens: a chat's prompt begins with what the template
 * writes. */
typedef struct quire_prefix {
    const char *text;
    size_t n_text;
    const int32_t *ids;
    size_t n_ids;
} quire_prefix;

/* The kinds of requests. Those of tokens and templates end with their prompts: nothing is
 * generated, and no prompt reaches the engine (quire_request_more.prompt_only). */
typedef enum quire_endpoint {
    QUIRE_COMPLETIONS,
    QUIRE_CHAT,
    QUIRE_EMBEDDINGS,
    QUIRE_OLLAMA_CHAT,
    QUIRE_OLLAMA_GENERATE,
    QUIRE_OLLAMA_RAW,       /* the same without the chat's template; a body for the former becomes one */
    QUIRE_MESSAGES,         /* a conversation in the form of Anthropic's Messages API */
    QUIRE_RESPONSES,        /* one in the form of OpenAI's Responses API */
    QUIRE_TOKENIZE,         /* a text's ids; a body with `messages` or `content` is of the next two */
    QUIRE_TOKENIZE_CHAT,    /* a conversation's ids */
    QUIRE_TOKENIZE_CONTENT, /* a text's ids, in llama.cpp's fields */
    QUIRE_DETOKENIZE,       /* the text of ids */
    QUIRE_APPLY_TEMPLATE,   /* a conversation's text */
    QUIRE_POOLING,          /* rows as of QUIRE_EMBEDDINGS, in vLLM's form */
    QUIRE_EMBEDDING,        /* the same in llama.cpp's */
    QUIRE_SCORE,            /* how well texts fit to others, by pairs */
    QUIRE_RERANK,           /* documents in the order in which they fit to a query */
    QUIRE_RERANKING,        /* the same in llama.cpp's form */
    /* ids and sampling parameters of a completion or chat, without generating */
    QUIRE_COMPLETIONS_RENDER,
    QUIRE_CHAT_RENDER,
    QUIRE_CHAT_BATCH,        /* chats that share their fields */
    QUIRE_LLAMA_COMPLETION,  /* completions in llama.cpp's form */
    QUIRE_LLAMA_INFILL,      /* the same for a gap between two texts */
    QUIRE_OLLAMA_EMBED,      /* rows as of QUIRE_EMBEDDINGS, in Ollama's form */
    QUIRE_OLLAMA_EMBEDDINGS, /* the same for one text, in its older form */
    QUIRE_SGLANG_GENERATE,   /* completions in SGLang's form */
    QUIRE_SGLANG_ENCODE      /* rows as of QUIRE_EMBEDDINGS, in SGLang's form */
} quire_endpoint;

/* The choices of quire_options. The first is the default unless the comment names
 * another. */

/* How matrix products are computed; AUTO: by the weights. FP8 checks checkpoints of FP8,
 * MX and NVFP4 forms. */
typedef enum quire_compute {
    QUIRE_COMPUTE_AUTO,
    QUIRE_COMPUTE_F32,
    QUIRE_COMPUTE_BF16,
    QUIRE_COMPUTE_INT8,
    QUIRE_COMPUTE_FP8
} quire_compute;

/* How keys and values are stored; AUTO: fp8_e4m3 if the checkpoint's quantization_config
 * names it for keys and values, else f32 with f32 compute, else bf16. */
typedef enum quire_kv_dtype {
    QUIRE_KV_AUTO,
    QUIRE_KV_F32,
    QUIRE_KV_F16,
    QUIRE_KV_BF16,
    QUIRE_KV_FP8_E4M3,
    QUIRE_KV_INT8,
    QUIRE_KV_INT4
} quire_kv_dtype;

/* Which computed tokens prompts reuse of others of their tenant: none, whole pages of
 * them, or all leading tokens (the default). */
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

/* Which waiting request is admitted first (docs/scheduling.md); AUTO: FCFS ("quire serve"
 * with two keys or more: FAIR). */
typedef enum quire_schedule {
    QUIRE_SCHEDULE_AUTO,
    QUIRE_SCHEDULE_FCFS,
    QUIRE_SCHEDULE_PRIORITY,
    QUIRE_SCHEDULE_PREFIX,
    QUIRE_SCHEDULE_FAIR
} quire_schedule;

/* What happens to preempted sequences: whichever costs less by measured costs; computed
 * again; swapped out wherever there is room. */
typedef enum quire_preemption {
    QUIRE_PREEMPTION_AUTO,
    QUIRE_PREEMPTION_RECOMPUTE,
    QUIRE_PREEMPTION_SWAP
} quire_preemption;

/* When pages are written to file and Redis: when they leave the pool, or soon after they
 * were computed. */
typedef enum quire_tier_write { QUIRE_TIER_WRITE_EVICT, QUIRE_TIER_WRITE_THROUGH } quire_tier_write;

/* Special tokens that a chat's client writes in messages and other fields: ordinary text,
 * or tokens. */
typedef enum quire_message_tokens {
    QUIRE_MESSAGE_TOKENS_PLAIN,
    QUIRE_MESSAGE_TOKENS_PARSE
} quire_message_tokens;

/* What objects of a JSON Schema may hold in answers besides the properties that they
 * list, for requests that leave it out: nothing, if the schema lists properties and does
 * not mention others; or what the standard allows. */
typedef enum quire_json_properties {
    QUIRE_JSON_PROPERTIES_CLOSED,
    QUIRE_JSON_PROPERTIES_SCHEMA
} quire_json_properties;

/* White space in answers that a JSON Schema describes, where a request does not say:
 * none; a space, or one or two line ends and up to 20 spaces (the default); runs of at
 * most 20 characters. */
typedef enum quire_json_space {
    QUIRE_JSON_SPACE_COMPACT,
    QUIRE_JSON_SPACE_LINES,
    QUIRE_JSON_SPACE_ANY
} quire_json_space;

/* The type of recurrent states, which are rounded to it after each token. */
typedef enum quire_state_dtype { QUIRE_STATE_F32, QUIRE_STATE_BF16 } quire_state_dtype;

/* Whether tokens that a request's grammar forces are computed together, or one by one.
 * The answers are the same. */
typedef enum quire_jump_forward { QUIRE_JUMP_FORWARD_ON, QUIRE_JUMP_FORWARD_OFF } quire_jump_forward;

typedef struct quire_options {
    /* of this struct in the caller's quire.h; quire_options_init sets it. Later versions
     * add members at the end */
    size_t size;
    const char *model; /* a .gguf file, a Hugging Face directory, a packed model, or "builtin" */
    quire_compute compute;
    quire_kv_dtype kv_dtype;
    quire_prefix_cache prefix_cache;
    quire_eviction eviction_policy;
    quire_schedule schedule;
    double schedule_lambda; /* QUIRE_SCHEDULE_PREFIX: cached tokens that a second of waiting is worth */
    /* while streams decode, prompts are prefilled in chunks that keep a step within this
     * or twice the streams' own time; 0: as fast as possible */
    int64_t step_target_us;
    /* [n_public_prefixes] beginnings of prompts, whose pages all tenants share. Copied */
    const quire_prefix *public_prefixes;
    int32_t n_public_prefixes;
    /* a file that records live, reserved and wasted bytes at each allocation of pages;
     * NULL: none */
    const char *audit;
    /* "auto", "plain", "avx2", "avxvnni", "avx512", "amx", "avx512bf16", "neon",
     * "i8mm" */
    const char *isa;
    const char *chat_template; /* the template's text, or NULL: the model's own */
    int32_t n_threads;         /* 0: one for each core that the process may use */
    /* "none": the system places threads; "auto": each is bound to a processor, where they
     * fill the cores; or the processors: "0-3,8" */
    const char *cpu_bind;
    int32_t page_tokens;       /* power of two, 1..256 */
    int32_t n_pages;           /* 0: computed from memory_utilization */
    double memory_utilization; /* part of the free memory, after weights and buffers, for KV pages */
    bool lock_memory;          /* lock weights, pages and buffers in memory: none of them is paged out */
    /* tokens a sequence may have; 0: the model's own, as far as the pool can hold it */
    int32_t max_model_len;
    int32_t max_batched_tokens; /* rows a step */
    int32_t max_seqs;           /* sequences running at once */
    int32_t prefill_chunk;      /* most prompt tokens of one sequence in a step; 0: what fits into the step */
    /* a prompt is computed in one step: max_batched_tokens is at least max_model_len +
     * max_seqs */
    bool no_chunked_prefill;
    bool no_cascade; /* attention reads a shared prefix once for each sequence */
    /* that tokenise and render templates at once; 0: as many as compute leaves
     * processors, 2 at least */
    int32_t n_text_threads;
    /* memory for the states of requests' rules (grammars, schemas), all together (256M);
     * at most a sixteenth of what there is */
    int64_t rule_bytes;
    int64_t text_cache_bytes; /* host memory for the ids of conversations, which may go on (64M); 0: none */
    /* speculative decoding, a JSON object with vLLM's names (docs/speculation.md); NULL:
     * none */
    const char *speculative_config;
    /* host memory for preempted sequences, which are swapped in instead of computed
     * again; 0: none */
    int64_t swap_bytes;
    quire_preemption preemption_mode;
    int64_t tier_host_bytes; /* host memory for cached pages that leave the pool; 0: none */
    const char *tier_file;   /* directory for evicted pages, which the next start reuses; NULL: none */
    int64_t tier_file_bytes;
    /* URL of a Redis or Valkey server for them, redis://host:port/number or unix:///path;
     * NULL: none */
    const char *tier_redis;
    int64_t tier_redis_bytes; /* most bytes that this process leaves there */
    quire_tier_write tier_write;
    /* how long a request waits for its pages from tiers before it computes them */
    int64_t tier_wait_us;
    /* defaults of temperature, top_k, top_p, min_p and repetition_penalty, for
     * requests that leave them out: "auto": as the model recommends in
     * generation_config.json or general.sampling.*; "none": as the API has them; or
     * such a file, or its directory */
    const char *generation_config;
    /* a response's limit in JSON bytes: a request that could exceed it by n, echo,
     * logprobs and max_tokens is refused; 0: no limit */
    int64_t max_answer_bytes;
    /* a JSON object: defaults that override those of generation_config, for the same
     * fields and presence_penalty, frequency_penalty, seed and max_tokens; NULL: none */
    const char *request_defaults;
    /* most likeliest tokens that a request may have reported beside a token, 1..20; 20
     * does not bound llama.cpp's n_probs */
    int32_t max_logprobs;
    int32_t max_tool_calls; /* most calls of tools in one answer, 1..1024; a request may ask for fewer */
    /* the body of a request to check after the model's metadata are read and before
     * its weights are; a bad one fails the opening with QUIRE_INVALID; NULL: none */
    const char *request_check;
    /* a directory where the packed form of a loaded model is kept, from which later
     * starts load in milliseconds: made if it is not there, written to after the start,
     * shared by any number of processes of one user. NULL: none */
    const char *pack_cache;
    int64_t pack_cache_bytes;          /* most that it may take: the least recently used models go first */
    quire_endpoint request_check_kind; /* endpoint of request_check */
    /* metadata that the model's files lack or say wrongly (docs/models.md): a JSON object
     * that is merged into config.json, or, for GGUF, "KEY=TYPE:VALUE,.." A key that
     * nothing reads is an error. NULL: none */
    const char *hf_overrides, *override_kv;
    /* expressions for the attention of all requests: which keys a query sees, beside the
     * model's own mask, and what becomes of scores (docs/attention.md); NULL: none */
    const char *mask_mod, *score_mod;
    const char *attention_arrays; /* an .npz file with the arrays of both; NULL: none */
    bool trust_request_attention; /* requests may bring their own: the field `attention` */
    /* a directory, tokenizer.json, SentencePiece .model, rank file, tekken.json or GGUF
     * file, whose tokenizer is used instead of the model's, with its chat template if it
     * has one; NULL: the model's own */
    const char *tokenizer;
    quire_message_tokens special_tokens_in_messages;
    bool trust_request_chat_template; /* a request's chat_template may be a template's text */
    /* formats in which the model writes tool calls and reasoning (docs/tools.md): a name;
     * "auto": by the chat template's marks; "none" */
    const char *tool_call_parser, *reasoning_parser;
    quire_json_properties json_additional_properties;
    quire_json_space json_whitespace;
    quire_jump_forward jump_forward;
    /* models that load in less than this are not kept in pack_cache: they gain nothing.
     * 0: all are */
    int64_t pack_cache_least_us;
    /* what 16-bit and 32-bit weights are quantised to while they are loaded
     * (docs/quantisation.md): "q8_0", "q6_k", "q5_k", "q4_k", "q4_0", "iq4_xs", "mxfp4",
     * "int8" or "fp8"; or "published:METHOD" with "gguf", "awq", "gptq" or another
     * method: the file must be of it and runs as it is. NULL: nothing */
    const char *quantization;
    quire_kv_dtype kv_dtype_values; /* how values are stored; QUIRE_KV_AUTO: as keys */
    /* a secret under which reasoning is signed that clients send back (quire_sign); the
     * processes that serve one conversation need the same. NULL: a new one */
    const char *signing_key;
    /* models with recurrent states (docs/kv.md): a snapshot of a sequence's states every
     * so many tokens, besides those where prompts, messages and answers end; 0: only
     * these */
    int32_t state_snapshot_tokens;
    /* most bytes of the pool in snapshots; 0: half of the pool, or all of it where a
     * model has states alone */
    int64_t state_snapshot_bytes;
    /* LoRA adapters (docs/adapters.md): requests may have one, which changes the weights
     * for their rows. Given by any of the next four */
    bool enable_lora;
    /* adapters by name, a line each: NAME=PATH, or {"name": .., "path": ..}; NULL:
     * none */
    const char *lora_modules;
    const char *lora_dir; /* a directory whose entries are adapters by name; NULL: none */
    /* adapters by number, a line each: PATH or PATH:SCALE. With their scales they apply
     * to requests that name none; NULL: none */
    const char *loras;
    bool lora_init_without_apply; /* the scales of loras are 0 until they are changed */
    int32_t max_loras;            /* different ones that run at once, 1..256 (8) */
    int32_t max_lora_rank;        /* 1..256 (64) */
    int32_t max_cpu_loras;        /* loaded at once; 0: four times max_loras */
    quire_state_dtype state_dtype;
    /* most bytes of the pool that parks hold (quire_park), of all tenants and of one; 0:
     * half of the pool, and as much as all */
    int64_t parked_bytes, parked_tenant_bytes;
    /* called before each tensor, by the loading thread, with the part of the weights
     * (0 to 1) that is loaded. False: stop, so that opening fails with
     * QUIRE_CANCELLED. NULL: never stop */
    bool (*load_progress)(void *user, double part);
    void *load_progress_user;
    /* the most engines that will be open beside this one at once, 0..63: the memory of
     * all KV pages is one budget then, of which each can always have its share
     * (docs/kv.md). 0: each engine has memory of its own */
    int32_t n_beside;
    /* most memory for weights, buffers and KV pages of this engine and those beside it;
     * 0: what the machine has */
    int64_t models_memory_bytes;
} quire_options;

/* Sets the defaults in a struct of `size` bytes: for programs that do not read this
 * header. Bytes beyond this library's members become 0. */
void quire_options_init_sized(quire_options *o, size_t size);
/* Sets the defaults. A program made with another version's header works: options that its
 * header lacks have their defaults. Options that the library lacks must keep the value
 * set here, or functions that take the struct fail with QUIRE_INVALID. */
static inline void quire_options_init(quire_options *o) {
    quire_options_init_sized(o, sizeof *o);
}

/* Sets the option that a flag of `quire serve` names ("max-num-seqs", "--max-num-seqs",
 * "max_num_seqs"; any of its names) to a value as the command line has it ("64", "8G",
 * "fp8"; a switch: "true"). Texts are borrowed. INVALID: err names the option and what is
 * right, and nothing is changed. */
quire_err quire_options_set(quire_options *o, const char *name, const char *value, quire_error *err);

/* Loads the model and starts the engine's threads. On failure *out is NULL and err says
 * what to do. */
quire_err quire_engine_open(const quire_options *o, quire_engine **out, quire_error *err);
/* As above, for a further model beside a running engine, the host. Both compute on the
 * host's threads, in turn: a step is of one model, and each gets an equal share of the
 * time as long as it has requests. Loading goes on in the background of the host's steps.
 * Where the host has n_beside, o's own n_beside, memory_utilization and
 * models_memory_bytes mean nothing, and QUIRE_NO_MEMORY is also the error of a model that
 * does not fit into the memory that the models share: it may once another one is closed.
 * Engines that are open beside each other may be closed in any order. Any thread; host
 * may not be closed meanwhile. */
quire_err quire_engine_open_beside(quire_engine *host, const quire_options *o, quire_engine **out,
                                   quire_error *err);
/* Cancels running requests, waits for the threads, frees everything. Close queues
 * before. */
void quire_engine_close(quire_engine *e);

/* Writes the model that o names to path as one packed file, for o's compute mode. A
 * packed model opens in milliseconds, and processes share its memory. A file at path is
 * replaced when the new one is complete. *n_bytes: its size. */
quire_err quire_pack(const quire_options *o, const char *path, int64_t *n_bytes, quire_error *err);

/* Properties of an open engine, which owns the strings. */
typedef struct quire_info {
    const char *model_path, *architecture, *model_name;
    const char *compute, *kv_dtype, *backend; /* "int8", "bf16", "cpu, avx2, 2 threads bound to 0-1" */
    int32_t n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff, n_vocab;
    int32_t max_model_len, page_tokens, n_pages, max_batched_tokens, max_seqs;
    int32_t n_threads; /* compute threads */
    int64_t n_params, weight_bytes, page_bytes, token_bytes, buffer_bytes;
    int32_t bos, eos; /* -1: none */
    /* the second: it can chat, in the form that chat_form names */
    bool has_vocabulary, has_chat_template, caches_prefixes;
    /* where the template of chats comes from: "file" (given), "model", or, where the
     * model has none, "chatml" or "plain" (docs/http.md); NULL: no chat */
    const char *chat_form;
    int32_t n_page_groups; /* groups of layers: a token takes room in a page of each */
    /* the file with defaults of requests; NULL: the API's own defaults only */
    const char *generation_config;
    /* the defaults from it and quire_options' request_defaults: "temperature 0.6, top_k
     * 20"; "": none */
    const char *generation_defaults;
    size_t max_answer_bytes; /* 0: no limit */
    /* how the number of pages came about: "50% (--memory-utilization, 0.5 by default) of
     * the 21.3 GB that the machine has available .." */
    const char *pool_plan;
    int32_t model_max_len; /* tokens a sequence may have by the model; max_model_len may be less */
    /* sequences of max_model_len tokens that fit in the pool; tokens outside a layer's
     * window take no pages */
    int64_t n_full_requests;
    const char *tool_format, *reasoning_format; /* formats of chats' responses, by name; NULL: none */
    /* how chats' prompts begin: "with BOS, <s>: the template writes it"; NULL: no chat */
    const char *chat_start;
    /* the tokens that end an answer: "</s> (2, by a key of the file), .."; NULL: no
     * text */
    const char *end_tokens;
} quire_info;

const quire_info *quire_engine_info(const quire_engine *e);

/* The rows that an open engine gives in place of tokens: embeddings, or scores. */
typedef struct quire_row_info {
    size_t size;      /* of this struct in the library; later versions add members at the end */
    int32_t n_row;    /* elements of a pooled row, before `dimensions` cuts it */
    int32_t n_scores; /* a head gives this many scores of an input in place of an embedding; 0: none */
    /* the model's files name no function of its scores, which are logits */
    bool scores_are_logits;
    /* rows may be cut by the model's own word (`is_matryoshka`, `matryoshka_dimensions`);
     * [n_widths] to which lengths; 0: to any */
    bool is_matryoshka;
    const int32_t *widths;
    int32_t n_widths;
} quire_row_info;

const quire_row_info *quire_engine_rows(const quire_engine *e);

/* Drops the prefix cache: requests submitted from now on find no page that no running
 * request holds, and the memory of unused pages goes back to the system. Answers do not
 * change. With tiers the pages go there, as all that leave the pool do. Returns at once;
 * the engine does it before its next step. Any thread. */
void quire_engine_drop_cache(quire_engine *e);
/* As above, for one tenant's prefixes, with every salt and adapter. The memory of their
 * pages stays for others. NO_MEMORY: nothing is dropped. Any thread. */
quire_err quire_engine_drop_tenant(quire_engine *e, const char *tenant);

/* Answers that later chats named by id (quire_stream_recall). */
typedef struct quire_turn_stats {
    size_t size; /* of this struct in the caller's quire.h: set before the call */
    /* went on from their ids; were not kept any more; were sent back with another text */
    int64_t n_reused, n_gone, n_differ;
} quire_turn_stats;
void quire_engine_turns(const quire_engine *e, quire_turn_stats *out);

/* The snapshots of recurrent states, as after the last step. Any thread. */
void quire_engine_snapshots(const quire_engine *e, quire_snapshot_stats *out);

/* The memory of KV pages, as after the last step. Any thread. */
void quire_engine_page_memory(const quire_engine *e, quire_page_memory *out);

/* What parks hold (quire_park), as after the last step. Any thread. */
void quire_engine_parked(const quire_engine *e, quire_parked_stats *out);

/* All counters and gauges, read together. Any thread. */
void quire_engine_stats(const quire_engine *e, quire_stats *out);
/* False while one step has been running for over a minute: the engine is stuck. */
bool quire_engine_healthy(const quire_engine *e);

/* ---- text ---- */

/* Tokenises a text. Special tokens in it are parsed; add_special adds BOS by the model's
 * setting. *ids is freed with quire_free. UNSUPPORTED without vocabulary. */
quire_err quire_tokenize(const quire_engine *e, const char *text, size_t n, bool add_special, int32_t **ids,
                         size_t *n_ids, quire_error *err);
/* Tokenises two texts as one input, with the tokens that the tokenizer puts around a
 * pair, and a token type for each, as a cross-encoder takes them (quire_input). Special
 * tokens in the texts are not parsed. *ids and *types are freed with quire_free; *types
 * is NULL for a model without token types. UNSUPPORTED without vocabulary. */
quire_err quire_tokenize_pair(const quire_engine *e, const char *text, size_t n_text, const char *pair,
                              size_t n_pair, int32_t **ids, int32_t **types, size_t *n, quire_error *err);
/* Detokenises ids; *text is freed with quire_free and 0-terminated. */
quire_err quire_detokenize(const quire_engine *e, const int32_t *ids, size_t n, bool skip_special,
                           char **text, size_t *n_text, quire_error *err);
/* The bytes that one token adds to a text after another token: they may be a part of a
 * character only. For a special token its text. *bytes is freed with quire_free and
 * 0-terminated. UNSUPPORTED without vocabulary, BAD_REQUEST for an id out of its
 * range. */
quire_err quire_token_bytes(const quire_engine *e, int32_t id, char **bytes, size_t *n, quire_error *err);
/* The vocabulary's spelling of an id, which the engine owns; "" when there is none. */
const char *quire_token_piece(const quire_engine *e, int32_t id, size_t *n);
/* The template of chats, in Jinja, n bytes that are not 0-terminated; empty: no chat. The
 * engine owns it. Any thread. */
const char *quire_engine_chat_template(const quire_engine *e, size_t *n);

/* A tokenizer without a model: of a directory, a GGUF file, a packed model or a tokenizer
 * file (tokenizer.json, a SentencePiece .model, a rank file, tekken.json), of any
 * architecture, or builtin. Immutable: any thread. The calls are as those above. */
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
/* Signs reasoning that a client may send back in a QUIRE_MESSAGES request. digest: the
 * SHA-256 of its text. out gets hexadecimal digits and a 0 byte. */
void quire_sign(const quire_engine *e, const uint8_t digest[32], char out[QUIRE_SIGNATURE_BYTES + 1]);

/* ---- requests ---- */

/* Parses and validates the JSON body of an OpenAI request. err->param names the wrong
 * field. Does not tokenise. */
quire_err quire_request_parse(const quire_engine *e, quire_endpoint endpoint, const char *body, size_t n,
                              quire_request **out, quire_error *err);
void quire_request_free(quire_request *r);

/* Writes the JSON Schema (draft 2020-12) of an endpoint's bodies: the type, range,
 * default and meaning of each field. A body that it forbids is refused. A body that it
 * allows may be refused for what a schema does not say: two fields that exclude each
 * other, or a limit of the model. *json: n bytes and a 0, freed with quire_free; NULL on
 * failure. NO_MEMORY. */
quire_err quire_request_schema(const quire_engine *e, quire_endpoint endpoint, char **json, size_t *n,
                               quire_error *err);

/* The same on a text thread, for a body that takes long to parse: a PARSED event on q
 * delivers the request, or the error. */
typedef struct quire_parse quire_parse;
/* Takes body, memory of quire_alloc, also on failure, and frees it once it is parsed.
 * tenant: whose turn it takes among the texts that wait (quire_request_tenant). Does not
 * block. Called on q's thread. *out is valid until its PARSED was delivered.
 * QUIRE_NO_MEMORY. */
quire_err quire_parse_start(quire_queue *q, quire_endpoint endpoint, char *body, size_t n, const char *tenant,
                            void *user, quire_parse **out);
/* Looks over the n bytes that a longer body begins with: a LOOKED event on q reports
 * whether a field among them is too large, so that the body is refused whatever follows.
 * Otherwise as quire_parse_start, but that the event gives begin back. O(n); builds
 * nothing. */
quire_err quire_look_start(quire_queue *q, quire_endpoint endpoint, char *begin, size_t n, const char *tenant,
                           void *user, quire_parse **out);
/* Cancels a parse or a look: its event does not come; a parsed request, or begin, is
 * freed. Called on q's thread. */
void quire_parse_cancel(quire_parse *p);

/* Says of a rule for responses what would be enforced, without generating, on a text
 * thread: a CHECKED event on q delivers the report, or the error. body: {"schema": ..},
 * or an object with one of the fields of a request that name a rule (docs/structured.md).
 * Otherwise as quire_parse_start; quire_parse_cancel cancels it. */
quire_err quire_check_start(quire_queue *q, char *body, size_t n, const char *tenant, void *user,
                            quire_parse **out);
/* Counts the tokens of the prompt of a body of QUIRE_MESSAGES, which may lack max_tokens,
 * without generating: the CHECKED event's text is {"input_tokens": n}. Otherwise as
 * quire_check_start. */
quire_err quire_count_start(quire_queue *q, char *body, size_t n, const char *tenant, void *user,
                            quire_parse **out);

/* Makes a request with a prompt of ids and no text, for tests, benchmarks and `quire
 * logits`. Copies the ids. Other fields are set by name; until then they are as in a body
 * that leaves them out (quire_options' generation_config). */
quire_err quire_request_ids(const quire_engine *e, const int32_t *ids, size_t n, quire_request **out,
                            quire_error *err);
/* An input of embeddings: ids or, where those are NULL, a text, which is tokenised like a
 * completion's prompt. */
typedef struct quire_input {
    const char *text;
    size_t n_text;
    const int32_t *ids;
    size_t n_ids;
    /* [n_ids] a token type for each id, as a cross-encoder's pair has; NULL: all are of
     * type 0 */
    const int32_t *types;
} quire_input;

/* How an input's rows become one. { NULL, 0, -1 }: as the model's files specify. */
typedef struct quire_embed_options {
    /* "mean", "cls", "last" or "rank" (scores); NULL: as the model's files specify;
     * BAD_REQUEST if they do not */
    const char *pooling;
    int32_t dimensions; /* the first elements, which are kept (Matryoshka embeddings); 0: all */
    /* 1: what is kept is divided by its length; 0: not; -1: as the model's files specify,
     * 1 if they do not */
    int normalize;
} quire_embed_options;

/* Makes a request for a row of each of 1 to 1,024 inputs, as quire_request_parse does of
 * a body for QUIRE_EMBEDDINGS ({"input": .., "token_type_ids", "pooling", "dimensions",
 * "normalize"}). Copies the inputs. o may be NULL. Where the model has a head of scores,
 * as a cross-encoder has, a row is these scores, never normalised. Each input is a
 * choice, whose row an EMBEDDING event delivers. */
quire_err quire_request_embed(const quire_engine *e, const quire_input *inputs, size_t n,
                              const quire_embed_options *o, quire_request **out, quire_error *err);
/* Computes the rows of any number of inputs and waits for them: the above on a queue
 * of its own, for programs that do nothing else meanwhile. Any thread, several at once
 * too. Inputs share steps with each other and with all other requests. *rows:
 * [n][*n_row], the caller's, freed with quire_free; on failure NULL. QUIRE_BUSY when
 * the engine is full. */
quire_err quire_embed(quire_engine *e, const quire_input *inputs, size_t n, const quire_embed_options *o,
                      float **rows, size_t *n_row, quire_error *err);
/* Makes a request to go on from a text, as a completion's prompt, or to answer a chat.
 * Copies the texts. Other fields are as in a body that leaves them out; quire_request_set
 * changes them. */
quire_err quire_request_text(const quire_engine *e, const char *text, size_t n, quire_request **out,
                             quire_error *err);
typedef struct quire_message {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
    size_t n_content;
} quire_message;
quire_err quire_request_chat(const quire_engine *e, const quire_message *messages, size_t n,
                             quire_request **out, quire_error *err);
/* Sets a field by its OpenAI name; its value is JSON text ("0.7", "true", "[\"a\"]"). */
quire_err quire_request_set(quire_request *r, const char *field, const char *json, quire_error *err);
/* Sets the tenant: prefixes are shared between requests of one tenant only. Copied.
 * Default: one tenant for all. QUIRE_INVALID for a name of over QUIRE_TENANT_BYTES bytes;
 * the request is unchanged then. */
quire_err quire_request_tenant(quire_request *r, const char *tenant);
#define QUIRE_TENANT_BYTES 128
/* Sets the LoRA adapter by name (of quire_adapter_load, or quire_options' lora_modules
 * and lora_dir), instead of quire_options' loras; NULL: none. Copied. An unknown one
 * fails the stream with QUIRE_NOT_FOUND. INVALID: the request's `lora` has adapters;
 * NO_MEMORY. The request is unchanged then. */
quire_err quire_request_adapter(quire_request *r, const char *name);
/* Tells how long the request waited before it was submitted, as for its model to be
 * loaded, so that ttft_deadline_ms includes it. 0 by default. */
void quire_request_waited(quire_request *r, int64_t us);
/* Writes all logits of the prompt to out, f32 [n_prompt_tokens, n_vocab]. out must live
 * until the stream is done or, if it is released before, until its queue is closed.
 * Single prompt only, and not for a fork. */
void quire_request_logits(quire_request *r, float *out);
/* Makes r a step of a program: one of a tree of requests that continue each other. Of
 * a program's waiting steps the deepest is admitted first, of equally deep ones the
 * oldest, so that a branch is finished before the next begins. Steps only take turns
 * of their own program, so other requests wait no longer. In a full engine a step
 * waits for a place, the deepest first, instead of being refused. program: a number
 * that all its steps have and no other program of the tenant; 0 (initially): r is no
 * step. depth: its distance from the root, at least 0. Under QUIRE_SCHEDULE_PREFIX
 * cached tokens alone decide. */
void quire_request_step(quire_request *r, uint64_t program, int32_t depth);

/* What a server needs from a parsed request. The request owns the strings; after submit,
 * its stream does. */
typedef struct quire_request_info {
    quire_endpoint endpoint;
    const char *model; /* NULL when absent, null or "" */
    bool explain;      /* its ENDs carry a report */
    bool stream, include_usage, continuous_usage, echo, return_token_ids;
    /* prompts of a completion, inputs, 1 for chat, times n_samples; those of a prompt are
     * adjacent */
    int32_t n_choices;
    /* samples of each prompt, and how many of them are returned: fewer with best_of */
    int32_t n_samples, n_best;
    /* beam search with this many beams, whose results are the samples, the best first; 0:
     * none */
    int32_t beam_width;
    /* likeliest tokens to report beside each token of the response, and of the prompt;
     * -1: report nothing */
    int32_t logprobs, prompt_logprobs;
    /* members of the body without effect, "foo, bar", the first few, printable; NULL:
     * none */
    const char *ignored;
    bool names_call; /* tool_choice names the function that the response calls */
    bool old_calls;  /* the request has `functions`: its call is a function_call */
    /* a chat whose response is split into content, reasoning and tool calls: its DELTAs
     * have parts */
    bool has_parts;
} quire_request_info;

const quire_request_info *quire_request_describe(const quire_request *r);

/* Of a QUIRE_RESPONSES request: what its response repeats, and what is kept of it. */
typedef struct quire_responses_info {
    const char *members; /* JSON members that the response repeats, separated by commas */
    /* the items of `input`, a JSON object a line, each of which begins with its "id" */
    const char *input;
    size_t n_input;       /* bytes */
    const char *previous; /* previous_response_id; NULL: none */
    bool is_stored, is_background;
} quire_responses_info;

/* Of a QUIRE_RESPONSES request that is no fork; else NULL. As the strings of info. */
const quire_responses_info *quire_request_responses(const quire_request *r);

/* Finds the items of a stored response and of all that it continues, for a request
 * with previous_response_id: *lines has a JSON object a line, as
 * quire_responses_info.input, n bytes of quire_alloc, which the caller frees.
 * QUIRE_NOT_FOUND: the tenant has no such response; QUIRE_NO_MEMORY. Any thread. */
typedef quire_err (*quire_history)(void *user, const char *tenant, const char *id, char **lines, size_t *n);
/* Sets what finds them; NULL, as at first: no response is found. Not while requests are
 * parsed. */
void quire_engine_history(quire_engine *e, quire_history find, void *user);

/* Further facts for a server. Strings as in quire_request_info. */
typedef struct quire_request_more {
    size_t size; /* of this struct in the library; later versions add members at the end */
    /* it ends with its prompts: each choice has START and END alone, and START's text is
     * what the endpoint gives */
    bool prompt_only;
    /* of QUIRE_COMPLETIONS_RENDER and QUIRE_CHAT_RENDER: the members of the request's
     * JSON that follow its ids; else NULL */
    const char *render;
    int32_t stream_interval; /* tokens in each piece of a stream, but for its first and its last */
    bool tokens_as_ids;      /* log-probabilities name tokens by id */
    bool return_prompt_text; /* chats: START's text is the template's output */
    const char *request_id;  /* the client's name for the request, visible ASCII; NULL: none */
    bool rows_base64;        /* QUIRE_EMBEDDINGS: encoding_format is "base64" */
    int32_t dimensions;      /* the same: elements to which rows are cut; 0: they are not */
    /* QUIRE_SCORE and the kinds after it, with an embedding model: the first n_queries
     * choices are the queries', the rest the documents', with rows of length 1. 0:
     * each choice is a pair, whose row is its score */
    int32_t n_queries;
    int32_t top_n;         /* QUIRE_RERANK: most results to return; 0: all */
    bool return_documents; /* the same: START's text is the document */
    /* of QUIRE_TOKENIZE and its forms: each id's spelling is wanted beside it; of
     * QUIRE_SGLANG_GENERATE: the text of each token in its lists */
    bool token_texts;
    /* of a chat with echo whose last message is the assistant's: its content, which the
     * response begins with; else NULL */
    const char *echo;
    size_t n_echo;
    bool return_progress; /* PROGRESS events are wanted */
    /* of QUIRE_LLAMA_COMPLETION and QUIRE_LLAMA_INFILL; else NULL and false. JSON in
     * llama.cpp's form: the settings of the generation, an object; and the paths of the
     * members that the response has, an array of texts (NULL: all) */
    const char *settings, *response_fields;
    bool return_tokens;     /* the response has the ids that were generated */
    bool timings_per_token; /* each piece of a stream says how long it took */
    bool has_prediction;    /* the chat has the field prediction */
    /* a chat's conversation names an earlier answer by an id (quire_stream_recall) */
    bool names_answers;
    /* of SGLang's forms: request_id has a name for each prompt, each 0-terminated, one
     * after the other */
    bool names_prompts;
    bool is_list; /* the same: the response is an array, one element a choice */
    /* of QUIRE_SGLANG_GENERATE: the prompt's first token in the lists of
     * log-probabilities; -1: its last one alone, without a number */
    int32_t logprobs_start;
    /* Ollama's keep_alive, if given: how long the model stays without use afterwards;
     * below 0: for ever */
    bool has_keep_alive;
    int64_t keep_alive_us;
    /* the same: ids that the request names; their log-probabilities, of rank 0, are those
     * after the likeliest ones' */
    int32_t n_scored;
} quire_request_more;

const quire_request_more *quire_request_describe_more(const quire_request *r);

/* Gives a chat request the tools that its template sees: a JSON array, copied.
 * BAD_REQUEST where it is none; UNSUPPORTED for another kind of request. Once more
 * replaces them; r is unchanged after a failure. */
quire_err quire_request_tools(quire_request *r, const char *json, size_t n, quire_error *err);
/* Sets every field of a JSON object, as quire_request_parse does. An unknown member is
 * refused if it would change what is generated, else recorded in info. After an error,
 * free r. */
quire_err quire_request_set_all(quire_request *r, const char *json, size_t n, quire_error *err);

/* The tokens that a request of QUIRE_TOKENIZE or QUIRE_TOKENIZE_CHAT continues; they
 * stay as they are. Its text is encoded after them as the middle of a text, without
 * BOS. A request of QUIRE_CHAT has them as its prompt, instead of the template's
 * output: then only ids are given, at least one. */
typedef struct quire_continuation {
    size_t size;        /* of this struct in the caller's quire.h */
    const int32_t *ids; /* [n_ids] the tokens before; the request's ids begin with them */
    size_t n_ids;
    /* chats: which part of the template's output is encoded: from the end of the first
     * `after` in it (NULL: from its start) to the next `before` (NULL: to its end).
     * Both 0-terminated */
    const char *after, *before;
    /* texts: [2 * n_plain] spans in which special tokens are ordinary text, each the
     * first byte and the byte after it, ascending */
    const size_t *plain;
    size_t n_plain;
    /* QUIRE_CHAT: how many of the last ids belong to the newest turn, and show whether
     * the answer begins within its reasoning (the last 16 are read); 0: all */
    size_t n_start;
} quire_continuation;

/* Sets it; copies everything. BAD_REQUEST: an id out of the vocabulary, spans out of
 * order, or members that a chat does not take; UNSUPPORTED: another kind of request;
 * NO_MEMORY. On failure r is unchanged. A template that does not write `after` or
 * `before` fails the stream with BAD_REQUEST. */
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
    /* the prompt is accepted and counted; once a choice, first, but not for one that
     * failed before its first token */
    QUIRE_EVENT_START,
    /* tokens, perhaps with text (text may be empty while a character or a stop string is
     * unfinished) */
    QUIRE_EVENT_DELTA,
    /* this choice was rolled back (see quire_stream_rollback): of all that was delivered
     * only this remains */
    QUIRE_EVENT_ROLLBACK,
    /* a rollback or steer failed after all: error says why, and the choice continues
     * unchanged */
    QUIRE_EVENT_REFUSED,
    QUIRE_EVENT_EMBEDDING, /* the row of this choice: once, between its START and END, in place of DELTAs */
    QUIRE_EVENT_END,       /* this choice is finished */
    /* every choice has ended, or the request failed (finish ERROR, error set): the
     * stream's last event */
    QUIRE_EVENT_DONE,
    /* the result of quire_parse_start: the receiver owns request, or it is NULL and error
     * says why; stream is NULL */
    QUIRE_EVENT_PARSED,
    /* the result of quire_check_start: text is the report, a JSON object, or error says
     * why there is none */
    QUIRE_EVENT_CHECKED,
    /* the result of quire_look_start: the receiver owns text, its begin; error: what
     * refuses the body, or NULL */
    QUIRE_EVENT_LOOKED,
    /* more of this choice's prompt is processed (quire_stream_progress): before its
     * START, if the request has return_progress. Samples share their prompt: the first
     * one's. None waits in the queue but the newest, and the last one is of the whole
     * prompt */
    QUIRE_EVENT_PROGRESS
} quire_event_kind;

/* A token's log-probability under the model's own logits. rank is the number of tokens
 * with at least this one: 1 is the likeliest. */
typedef struct quire_logprob {
    int32_t token, rank;
    float logprob;
} quire_logprob;

typedef enum quire_part_kind {
    QUIRE_PART_REASONING,
    QUIRE_PART_CONTENT,
    QUIRE_PART_CALL, /* a tool call begins: text is the function's name */
    /* text is a piece of the call's arguments, which together are JSON unless their
     * length cut the response off */
    QUIRE_PART_ARGUMENTS,
    QUIRE_PART_CALL_END
} quire_part_kind;

/* What a piece of a response is. The parts of a response's DELTAs, in order, are its
 * content, reasoning and calls; a mark is in none. */
typedef struct quire_part {
    quire_part_kind kind;
    int32_t call;     /* parts of calls: the call's index in the response, 0, 1, 2 .. */
    const char *text; /* not 0-terminated; valid as long as the event's text */
    size_t n_text;
    bool is_custom; /* of a call's parts: of a custom tool, and ARGUMENTS are its input as it is */
    const char *id; /* CALL: the id that the model wrote; empty: none */
    size_t n_id;
} quire_part;

typedef struct quire_event {
    quire_stream *stream;
    void *user; /* as given to quire_submit */
    quire_event_kind kind;
    int32_t choice;
    /* DELTA: the new text. ROLLBACK: the response's remaining text. START: the prompt's
     * text if the request has echo. CHECKED and LOOKED: the receiver's to free. Else
     * valid until the next call of quire_queue_next or quire_stream_release. Not
     * 0-terminated */
    const char *text;
    size_t n_text;
    /* DELTA: bytes of text of its token. `text` has fewer if they may begin a stop
     * string or ended one, and more if it brings withheld text. ROLLBACK: the same for
     * all remaining tokens. */
    size_t n_decoded;
    /* START with echo and logprobs: [n_tokens] where in text each token ends; a token
     * that text does not show ends where the one before it does. Valid as long as text.
     * Else NULL */
    const size_t *token_ends;
    /* DELTA: the new ids. ROLLBACK: the response's remaining ids. START: the prompt's
     * ids */
    const int32_t *tokens;
    int32_t n_tokens;
    /* If the request wants them. DELTA: the token's, then those of the likeliest,
     * n_logprobs in all. START: as many for each of the prompt's tokens but the first;
     * those before the request's prompt_logprobs_start have rank 0. Else NULL and 0.
     * Valid as long as text. */
    const quire_logprob *logprobs;
    int32_t n_logprobs;
    quire_finish finish;     /* END and DONE */
    int32_t stop_token;      /* END by a stop token of the request: its id (not eos), else -1 */
    const char *stop_string; /* END by a stop string of the request: that string, else NULL */
    /* END: the report on the choice, if the request wants it; else NULL. Valid while the
     * stream is */
    const quire_explain *explain;
    double sum_logprob; /* END: of the choice's tokens, with logprobs, best_of or beam search */
    double beam_score;  /* END: the score that ranks a result of beam search */
    /* of this choice so far; in DONE sums over all choices, each prompt once */
    int32_t prompt_tokens, completion_tokens;
    /* how many of prompt_tokens were found in the prefix cache; known from the first
     * DELTA on */
    int32_t cached_tokens;
    /* DONE with finish ERROR, REFUSED, PARSED without a request, CHECKED without a
     * report, LOOKED: the error; else NULL */
    const quire_error *error;
    quire_request *request; /* PARSED */
    const float *row;       /* EMBEDDING: n_row elements, valid while the stream is; else NULL */
    int32_t n_row;
    /* how long the choice waited to be admitted, known from the first DELTA on; in DONE
     * the longest of all */
    int64_t queue_us;
    /* DELTA, where info.has_parts: what of the text so far is known since the last one.
     * text has all of it */
    const quire_part *parts;
    int32_t n_parts;
} quire_event;

/* Opens a queue on which streams deliver events. */
quire_err quire_queue_open(quire_engine *e, quire_queue **out);
/* Cancels the streams that still deliver to it, waits for them, and frees it. */
void quire_queue_close(quire_queue *q);
/* Whether no stream will deliver to it: the last event was read of released ones too.
 * Then quire_queue_close does not wait. The queue's thread. */
bool quire_queue_idle(const quire_queue *q);
/* A file descriptor that is readable while there may be events (poll, epoll,
 * libevent). */
int quire_queue_fd(const quire_queue *q);
/* Gets the next event; false when there is none. Detokenises and matches stop strings on
 * the calling thread. Call it until false, then wait for the fd. */
bool quire_queue_next(quire_queue *q, quire_event *out);
/* Blocks until the fd is readable or timeout_us passed (-1: for ever). */
void quire_queue_wait(quire_queue *q, int64_t timeout_us);

/* Takes the request (also on failure, when it is freed) and starts it; events come on q.
 * Does not block: text threads tokenise. A full engine shows later, as DONE with the
 * error QUIRE_BUSY; steps of programs wait (quire_request_step). */
quire_err quire_submit(quire_queue *q, quire_request *r, void *user, quire_stream **out, quire_error *err);
/* As quire_submit, for a request whose first tokens are not known yet: all work that does
 * not need them is done now (its rule is compiled, its adapter is read), and nothing runs
 * before quire_stream_start. So it is ready when the request that it goes on from ends. r
 * has one prompt, of ids (quire_request_ids, or a chat's quire_request_continue): the last
 * tokens of the whole one, those of constant text for example. Of a chat they show how its
 * answer begins. Cancelled before it is started it fails with QUIRE_CANCELLED. INVALID: r
 * has another prompt, is a fork, or has the field prediction. */
quire_err quire_prepare(quire_queue *q, quire_request *r, void *user, quire_stream **out, quire_error *err);
/* Starts a stream of quire_prepare: its prompt is ids[0..n), copied, and then the
 * request's own. Where it is ready the engine has it when the call returns, with no other
 * thread in between, and the next step that is planned computes it. Else it starts as
 * soon as it is ready. Whatever is wrong with the prompt shows as the stream's error.
 * INVALID: it was started before, or not made by quire_prepare. NO_MEMORY. Called on the
 * queue's thread. */
quire_err quire_stream_start(quire_stream *s, const int32_t *ids, size_t n, quire_error *err);
/* Computes the answer and waits for it: quire_submit on a queue of its own, for programs
 * that do nothing else meanwhile. Takes the request, also on failure. Any thread, several
 * at once too. *text: the text of choice 0, for a chat with parts its content alone;
 * 0-terminated, freed with quire_free; on failure NULL. QUIRE_BUSY when the engine is
 * full. */
quire_err quire_generate(quire_engine *e, quire_request *r, char **text, size_t *n, quire_error *err);
/* Cancels the stream; its DONE still comes. Called on the queue's thread. */
void quire_stream_cancel(quire_stream *s);
/* Releases the handle, after DONE or at any time: an unfinished stream is cancelled and
 * its later events are dropped. Called on the queue's thread. */
void quire_stream_release(quire_stream *s);
/* Gives the answer of a chat's choice, whose END has come, an id: of its first tool call
 * or, where it has none, its own. A later chat of the same tenant goes on from the very
 * ids, if its message of the assistant has a call of that id or, without calls, that id
 * itself (a member `id`), and renders to the very text that was generated. The last nine
 * characters of the id count. Kept in a part of text_cache_bytes, as long as there is
 * room. INVALID: a shorter id, or no such choice has ended. NO_MEMORY. Called on the
 * queue's thread, before the release. */
quire_err quire_stream_recall(quire_stream *s, int32_t choice, const char *id);
/* How much of a choice's prompt is processed. */
typedef struct quire_progress {
    size_t size;         /* of this struct in the caller's quire.h: set before the call */
    int32_t n_prompt;    /* tokens of the prompt */
    int32_t n_cached;    /* how many of these were found in the prefix cache */
    int32_t n_processed; /* found there or computed so far */
    int64_t us;          /* from the admission until then */
} quire_progress;

/* Fills *out with the numbers of the last PROGRESS of the choice, or of the first
 * sample of its prompt; all 0 before it, and without return_progress. INVALID: no such
 * choice. On the queue's thread. */
quire_err quire_stream_progress(const quire_stream *s, int32_t choice, quire_progress *out);
/* The rest of the report on a choice (quire_event.explain). */
typedef struct quire_explain_more {
    size_t size; /* of this struct in the library; later versions add members at the end */
    /* how many of the waiting requests would have been admitted before it when it
     * joined them, and by which order (never AUTO). Requests still being tokenised do
     * not count */
    int32_t n_ahead;
    quire_schedule schedule;
    /* earlier answers that its conversation names by id (quire_stream_recall):
     * continued from their ids; no longer kept; of another text */
    int32_t n_reused, n_gone, n_differ;
    /* tokens of the prompt whose pages were cached when it was first admitted. On models
     * with recurrent states more than quire_explain.matched, where the cache has no
     * snapshot of the state after them (docs/kv.md); else the same */
    int32_t n_prefix;
    /* its LoRA adapter, or NULL; how long it waited until that was read, and how long and
     * how often for one of the places of different adapters that run (max_loras). Valid
     * while the stream is */
    const char *adapter;
    int64_t adapter_load_us, adapter_wait_us;
    int32_t n_adapter_waits;
    /* the engine's numbers of the steps that gave its first and its last token, counted
     * as those of quire_explain's chunks; -1: it has no token */
    int64_t first_token_step, last_token_step;
} quire_explain_more;

/* NULL where the choice has no report, or not yet. Valid while the stream is. Called on
 * the queue's thread. */
const quire_explain_more *quire_stream_explain(const quire_stream *s, int32_t choice);
/* Tokens of a chat's prediction (the field of that name): *n_accepted that were drafted
 * and are in the answer, *n_rejected that were drafted and are not; of a choice up to its
 * last event, or with choice -1 of all choices together. Both 0 without a prediction and
 * for a choice that there is not. Called on the queue's thread. */
void quire_stream_prediction(const quire_stream *s, int32_t choice, int32_t *n_accepted, int32_t *n_rejected);
const quire_request_info *quire_stream_describe(const quire_stream *s);
const quire_request_more *quire_stream_describe_more(const quire_stream *s);
/* Of a QUIRE_RESPONSES request: the bytes of the namespace that a called name, n bytes of
 * the form NAMESPACE.NAME, begins with; 0: its tool has none. Any thread. */
size_t quire_stream_namespace(const quire_stream *s, const char *name, size_t n);

/* ---- streams that branch: docs/streams.md ---- */

/* A position counts tokens from the start of the prompt. A choice can be branched at any
 * position from the end of its prompt to the last token that quire_queue_next delivered,
 * until its END is delivered, even if the engine is further or has finished. QUIRE_HERE
 * is that last token. All three calls are for the queue's thread. Errors: QUIRE_NOT_FOUND
 * when the choice has ended, QUIRE_BUSY when it is still being prepared or another
 * rollback or steer of it is under way, QUIRE_BAD_REQUEST (err->param: "index",
 * "position", or a field) for what is impossible; the stream is unchanged then. */
#define QUIRE_HERE (-1)

/* Fork: makes a request that continues from the first `position` tokens of a choice and
 * shares their pages.
 *
 * It has the fields of the choice's request except stream, stream_options, n, best_of,
 * echo and prompt_logprobs. Its seed is made of the choice's own and of the number of
 * forks taken before, so that its output differs; with the choice's own seed it is the
 * same. Change it with quire_request_set. Submit it to any queue of the same engine; with
 * another engine's, quire_submit fails: QUIRE_INVALID. In its events the prompt is all
 * tokens before `position`. max_tokens and min_tokens count what comes after (unless set,
 * it ends where the choice would), while penalties distinguish prompt and generated
 * tokens. The caller owns *out until quire_submit takes it. It keeps the tokens that it
 * shares even when the stream is released before. */
quire_err quire_stream_fork(quire_stream *s, int32_t choice, int32_t position, quire_request **out,
                            quire_error *err);

/* Rollback: drops the tokens of a choice after its first `position` ones, releases their
 * pages, and continues from there.
 *
 * The JSON object `fields` (NULL: none) changes fields: seed, max_tokens, stop_token_ids
 * and those that affect sampling. Noise depends on seed and position, so with none
 * changed the same tokens come again. When it is done a ROLLBACK event gives what
 * remains, and new DELTAs follow. DELTAs delivered until then belong to what is dropped,
 * and no END comes before. A later failure shows as REFUSED: a tail that does not fit, a
 * full engine, a cancelled stream. Not for the best of several. O(position) on a text
 * thread. */
quire_err quire_stream_rollback(quire_stream *s, int32_t choice, int32_t position, const char *fields,
                                size_t n_fields, quire_error *err);

/* The tokens that replace a dropped tail: ids or, where those are NULL, a text, in which
 * special tokens are parsed. Copied. */
typedef struct quire_tail {
    const char *text;
    size_t n_text;
    const int32_t *ids;
    size_t n_ids;
} quire_tail;

/* Steer: a rollback, then the tail as if the choice had generated it (DELTAs without
 * log-probabilities; stop strings count in it, stop tokens do not), then generation
 * continues. */
quire_err quire_stream_steer(quire_stream *s, int32_t choice, int32_t position, const quire_tail *tail,
                             const char *fields, size_t n_fields, quire_error *err);

/* ---- parked prefixes: docs/streams.md ---- */

/* A park is a place where one sequence's pages stay when the sequence has ended: keys,
 * values and recurrent states. They are held like those of a running sequence, so they
 * are neither evicted nor moved to tiers, and a request of the same tenant, cache_salt,
 * adapter and attention whose prompt begins with the sequence's tokens finds them in the
 * prefix cache, with nothing to compute again.
 *
 * A park is empty at first. quire_request_park says which choice of a request parks in
 * it. When that choice ends (STOP, LENGTH or CANCELLED), what is computed of it takes the
 * place of what the park held, at once, so that no page can be evicted in between: its
 * prompt, and its answer without the last token, which nothing has computed. A request
 * with max_tokens 0 computes its prompt to the end, generates nothing, and parks that; of
 * tokens that are cached it computes none. Its park keeps the logits after the prompt, if
 * they were computed: a request for exactly these tokens samples from them, and computes
 * no row of its prompt. A fork (quire_stream_fork) with max_tokens 0
 * parks the tokens of a running choice at a position. A choice that ends with an error,
 * or of which nothing is computed, leaves the park as it was.
 *
 * Parks are bounded by quire_options' parked_bytes and parked_tenant_bytes; a page that
 * several of them hold counts once. What alone is over a bound is not parked. Where all
 * together are, the oldest ones are emptied: those of the tenant itself, or of the tenant
 * whose parks hold most. So are the oldest of all where pages are so few that no request
 * could run otherwise: any request that the engine accepts can be computed. The pages of
 * an emptied park are cached as others are. Parks hold nothing without a prefix cache,
 * and only what it can find: whole pages under QUIRE_PREFIX_CACHE_PAGE, nothing of rows
 * with an activated adapter. quire_engine_drop_cache leaves what they hold. */
typedef struct quire_park quire_park;

/* Opens an empty park, to be closed before the engine is. Any thread. NO_MEMORY. */
quire_err quire_park_open(quire_engine *e, quire_park **out);
/* Closes a park: what it held is cached as other pages are, and choices that were to park
 * there end as if they were not. Returns at once. NULL does nothing. Any thread. */
void quire_park_close(quire_park *p);
/* Makes the choice of that index, 0 to 1,023, park in p; NULL: nowhere, as at first. A
 * choice that is rolled back or steered parks at its end alone. p may be closed at any
 * time. Not for beam search and requests without tokens, whose quire_submit fails:
 * QUIRE_INVALID, as with another engine's park. INVALID: no such index. NO_MEMORY. */
quire_err quire_request_park(quire_request *r, int32_t choice, quire_park *p);

/* What a park holds. */
typedef struct quire_park_info {
    size_t size;      /* of this struct in the caller's quire.h: set before the call */
    int32_t n_tokens; /* tokens of its sequence; 0: empty */
    int32_t n_pages;  /* pages that hold them; other parks and requests may hold some of these too */
    /* sequences that were parked here, and how often a bound emptied it or kept one
     * out */
    int64_t n_parked, n_bounded;
} quire_park_info;

/* Any thread. What a choice parks is known when its END is delivered. */
void quire_park_look(const quire_park *p, quire_park_info *out);

/* ---- LoRA adapters: docs/adapters.md ---- */

/* An adapter that an engine knows. */
typedef struct quire_adapter {
    size_t size; /* of this struct in the library; later versions add members at the end */
    const char *name, *path;
    /* of quire_options' loras: its number, and the scale with which it applies to
     * requests that name none; else -1 and 0 */
    int32_t number;
    float scale;
    bool is_loaded, is_running, is_waiting; /* the last two: sequences that have it run, or wait to */
    /* as it was loaded last; 0: it never was */
    int32_t rank;
    int64_t n_bytes, load_us;
    /* of ended requests */
    int64_t n_requests, prompt_tokens, completion_tokens;
} quire_adapter;

/* Lists the adapters that the engine knows, without those of lora_dir that were not
 * requested yet. *list: n pointers and what they point to, freed with quire_free;
 * NULL: none. Any thread. NO_MEMORY. */
quire_err quire_adapters(const quire_engine *e, quire_adapter ***list, size_t *n);
/* Reads an adapter, a directory as PEFT writes it or a GGUF file, and makes it known by
 * the name: requests can have it from now on (quire_request_adapter). in_place: one that
 * has this name is replaced, and its requests keep it until they end; else it is INVALID.
 * The steps of the engine go on meanwhile. After a failure all is as it was; err names
 * the tensor that does not fit, and what to do. UNSUPPORTED: the engine was opened
 * without adapters. Blocks; any thread. */
quire_err quire_adapter_load(quire_engine *e, const char *name, const char *path, bool in_place,
                             quire_error *err);
/* The same without blocking: a CHECKED event on q delivers a text that says so, or the
 * error. quire_parse_cancel cancels the event, not the loading. NO_MEMORY. Called on q's
 * thread. */
quire_err quire_adapter_start(quire_queue *q, const char *name, const char *path, bool in_place, void *user,
                              quire_parse **out);
/* Makes an adapter unknown. Its requests keep it until they end, and its memory is freed
 * then. NOT_FOUND. Any thread. */
quire_err quire_adapter_unload(quire_engine *e, const char *name, quire_error *err);
/* Sets the scale with which an adapter of quire_options' loras applies to requests that
 * name none, from now on. BAD_REQUEST: there is no such number. Any thread. */
quire_err quire_adapter_scale(quire_engine *e, int32_t number, float scale, quire_error *err);
/* Whether requests may have an adapter of this name: it is known, or lora_dir is looked
 * into when it is wanted. Does not block. Any thread. */
bool quire_adapter_known(const quire_engine *e, const char *name);

/* Bounds of an engine's adapters, and the memory they take. */
typedef struct quire_adapter_stats {
    size_t size; /* of this struct in the caller's quire.h: set before the call */
    /* different ones that may run at once (0: the engine was opened without), largest
     * rank, most that may be loaded */
    int32_t max_running, max_rank, max_loaded;
    int32_t n_loaded, most_loaded; /* now, and at most so far */
    int64_t n_bytes;               /* bytes of loaded adapters */
    /* so far: files that were loaded, and adapters that were unloaded because others
     * needed their room */
    int64_t n_loads, n_evictions;
} quire_adapter_stats;
void quire_adapter_count(const quire_engine *e, quire_adapter_stats *out);

/* ---- snapshots of the pages ---- */

/* A snapshot of an engine's pages, sequences and prefix tree. One thread requests it
 * without waiting, and the engine fills it between two steps. */
typedef struct quire_pool_view quire_pool_view;

#define QUIRE_POOL_VIEW_PAGES 65536

/* Allocates a view for at most QUIRE_POOL_VIEW_PAGES pages, 4,096 sequences and 256
 * events. */
quire_err quire_pool_view_open(quire_engine *e, quire_pool_view **out);
/* Closes the view, before the engine is closed; a request under way is dropped. NULL does
 * nothing. */
void quire_pool_view_close(quire_pool_view *v);
/* A file descriptor that is readable once a snapshot is filled, until
 * quire_pool_view_get. */
int quire_pool_view_fd(const quire_pool_view *v);
/* Requests a snapshot of the present state, with the tokens of one page (-1: of none) and
 * the KV events after number `after`. Does nothing while another request is under way. */
void quire_pool_view_ask(quire_pool_view *v, int32_t page, uint64_t after);
/* The snapshot that was requested last, valid until the next request; NULL while it is
 * under way or before the first. A sequence's id is its request's number in order of
 * arrival; waiting sequences hold no pages and are not shown. */
const quire_kv_view *quire_pool_view_get(quire_pool_view *v);

/* ---- model files without an engine ---- */

/* Summarises a model file for people (json false) or programs. *text is freed with
 * quire_free. */
quire_err quire_inspect(const quire_options *o, bool json, char **text, quire_error *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
