/* The parts of a running engine, which are opened from options: file, tokenizer, chat
 * template, weights, pages, tiers, draft model and the engine itself. Immutable after
 * open except for the engine's counters. */
#ifndef SETUP_ENGINE_PARTS_H
#define SETUP_ENGINE_PARTS_H

#include "answer/answer_format.h"
#include "backend/backend.h"
#include "chat/chat_form.h"
#include "engine/engine.h"
#include "file/pack_cache.h"
#include "file/sampling_defaults.h"
#include "kv/tier_record.h"
#include "model/model_adapter.h"
#include "model/pooling.h"
#include "quire.h"
#include "setup/adapter_store.h"
#include "setup/loaded_model.h"
#include "text/tokenizer.h"

/* ---- keeping a packed form ---- */

/* Stores the packed form of a loaded model in the pack cache: a separate thread writes
 * it, which the system runs only on idle processors, so that no token waits for it. */

typedef struct pack_keeper pack_keeper;

/* What is written. Everything is borrowed until pack_keeper_close. */
typedef struct pack_keep {
    const pack_cache *cache;
    const char *key;
    packed_image *image;      /* with the tensors, without metadata */
    const model_file *source; /* source of the metadata */
    const tokenizer *t;       /* the source's tokenizer; NULL: the vocabulary is kept as it is */
} pack_keep;

/* Ends the thread. An unwritten rest of at most PACK_LEFT_BYTES is written now; a larger
 * one is given up. NULL is allowed. */
#define PACK_LEFT_BYTES ((uint64_t)2 << 30)

/* ---- the files that a start loads ---- */

/* All zero: closed. */
typedef struct pack_start {
    model_file *source, *file; /* shared: the model's own files, and the file to load */
    packed_image *image;       /* if not NULL, loading adds the tensors to be kept here */
    pack_cache cache;
    char key[PACK_KEY_BYTES];
    bool is_quick; /* the model loads so fast that a packed form would gain nothing */
    pack_keeper *keeper;
} pack_start;

/* Looks for the packed form of source, with description d, for b in the cache that o
 * names. All its checksums are checked on b's threads; a damaged one is removed. Without
 * a cache, or if anything is wrong with it, the source is loaded, and a line on stderr
 * gives the reason. */
void pack_start_find(const quire_options *o, model_file *source, const model_desc *d, backend *b,
                     pack_start *out);
/* Reports how long loading text and weights took. A model that loads in less than
 * least_us is not kept. */
void pack_start_loaded(pack_start *s, int64_t load_us, int64_t least_us);
/* Begins to write the packed form of the loaded model, if it is to be kept. t: the
 * source's tokenizer, or NULL; it and b must stay until the close. */
void pack_start_keep(pack_start *s, const tokenizer *t);
/* Ends the writing and closes the files. Call it before t and b are closed. */
void pack_start_close(pack_start *s);

/* ---- engine_adapters.c: an engine's adapters ---- */

/* All zero: not open. It must not be moved once it is open. */
typedef struct engine_adapters {
    adapter_store *store; /* NULL: the engine has no adapters */
    const model *m;
    backend *b;
    const tokenizer *text; /* or NULL */
    adapter_limits limits;
} engine_adapters;

/* Opens the store of o's adapters for model m in b; t tokenises their texts (may be
 * NULL). out->store NULL: o has no adapters. Files are read when they are wanted first.
 * INVALID names the flag: a list that is not understood, a name given twice, a file that
 * is not there. Close *out also after a failure. */
quire_err engine_adapters_open(const model *m, backend *b, const tokenizer *t, const quire_options *o,
                               engine_adapters *out, quire_error *err);
/* Frees everything. The engine that used them must be closed. */
void engine_adapters_close(engine_adapters *a);

/* ---- the parts of an engine ---- */

/* The settings of `--speculative-config`, and the open draft model. */
typedef struct speculation {
    draft_options draft;
    char *name;         /* mem_new'd: the draft model's name for DRAFT_METHOD_MODEL, else NULL */
    loaded_model model; /* opened by speculation_load */
} speculation;

