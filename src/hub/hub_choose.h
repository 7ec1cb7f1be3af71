/* Which files of a repository, or of a snapshot in the cache, make the model of a name.
 *
 *   no pick   model.safetensors, else the shards of its index, else every
 *                       model*.safetensors, each with the texts that Quire reads
 *                       (configs, tokenizers, templates, modules); without any of them a
 *                       GGUF file, Q4_K_M before others
 *   :QUANT, :FILE.gguf  one GGUF model, with all its parts
 *
 * PyTorch's pickles are programs, and are never chosen. Plain data. */
#ifndef HUB_CHOOSE_H
#define HUB_CHOOSE_H

#include "hub/hub_name.h"

/* ---- the files of a commit ---- */

/* The files of one commit of a repository: as the hub's answer lists them, or as a
 * snapshot in the cache holds them. Plain data. */

#define HUB_MAX_FILES 100000

typedef struct hub_file {
    char *path;                /* owned; safe (hub_name.h) */
    char id[HUB_DIGEST_BYTES]; /* of its blob: the SHA-256 of large files, else the SHA-1 that git gives it */
    int64_t n_bytes;
    int64_t used_unix_s; /* in a snapshot: time of its last use */
} hub_file;

/* Zero-initialised is empty. */
typedef struct hub_listing {
    char commit[41];
    char base[194];  /* the model that it was made from, by its card; empty: unknown, or a snapshot */
    hub_file *files; /* sorted by path */
    size_t n, cap;
} hub_listing;

/* Reads the answer of /api/models/REPO/revision/REVISION?blobs=true. Names that begin
 * with a dot are left out. BAD_FILE: it is not such an answer, or a name in it leads out
 * of the directory. Call hub_listing_deinit in any case. */
quire_err hub_listing_parse(str json, const char *repo, hub_listing *out, quire_error *err);
/* Adds a file, whose path must be safe. NO_MEMORY, or TOO_LARGE past HUB_MAX_FILES. */
quire_err hub_listing_add(hub_listing *l, str path, str id, int64_t n_bytes);
/* Sorts by path; called once all are added. */
void hub_listing_sort(hub_listing *l);
/* The index of the file at this path, or -1; O(log n). */
int32_t hub_listing_find(const hub_listing *l, str path);
void hub_listing_deinit(hub_listing *l);

/* ---- hub_choose ---- */

#define HUB_INDEX          "model.safetensors.index.json"
#define HUB_ADAPTER_CONFIG "adapter_config.json"

/* Zero-initialised is empty. Indices are those of the listing's files. */
typedef struct hub_choice {
    int32_t *files; /* owned; first the weights */
    size_t n, cap;
    int32_t first; /* the GGUF file to open, its first part; -1: the directory is opened */
    int32_t index; /* index file whose shards hub_choose_shards adds; -1: nothing to add */
    bool has_weights;
} hub_choice;

/* INVALID names the quantisations there are; NOT_FOUND: no such file, or nothing that
 * Quire reads; UNSUPPORTED: pickles alone; BAD_FILE: parts are missing. repo and pick as
 * in hub_name. Call hub_choice_deinit in any case. */
quire_err hub_choose(const hub_listing *l, const char *repo, const char *pick, hub_choice *out,
                     quire_error *err);
/* As above, for a LoRA adapter: adapter_config.json with adapter_model.safetensors, which
 * the directory opens, else a GGUF file. */
quire_err hub_choose_adapter(const hub_listing *l, const char *repo, const char *pick, hub_choice *out,
                             quire_error *err);
/* Adds the shards that the text of HUB_INDEX names. BAD_FILE: it is not such an index, or
 * the repository lacks one of them. */
quire_err hub_choose_shards(const hub_listing *l, const char *repo, str index, hub_choice *out,
                            quire_error *err);
void hub_choice_deinit(hub_choice *c);

/* True if a snapshot has what safetensors need besides weights: a config, and a tokenizer
 * of any kind. */
bool hub_has_texts(const hub_listing *l);

/* Appends the available quantisations to text, and the files whose names have none, as
 * far as they fit into an error. */
void hub_list_quants(const hub_listing *l, strbuf *text);

#endif
