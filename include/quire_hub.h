/* Pulls models by name from the Hugging Face hub into its cache on this machine, which
 * other programs share.
 *
 *   char *path;
 *   quire_hub_options o;
 *   quire_hub_options_init(&o);
 *   o.cache = "/home/me/.cache/huggingface/hub";
 *   quire_hub_pull(&o, "ORG/NAME:Q4_K_M", QUIRE_HUB_MISSING, &path, &err);
 *   -> path is quire_options.model
 *
 * A name is ORG/NAME[:FILE|:QUANT][@REVISION]. FILE is a .gguf file of the repository;
 * QUANT selects one by quantisation ("Q4_K_M"). Either includes all parts of a split
 * file. With neither, safetensors are preferred, then the GGUF file of a usual
 * quantisation. REVISION is a branch, tag or full commit ("main" by default). Only files
 * that Quire reads are fetched, and never pickles.
 *
 * A file appears in the cache once its hash is verified. Any number of threads and
 * processes may pull at once; each file is fetched once. */
#ifndef QUIRE_HUB_H
#define QUIRE_HUB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quire_err.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The library exports the declarations below and nothing else. */
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* Progress of a pull. Bytes that were already in the cache are not counted. */
typedef struct quire_hub_progress {
    /* fetched, or found in files of an interrupted pull; and the total */
    int64_t bytes, total_bytes;
    int64_t fetched_bytes;          /* part of bytes that came over the network in this pull */
    int32_t n_files, n_total_files; /* files that are complete, and the total */
    bool is_waiting;                /* another process is fetching the missing files */
    /* other quantisations of the model in the cache, "Q4_K_M, Q8_0"; NULL: none */
    const char *others;
} quire_hub_progress;

typedef struct quire_hub_options {
    size_t size;          /* sizeof this struct in the caller's quire_hub.h, set by quire_hub_options_init */
    const char *cache;    /* directory of the cache (HF_HUB_CACHE) */
    const char *endpoint; /* the hub's address; NULL: https://huggingface.co */
    const char *token;    /* access token, sent to that endpoint and no other host; NULL: none */
    const char *ca_file;  /* certificates to trust; NULL: the system's */
    bool offline;         /* fetch nothing: what the cache lacks is NOT_FOUND */
    /* restart a transfer after this many seconds in a row with less than 1,000 bytes each
     * (30) */
    int32_t stall_s;
    int32_t n_at_once; /* files fetched at once (4) */
    /* called on quire_hub_pull's thread about five times a second while files are
     * fetched, and once at the end; may be NULL */
    void (*progress)(void *user, const quire_hub_progress *p);
    void *user;
    /* the name is that of a LoRA adapter: PEFT files or a GGUF file */
    bool is_adapter;
} quire_hub_options;

void quire_hub_options_init_sized(quire_hub_options *o, size_t size);
/* Sets the defaults given in parentheses above, all else 0. */
static inline void quire_hub_options_init(quire_hub_options *o) {
    quire_hub_options_init_sized(o, sizeof *o);
}

/* Whether the text has the form of a model name and not of a file (x/y.gguf, x/y.quire).
 * Looks nothing up. */
bool quire_hub_is_name(const char *text);

typedef enum quire_hub_when {
    /* use what the cache has; contact the hub only if the model is incomplete */
    QUIRE_HUB_MISSING,
    QUIRE_HUB_UPDATE /* ask the hub for the revision's newest commit */
} quire_hub_when;

/* Brings a model into the cache. *path is what to open: a .gguf file (the first part) or
 * a directory; free it with quire_free. INVALID: not a name, or an unknown quantisation
 * (err lists those that exist). UNAUTHORIZED: a token is missing, or the model's terms
 * must be accepted at the address in err. NOT_FOUND: no such model, revision or file, or
 * not in the cache when offline. NO_ROOM: the disk is too full; nothing was fetched.
 * BUSY: too many requests for the hub; err has retry_after_s. IO: the network or the disk
 * failed; the next pull continues from what was fetched. BAD_FILE: an invalid answer of
 * the hub, or a file with another hash than the hub lists. */
quire_err quire_hub_pull(const quire_hub_options *o, const char *name, quire_hub_when when, char **path,
                         quire_error *err);

/* A model in the cache: the safetensors of a revision with the files that belong to them,
 * or one GGUF file with all its parts. */
typedef struct quire_hub_model {
    /* "ORG/NAME"; for a GGUF file "ORG/NAME:QUANT", or ":FILE" if that is ambiguous */
    char name[768];
    char revision[256];    /* a branch or tag at this commit, otherwise the commit */
    char quantisation[32]; /* "Q4_K_M", "bfloat16", "fp8"; empty: unknown */
    int64_t bytes;
    int64_t used_unix_s; /* last time that Quire opened it or any program read its weights */
    bool is_whole;       /* false: a pull was interrupted */
} quire_hub_model;

/* Lists the models in the cache, by name. Free *models with quire_free. A missing cache
 * has no models. */
quire_err quire_hub_list(const quire_hub_options *o, quire_hub_model **models, size_t *n, quire_error *err);

/* Removes a model: ORG/NAME removes all of it, :QUANT or :FILE that GGUF file, @REVISION
 * that revision only. Files that other revisions use stay. *bytes: bytes freed.
 * NOT_FOUND: not in the cache. BUSY: a process is pulling it. A process that has the
 * model open can go on using it. */
quire_err quire_hub_remove(const quire_hub_options *o, const char *name, int64_t *bytes, quire_error *err);

/* ---- packed models: stored by starts with quire_options.pack_cache ---- */

typedef struct quire_packed_form {
    char name[40];     /* "packed:" and 32 digits */
    char source[1024]; /* path of the model it was made from; empty: unknown */
    char compute[8];   /* "int8", "bf16", "f32"; empty: unknown */
    int64_t bytes;
    int64_t used_unix_s; /* last start that used it */
    bool is_whole;       /* false: damaged or of another version; the next start makes it again */
} quire_packed_form;

/* Lists the packed models in dir, by source and name. Free *forms with quire_free. A
 * missing directory has none. IO; UNSUPPORTED: others may write to the directory. */
quire_err quire_packed_list(const char *dir, quire_packed_form **forms, size_t *n, quire_error *err);
/* Removes a packed model. name is "packed:" and enough digits to identify it, or "packed"
 * for all. *bytes: bytes freed. NOT_FOUND; INVALID: the name is ambiguous. A process that
 * has it open can go on using it. */
quire_err quire_packed_remove(const char *dir, const char *name, int64_t *bytes, quire_error *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