typedef struct engine_parts {
    quire_info info;            /* without the defaults of requests */
    sampling_defaults defaults; /* as o->generation_config names them; their ranges are not checked */
    quire_row_info row_info;
    row_facts rows;         /* pooling of rows, as the model's files specify it */
    quire_error text_error; /* if there is no tokenizer: why */
    char *model_path;
    strbuf pool_plan; /* pool_plan_explain */
    /* for people: "with BOS, <s>: the template writes it"; answer_ends_print */
    strbuf chat_start, end_tokens;
    int64_t rule_bytes;                      /* pool_plan_rules */
    char tier_version[KV_VERSION_BYTES + 1]; /* empty: no tier uses it */
    loaded_model model;
    pack_start pack; /* keeps the model's packed form */
    /* memory of its pages, shared with a draft model and, on a server of several
     * models, with these; NULL: its pages have memory of their own */
    struct model_memory *memory;
    int32_t sure_pages;  /* in shared memory: its guaranteed pages; otherwise 0 */
    int64_t fixed_bytes; /* part of that memory that its weights and buffers take */
    speculation speculation;
    /* file named by o->tokenizer, whose tables the tokenizer may use in place; NULL:
     * the model's own */
    model_file *text_file;
    tokenizer *tokenizer;   /* NULL: prompts of ids only */
    bool parses_messages;   /* special tokens in a client's messages are tokens */
    chat_form chat;         /* without a tokenizer it has no template: no chat */
    output_formats formats; /* of its responses */
    engine_adapters adapters;
    int32_t max_adapters; /* most different adapters that run at once */
    engine *core;
} engine_parts;

/* A check before the weights are loaded. run is called with the parts, whose defaults are
 * read by then, and the model's description. max_len: tokens of a sequence, which memory
 * may reduce later. Its failure is that of engine_parts_open. */
typedef struct engine_parts_check {
    /* NULL: nothing */
    quire_err (*run)(void *context, const engine_parts *p, const model_desc *d, int32_t max_len,
                     quire_error *err);
    void *context;
} engine_parts_check;

/* Loads the model and starts the engine. o was read by options_read; its texts may be
 * freed afterwards. Close *out also after a failure, which err explains.
 * beside: parts of a running engine, whose thread and compute threads the new one shares;
 * its model is loaded with low priority then, so that the other's steps go on. NULL: it
 * has its own. */
quire_err engine_parts_open(const quire_options *o, const engine_ablations *ablations,
                            const engine_parts_check *check, const engine_parts *beside, engine_parts *out,
                            quire_error *err);
/* Adds the available memory to an out-of-memory error from opening these parts. */
void engine_parts_explain_memory(const engine_parts *p, quire_error *err);
/* Stops the engine and frees all parts. */
void engine_parts_close(engine_parts *p);

/* ---- speculation.c ---- */
/* Reads o->speculative_config (NULL: no speculation). Members: docs/speculation.md.
 * QUIRE_INVALID names the wrong or unknown member. Close *out with speculation_close in
 * any case. */
quire_err speculation_read(const quire_options *o, speculation *out, quire_error *err);
/* Describes the draft model's file. s->draft.method is DRAFT_METHOD_MODEL. */
quire_err speculation_describe(const speculation *s, const quire_options *o, model_desc *out,
                               quire_error *err);
/* Loads the draft model, if there is one, and opens its buffers. max_len: the most tokens
 * of the target's sequences. The draft model has its own numeric choices ("auto"): they
 * change the guesses, not the output. It computes on the target's compute threads. */
quire_err speculation_load(speculation *s, const quire_options *o, int32_t max_len, const backend *target,
                           quire_error *err);
/* Opens the loaded draft model's pages: addresses for n_tokens tokens, limited to what
 * all sequences of at most max_len tokens need and to the budget, which supplies their
 * memory. */
quire_err speculation_open_pages(speculation *s, const quire_options *o, int64_t n_tokens, int32_t max_len,
                                 kv_budget *budget, quire_error *err);
/* Closes the draft model. Call it after the engine that used it was closed. */
void speculation_close(speculation *s);

/* ---- tier_version.c ---- */
/* Writes a version of at most KV_VERSION_BYTES. It names the weights (by a hash of every
 * byte), what they were quantised to while they were loaded (F32: nothing), the
 * description, the numeric configuration and this program's version. Reads the whole
 * file. */
void tier_version(const model_file *f, const model_desc *d, dtype quantised_to, const backend *b,
                  const kv_layout *kv, int32_t max_positions, char out[KV_VERSION_BYTES + 1]);

#endif
