/* The parts of a running engine, opened from options: file, tokenizer, chat template,
 * weights, pages, tiers, draft model and the engine itself. Immutable once open, except
 * for the engine's counters. */
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

/* Writes the packed form of a loaded model to the pack cache, on a thread that the system
 * runs only on idle processors, so that no token waits for it. */

typedef struct pack_keeper pack_keeper;

/* What a pack_keeper writes. All pointers are borrowed until pack_start_close. */
typedef struct pack_keep {
    const pack_cache *cache;
    const char *key;
    packed_image *image;      /* has the tensors, without metadata */
    const model_file *source; /* source of the metadata */
    const tokenizer *t;       /* the source's tokenizer; NULL: the vocabulary is stored unchanged */
} pack_keep;

/* The most unwritten bytes of a packed form that pack_start_close still writes; if more
 * are left, the form is given up. */
#define PACK_LEFT_BYTES ((uint64_t)2 << 30)

/* ---- the files that a start loads ---- */

/* The files from which an engine starts. All zero: closed. */
typedef struct pack_start {
    model_file *source, *file; /* the model's own files, and the file to load; they may be the same */
    packed_image *image;       /* if not NULL, loading adds the tensors here, for the cache */
    pack_cache cache;
    char key[PACK_KEY_BYTES];
    bool is_quick; /* the model loads so fast that a packed form would save no time */
    pack_keeper *keeper;
} pack_start;

/* Looks in the cache that o names for the packed form of source, with description d, for
 * backend b. Its checksums are verified on b's threads; a damaged form is removed.
 * Without a usable form, source is the file to load, and a line on stderr gives the
 * reason. */
void pack_start_find(const quire_options *o, model_file *source, const model_desc *d, backend *b,
                     pack_start *out);
/* Records that loading text and weights took load_us. If that is less than least_us, no
 * packed form is written. */
void pack_start_loaded(pack_start *s, int64_t load_us, int64_t least_us);
/* Begins to write the packed form of the loaded model, if the cache should have it. t:
 * the source's tokenizer, or NULL; it and b must stay open until pack_start_close. */
void pack_start_keep(pack_start *s, const tokenizer *t);
/* Ends the writing (PACK_LEFT_BYTES) and closes the files. Call it before t and b are
 * closed. */
void pack_start_close(pack_start *s);

/* ---- engine_adapters.c: an engine's adapters ---- */

/* An engine's adapters. All zero: not open. It must not be moved once it is open. */
typedef struct engine_adapters {
    adapter_store *store; /* NULL: the engine has no adapters */
    const model *m;
    backend *b;
    const tokenizer *text; /* or NULL */
    adapter_limits limits;
} engine_adapters;

/* Opens the store of o's adapters for model m in b; t (may be NULL) tokenises the texts
 * that activate adapters. Without adapters in o, out->store is NULL. A file is read when
 * a request first needs it. QUIRE_INVALID: a list cannot be parsed, a name occurs twice
 * or a file is missing; err names the flag. Close *out also after a failure. */
quire_err engine_adapters_open(const model *m, backend *b, const tokenizer *t, const quire_options *o,
                               engine_adapters *out, quire_error *err);
/* Frees everything. The engine that used it must be closed before. */
void engine_adapters_close(engine_adapters *a);

/* ---- the parts of an engine ---- */

/* The settings of `--speculative-config`, and the open draft model. */
typedef struct speculation {
    draft_options draft;
    char *name;         /* mem_new'd: the draft model's path or built-in name; NULL: no draft model */
    loaded_model model; /* opened by speculation_load */
} speculation;

