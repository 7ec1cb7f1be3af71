/* Which files of a repository, or of a snapshot in the cache, make the model of a name.
 *
 *   nothing asked for   model.safetensors, else the shards of its index, else every
 *                       model*.safetensors, each with the texts that Quire reads
 *                       (configs, tokenizers, templates, modules); without any of them a
 *                       GGUF file, Q4_K_M before others
 *   :QUANT, :FILE.gguf  one GGUF model, with all its parts
 *
 * PyTorch's pickles are programs, and are never chosen. Plain data. */
#ifndef HUB_CHOOSE_H
#define HUB_CHOOSE_H

#include "hub/hub_listing.h"

#define HUB_INDEX "model.safetensors.index.json"

/* Zero-initialised is empty. Indices are those of the listing's files. */
typedef struct hub_choice {
    int32_t *files; /* owned; first the weights */
    size_t n, cap;
    int32_t first; /* the GGUF file to open, its first part; -1: the directory is opened */
    int32_t index; /* HUB_INDEX, whose shards hub_choose_shards adds; -1: none is to be added */
    bool has_weights;
} hub_choice;

/* INVALID names the quantisations there are; NOT_FOUND: no such file, or nothing that
 * Quire reads; UNSUPPORTED: pickles alone; BAD_FILE: parts are missing. repo and pick as
 * in hub_name. Call hub_choice_deinit in any case. */
quire_err hub_choose(const hub_listing *l, const char *repo, const char *pick, hub_choice *out,
                     quire_error *err);
/* Adds the shards that the text of HUB_INDEX names. BAD_FILE: it is no such index, or the
 * repository lacks one of them. */
quire_err hub_choose_shards(const hub_listing *l, const char *repo, str index, hub_choice *out,
                            quire_error *err);
void hub_choice_deinit(hub_choice *c);

/* True when a snapshot's safetensors have what opens them beside the weights: a config,
 * and a tokenizer of any kind. */
bool hub_has_texts(const hub_listing *l);

/* Appends to text the quantisations that there are, and the files whose names have none,
 * as far as an error's text holds them. */
void hub_list_quants(const hub_listing *l, strbuf *text);

#endif
