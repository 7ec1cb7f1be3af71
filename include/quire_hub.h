/* Models by name: ORG/NAME of the Hugging Face hub, kept in its cache on this machine,
 * which other programs share.
 *
 *   char *path;
 *   quire_hub_options o;
 *   quire_hub_options_init(&o);
 *   o.cache = "/home/me/.cache/huggingface/hub";
 *   quire_hub_pull(&o, "ORG/NAME:Q4_K_M", QUIRE_HUB_MISSING, &path, &err);   -> path for quire_options.model
 *
 * A name is ORG/NAME[:FILE|:QUANT][@REVISION]. FILE is a .gguf file of the repository,
 * QUANT the quantisation of one ("Q4_K_M"); either brings all parts of a split file.
 * Without them safetensors are used if there are any, else the GGUF file of a usual
 * quantisation. REVISION is a branch, a tag or a whole commit ("main" otherwise). Only
 * files that Quire reads are fetched; pickles never are.
 *
 * A file appears in the cache when its hash has been proved. Any number of threads and
 * processes may pull; each file is fetched once. */
#ifndef QUIRE_HUB_H
#define QUIRE_HUB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quire_err.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The library exports what is declared here, and nothing else. */
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* How far a pull is. Bytes that were in the cache already are not counted. */
typedef struct quire_hub_progress {
    /* fetched, or found in files of a pull that was interrupted; and how many in all */
    int64_t bytes, total_bytes;
    int64_t fetched_bytes;          /* part of them that came over the network now */
    int32_t n_files, n_total_files; /* done, and in all */
    bool is_waiting;                /* another process fetches the missing files */
    /* other quantisations of the model in the cache, "Q4_K_M, Q8_0"; NULL: none */
    const char *others;
} quire_hub_progress;

typedef struct quire_hub_options {
    size_t size;          /* sizeof of the struct that the caller knows; quire_hub_options_init sets it */
    const char *cache;    /* the directory of the cache (HF_HUB_CACHE) */
    const char *endpoint; /* where the hub is; NULL: https://huggingface.co */
    const char *token;    /* token sent to that endpoint and no other host; NULL: none */
    const char *ca_file;  /* certificates to trust; NULL: the system's */
    bool offline;         /* nothing is fetched: what the cache lacks is NOT_FOUND */
    /* seconds with less than 1,000 bytes each after which a transfer is begun anew
     * (30) */
    int32_t stall_s;
    int32_t n_at_once; /* files fetched at the same time (4) */
    /* called by quire_hub_pull's thread some five times a second while files are fetched,
     * and once at their end; may be NULL */
    void (*progress)(void *user, const quire_hub_progress *p);
    void *user;
    /* quire_hub_pull's name is that of a LoRA adapter: of PEFT's files, or a GGUF file */
    bool is_adapter;
} quire_hub_options;

void quire_hub_options_init_sized(quire_hub_options *o, size_t size);
/* Sets defaults: nothing but the numbers above. */
static inline void quire_hub_options_init(quire_hub_options *o) {
    quire_hub_options_init_sized(o, sizeof *o);
}

/* Whether the text has the form of a name, and is not that of a model's file (x/y.gguf,
 * x/y.quire). Nothing is looked up. */
bool quire_hub_is_name(const char *text);

typedef enum quire_hub_when {
    /* what the cache has is taken as it is; the hub is contacted only if it is not a
     * whole model */
    QUIRE_HUB_MISSING,
    QUIRE_HUB_UPDATE /* the revision's newest commit is requested from the hub */
} quire_hub_when;

/* Brings a model into the cache. *path, freed with quire_free, is what opens it: a .gguf
 * file (the first part) or a directory.
 * INVALID: not a name, or an unknown quantisation, and err lists those that exist.
 * UNAUTHORIZED: a token is missing, or the model's terms must be accepted, at the address
 * in err. NOT_FOUND: no such model, revision or file, or not in the cache and offline.
 * NO_ROOM: the disk is too full; nothing was fetched. BUSY: too many requests for the
 * hub; retry_after_s. IO: the network or the disk failed; what was fetched so far is kept
 * for the next pull. BAD_FILE: the hub's answer, or a file whose hash is not the one that
 * the hub lists. */
quire_err quire_hub_pull(const quire_hub_options *o, const char *name, quire_hub_when when, char **path,
                         quire_error *err);

/* A model in the cache: the safetensors of a revision with what belongs to them, or one
 * GGUF file of it with all its parts. */
typedef struct quire_hub_model {
    /* "ORG/NAME"; of a GGUF file "ORG/NAME:QUANT", or ":FILE" if that is ambiguous */
    char name[768];
    char revision[256];    /* a branch or tag that is at this commit, else the commit */
    char quantisation[32]; /* "Q4_K_M", "bfloat16", "fp8"; empty: unknown */
    int64_t bytes;
    int64_t used_unix_s; /* when it was opened last by Quire, or its weights read by anybody */
    bool is_whole;       /* false: a pull was interrupted */
} quire_hub_model;

/* Lists what the cache has, by name. *models is freed with quire_free. A cache that is
 * not there has no models. */
quire_err quire_hub_list(const quire_hub_options *o, quire_hub_model **models, size_t *n, quire_error *err);

/* Removes a model: of ORG/NAME everything, with :QUANT or :FILE that GGUF file, with
 * @REVISION that revision's only. What other revisions use stays. *bytes: what was freed.
 * NOT_FOUND: it is not there. BUSY: a process is pulling it. A process that has it open
 * keeps it. */
quire_err quire_hub_remove(const quire_hub_options *o, const char *name, int64_t *bytes, quire_error *err);

/* ---- packed forms: what starts of a model leave in a directory
 * (quire_options.pack_cache), so that later ones take milliseconds ---- */

typedef struct quire_packed_form {
    char name[40];     /* "packed:" and 32 digits */
    char source[1024]; /* the path of the model that it is a form of; empty: unknown */
    char compute[8];   /* "int8", "bf16", "f32"; empty: unknown */
    int64_t bytes;
    int64_t used_unix_s; /* when a start used it last */
    bool is_whole;       /* false: it is damaged or of another version, and the next start makes it again */
} quire_packed_form;

/* Lists the packed forms in dir, by source and name. *forms is freed with quire_free. A
 * directory that is not there has none. IO, and UNSUPPORTED for one where others may
 * write. */
quire_err quire_packed_list(const char *dir, quire_packed_form **forms, size_t *n, quire_error *err);
/* Removes one: name is "packed:" and as many digits as tell it from others. "packed": all
 * of them. *bytes: what was freed. NOT_FOUND; INVALID where several are meant. A process
 * that has it open keeps it. */
quire_err quire_packed_remove(const char *dir, const char *name, int64_t *bytes, quire_error *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