typedef struct engine_parts {
    quire_info info;            /* facts about the engine, without the defaults of requests */
    sampling_defaults defaults; /* defaults from o->generation_config; their ranges are not checked */
    quire_row_info row_info;
    row_facts rows;         /* pooling of rows, as the model's files specify it */
    quire_error text_error; /* why there is no tokenizer */
    char *model_path;
    strbuf pool_plan; /* pool_plan_explain */
    /* texts for people: how prompts begin, "with BOS, <s>: the template writes it"; the
     * end tokens (answer_ends_print) */
    strbuf chat_start, end_tokens;
    int64_t rule_bytes; /* pool_plan_rules */
    /* version of pages in tiers (tier_version); empty: no tier needs it */
    char tier_version[KV_VERSION_BYTES + 1];
    loaded_model model;
    pack_start pack; /* keeps the model's packed form */
    /* memory of its pages, shared with a draft model and, on a server of several models,
     * with the other models; NULL: its pages have memory of their own */
    struct model_memory *memory;
    int32_t sure_pages;  /* number of guaranteed pages in shared memory; otherwise 0 */
    int64_t fixed_bytes; /* bytes of the shared memory that its weights and buffers take */
    speculation speculation;
    /* the file o->tokenizer, whose tables the tokenizer may use in place; NULL: the
     * model's own */
    model_file *text_file;
    tokenizer *tokenizer;   /* NULL: the engine takes ids only */
    bool parses_messages;   /* special tokens in the text of messages are parsed as such */
    chat_form chat;         /* without a tokenizer it has no template, so there is no chat */
    output_formats formats; /* formats of tool calls and reasoning in responses */
    engine_adapters adapters;
    int32_t max_adapters; /* most different adapters in use at once */
    engine *core;
} engine_parts;

/* A check before the weights are loaded. run gets the parts, whose defaults are read by
 * then, and the model's description. max_len: the most tokens of a sequence, which a lack
 * of memory may reduce later. If it fails, engine_parts_open returns its error. */
typedef struct engine_parts_check {
    /* NULL: no check */
    quire_err (*run)(void *context, const engine_parts *p, const model_desc *d, int32_t max_len,
                     quire_error *err);
    void *context;
} engine_parts_check;

/* Loads the model and starts the engine. o is from options_read; its texts may be freed
 * afterwards. Close *out also after a failure, which err explains. beside: parts of a
 * running engine, whose engine thread and compute threads the new one shares; the model
 * is then loaded at low priority, so that the running engine's steps go on. NULL: the
 * engine has threads of its own. */
quire_err engine_parts_open(const quire_options *o, const engine_ablations *ablations,
                            const engine_parts_check *check, const engine_parts *beside, engine_parts *out,
                            quire_error *err);
/* Adds the available memory to an out-of-memory error from opening these parts. */
void engine_parts_explain_memory(const engine_parts *p, quire_error *err);
/* Stops the engine and frees all parts. */
void engine_parts_close(engine_parts *p);

/* ---- speculation.c ---- */
/* Reads o->speculative_config (NULL: no speculation); docs/speculation.md has its
 * members. QUIRE_INVALID: err names the wrong or unknown member. Close *out with
 * speculation_close in any case. */
quire_err speculation_read(const quire_options *o, speculation *out, quire_error *err);
/* Reads the description of the draft model. s->draft.method must be
 * DRAFT_METHOD_MODEL. */
quire_err speculation_describe(const speculation *s, const quire_options *o, model_desc *out,
                               quire_error *err);
/* Loads the draft model, if there is one, and opens its buffers. max_len: the most tokens
 * of the target's sequences. The draft model's numeric configuration is "auto": it
 * changes the drafts, not the output. It computes on the target's compute threads. */
quire_err speculation_load(speculation *s, const quire_options *o, int32_t max_len, const backend *target,
                           quire_error *err);
/* Opens the loaded draft model's pages, whose memory comes from budget: page numbers for
 * n_tokens tokens, but no more than all sequences of max_len tokens need, or than the
 * budget has. */
quire_err speculation_open_pages(speculation *s, const quire_options *o, int64_t n_tokens, int32_t max_len,
                                 kv_budget *budget, quire_error *err);
/* Closes the draft model. Call it after the engine that used it was closed. */
void speculation_close(speculation *s);

/* ---- tier_version.c ---- */
/* Writes a version text of at most KV_VERSION_BYTES bytes. It identifies the weights (by
 * a hash of every byte), the type that loading quantised them to (F32: none), the
 * description, the numeric configuration and this program's version. Reads the whole
 * file. */
void tier_version(const model_file *f, const model_desc *d, dtype quantised_to, const backend *b,
                  const kv_layout *kv, int32_t max_positions, char out[KV_VERSION_BYTES + 1]);

#endif
