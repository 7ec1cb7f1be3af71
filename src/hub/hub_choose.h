/* Chooses the files of a named model from a repository, or a snapshot in the cache.
 *
 *   no pick             model.safetensors, else the shards of its index, else every
 *                       model*.safetensors, each with the text files that Quire reads
 *                       (configs, tokenizers, templates, modules); without any of them a
 *                       GGUF file, Q4_K_M before others
 *   :QUANT, :FILE.gguf  one GGUF model, with all its parts
 *
 * PyTorch pickles can run code when loaded, so they are never chosen. Plain data. */
#ifndef HUB_CHOOSE_H
#define HUB_CHOOSE_H

#include "hub/hub_name.h"

/* ---- the files of a commit ---- */

/* The files of one commit, from the hub's answer or a snapshot in the cache. Plain
 * data. */

#define HUB_MAX_FILES 100000

typedef struct hub_file {
    char *path; /* owned; safe (hub_name.h) */
    /* name of its blob: SHA-256, or of a small file git's SHA-1 */
    char id[HUB_DIGEST_BYTES];
    int64_t n_bytes;
    int64_t used_unix_s; /* time of last use, for a file of a snapshot */
} hub_file;

/* A zero-initialised listing is empty. */
typedef struct hub_listing {
    char commit[41];
    char base[194];  /* base model named in the model card; empty: unknown, or read from a snapshot */
    hub_file *files; /* sorted by path */
    size_t n, cap;
} hub_listing;

/* Reads the answer of /api/models/REPO/revision/REVISION?blobs=true, except names that
 * begin with a dot. BAD_FILE: it is not such an answer, or a name in it leads out of the
 * directory. Call hub_listing_deinit in any case, also after an error. */
quire_err hub_listing_parse(str json, const char *repo, hub_listing *out, quire_error *err);
/* Adds a file, whose path must be safe. NO_MEMORY, or TOO_LARGE past HUB_MAX_FILES. */
quire_err hub_listing_add(hub_listing *l, str path, str id, int64_t n_bytes);
/* Sorts the files by path. Call it once all files are added. */
void hub_listing_sort(hub_listing *l);
/* Returns the index of the file at this path, or -1. O(log n). */
int32_t hub_listing_find(const hub_listing *l, str path);
void hub_listing_deinit(hub_listing *l);

/* ---- hub_choose ---- */

#define HUB_INDEX          "model.safetensors.index.json"
#define HUB_ADAPTER_CONFIG "adapter_config.json"

/* A zero-initialised choice is empty. Indices are those of the listing's files. */
typedef struct hub_choice {
    int32_t *files; /* owned; the weights come first */
    size_t n, cap;
    int32_t first; /* the GGUF file to open (first part of a split model); -1: open the directory */
    int32_t index; /* index file whose shards hub_choose_shards adds; -1: nothing to add */
    bool has_weights;
} hub_choice;

/* Chooses the model's files; repo and pick are as in hub_name. INVALID: no such
 * quantisation, and err lists the available ones. NOT_FOUND: no such file, or nothing
 * that Quire reads. UNSUPPORTED: only pickles. BAD_FILE: parts are missing. Call
 * hub_choice_deinit in any case. */
quire_err hub_choose(const hub_listing *l, const char *repo, const char *pick, hub_choice *out,
                     quire_error *err);
/* Like hub_choose, for a LoRA adapter: adapter_config.json with
 * adapter_model.safetensors, opened as a directory, else a GGUF file. */
quire_err hub_choose_adapter(const hub_listing *l, const char *repo, const char *pick, hub_choice *out,
                             quire_error *err);
/* Adds the shards that the text of HUB_INDEX names. BAD_FILE: it is not such an index, or
 * the repository lacks one of them. */
quire_err hub_choose_shards(const hub_listing *l, const char *repo, str index, hub_choice *out,
                            quire_error *err);
void hub_choice_deinit(hub_choice *c);

/* True if a snapshot has what a safetensors model needs besides weights: config.json, and
 * a tokenizer of any kind. */
bool hub_has_texts(const hub_listing *l);

/* Appends the available quantisations to text, and the names of GGUF files that name
 * none; ends with ".." after 250 bytes. */
void hub_list_quants(const hub_listing *l, strbuf *text);

#endif
