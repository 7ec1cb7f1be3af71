/* Reads a model's metadata, from GGUF or config.json, with the same calls.
 *
 * Every call takes two keys. gguf is the key after the architecture's name
 * ("block_count"). hf is a dotted path in config.json, or several separated by '|', of
 * which the first one present counts ("hidden_size|n_embd"); "text_config" is searched
 * first if there is one. A NULL key: the format never has the value, though a GGUF file
 * can get it by --override-kv with config.json's name. An absent key leaves *out
 * unchanged. A value of the wrong type or out of range is QUIRE_BAD_FILE, and the error
 * names file and key. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include <stdint.h>

#include "core/model_desc.h"
#include "core/recurrence.h"
#include "file/model_file.h"

/* Order in which GGUF files have the rows of a head of queries and keys. */
typedef enum head_rows {
    HEAD_ROWS_ALIKE,   /* the same as checkpoints */
    HEAD_ROWS_IN_TURN, /* a checkpoint's two halves interleaved, so that neighbours rotate together */
    /* the rows that rotate, which are neighbours: first rows of all pairs, then second
     * rows */
    HEAD_ROWS_IN_HALVES,
} head_rows;

typedef struct config {
    const model_file *f;
    const char *arch; /* prefix of GGUF's keys; class of config.json's text model */
    bool is_gguf;
    bool has_text; /* config.json has "text_config" */
    quire_error *err;
    head_rows *rows; /* receives the order of rows in GGUF files of this model; or NULL */
} config;

/* Makes a reader. name: becomes arch; borrowed. */
config config_of(const model_file *f, const char *name, quire_error *err);

/* Sets c->rows, if requested, from which elements rotate together in either format. */
static inline void config_set_rows(const config *c, rope_pairs in_hf, rope_pairs in_gguf) {
    if (c->rows != NULL) {
        *c->rows = in_hf == in_gguf       ? HEAD_ROWS_ALIKE
                   : in_hf == ROPE_HALVES ? HEAD_ROWS_IN_TURN
                                          : HEAD_ROWS_IN_HALVES;
    }
}

quire_err config_i32(const config *c, const char *gguf, const char *hf, int32_t *out); /* 0 .. INT32_MAX */
quire_err config_f32(const config *c, const char *gguf, const char *hf, float *out);   /* *out is finite */
/* numbers are true unless 0 */
quire_err config_bool(const config *c, const char *gguf, const char *hf, bool *out);
quire_err config_str(const config *c, const char *gguf, const char *hf, str *out);
/* The same for a number that config.json may set to null, which gives 0. An explicit 0 in
 * config.json is refused. */
quire_err config_i32_or_none(const config *c, const char *gguf, const char *hf, int32_t *out);
quire_err config_f32_or_none(const config *c, const char *gguf, const char *hf, float *out);
/* A layer's index, or -1 for the last layer. */
quire_err config_layer(const config *c, const char *gguf, const char *hf, int32_t *out);
/* A required number. */
quire_err config_need_i32(const config *c, const char *gguf, const char *hf, int32_t *out);
/* A number, or a list of equal numbers, one per layer. */
quire_err config_same_i32(const config *c, const char *gguf, const char *hf, int32_t *out);
/* A list of at most max numbers, or a single one. *n: their count; 0: no such key. */
quire_err config_i32s(const config *c, const char *gguf, const char *hf, int32_t *out, size_t max, size_t *n);
/* A list of numbers in config.json; *n 0: the key is absent. */
quire_err config_f32s(const config *c, const char *hf, float *out, size_t max, size_t *n);
/* Element i of a list of numbers; *out is unchanged if it is absent or null. */
quire_err config_f32_at(const config *c, const char *gguf, const char *hf, size_t i, float *out);
/* Whether config.json has a non-empty list of numbers at this key. */
bool config_is_list(const config *c, const char *hf);
/* Element i of a list of strings; *out empty: absent. */
quire_err config_str_at(const config *c, const char *hf, size_t i, str *out);
/* Whether config.json names this architecture; some checkpoints say this way that they
 * have no head. */
bool config_is(const config *c, const char *architecture);
bool config_has(const config *c, const char *gguf, const char *hf);
/* Whether the first of these keys that config.json has is null. */
bool config_is_null(const config *c, const char *hf);
/* Refuses a value that is neither an object nor null. */
quire_err config_object(const config *c, const char *hf);
/* Refuses a model that this build cannot compute: "FILE: WHAT". */
quire_err config_unsupported(const config *c, const char *what);
quire_err config_bad(const config *c, const char *key, const char *what);
/* Like config_unsupported, naming the key that the file has, or else the first one:
 * "FILE: KEY WHAT". */
quire_err config_bad_at(const config *c, const char *gguf, const char *hf, const char *what);
/* QUIRE_UNSUPPORTED, naming the key likewise, unless least <= n <= most. */
quire_err config_check(const config *c, const char *gguf, const char *hf, int32_t n, int32_t least,
                       int32_t most);

/* ---- config_shape.c ---- */

/* Properties of decoders whose layers are all alike. Set an architecture's defaults
 * before the call. */
typedef struct decoder_shape {
    int32_t n_layers, n_heads, n_kv_heads, d_head, d_ff;
    bool has_values; /* values may have another width than keys, by default d_value (0: that of keys) */
    int32_t d_value;
    /* the number of query heads may differ by layer; n_heads is then the first layer's */
    bool has_heads_by_layer;
    /* a value of config.json that means the activation of d; NULL: the usual names
     * only */
    const char *own_activation;
    bool own_heads;    /* the caller reads the width of heads, and sets caches and scale from it */
    bool no_attention; /* no layer has attention or a feed-forward part */
    bool lacks_ff;     /* the file may give some layers a feed-forward width of 0 */
} decoder_shape;

/* Reads widths, layers, heads, vocabulary, positions, norm epsilon, activation, tying,
 * and BOS and EOS. Values that config.json leaves out are the published ones (config.h's
 * `published`). Zeros in *s stand for these, or else for: as many KV heads as heads;
 * width / heads; a required feed-forward width. KV heads and feed-forward widths may be
 * lists with an element per layer; *s then has the first. Adds the layers to d, with full
 * attention and without rotary tables. */
quire_err config_decoder(const config *c, decoder_shape *s, model_desc *d);
/* Sets KV heads from the rows of a GGUF file's first attn_k, since some files give the
 * number of query heads in head_count_kv. */
void config_kv_heads_of_tensor(const config *c, model_desc *d);
/* Sets the feed-forward width from the first layer's tensor, since some architectures'
 * GGUF files state it wrongly. */
quire_err config_ff_of_tensor(const config *c, model_desc *d);
/* The weight of a layer of a GGUF file, packed or not; NULL: absent. */
const tensor_view *config_layer_matrix(const config *c, int32_t layer, const char *name);
/* The rows of a GGUF file's tensor (%d: of the first layer that has it), packed or not;
 * 0: absent. */
int32_t config_tensor_rows(const config *c, const model_desc *d, const char *name);
/* The rows of a matrix; 0: t is NULL or not a matrix. GGUF files store a matrix of one
 * row as a vector. */
int32_t config_matrix_rows(const config *c, const tensor_view *t);
/* The rows of a table of embeddings in a GGUF file, by its full name; 0: absent. */
int32_t config_table_rows(const config *c, const char *name);
/* Reads the activation function; d's is unchanged if the key is absent. */
quire_err config_activation(const config *c, const char *hf, model_desc *d);

/* ---- config_mamba.c: delta rule and short convolutions ---- */

/* What the layers of a model use besides keys and values. */
typedef struct state_layers {
    bool attends[DESC_MAX_LAYERS], recurs[DESC_MAX_LAYERS]; /* attention, recurrence; a layer may have both */
    bool may_choose;                                        /* layers may be of type "indexed_attention" */
    bool may_have_windows;                                  /* layers may be of type "sliding_attention" */
    bool has_window[DESC_MAX_LAYERS];
    cache_desc state, conv; /* caches of a recurrent layer; n_units 0: none */
} state_layers;

/* Removes attention and its caches from layers without attention, and adds states to
 * recurrent layers. Call last, since nothing may read the caches afterwards. */
quire_err config_set_states(const config *c, const state_layers *s, model_desc *d);
/* Reads from config.json's "layer_types" which layers have attention ("full_attention",
 * "attention") and which are recurrent (names in `recurrent`). *found: whether the list
 * exists. */
quire_err config_state_types(const config *c, const model_desc *d, const char *recurrent, state_layers *s,
                             bool *found);
/* Reads the heads of linear attention and its convolutions' taps into d->delta, which
 * holds the defaults, under Qwen's and GGUF's names. */
quire_err config_delta(const config *c, model_desc *d);
/* Sets the caches of linear attention from d->delta. */
void config_delta_caches(const model_desc *d, state_layers *s);
/* Reads the number of taps of a short convolution: 2 to CONV_MAX_TAPS. */
quire_err config_taps(const config *c, const char *gguf, const char *hf, int32_t *n_taps);

/* ---- config_mamba.c: Mamba ---- */

/* Reads the numbers of Mamba-1's mixers into d->mamba, and the caches of a layer that has
 * one into *s. */
quire_err config_mamba1(const config *c, model_desc *d, state_layers *s);
/* The same for Mamba-2. d->mamba holds the published heads, groups and states, and the
 * mixer's width if the file states it directly. Otherwise the width is the published
 * multiple `expand` of the model's, or if that is 0 the width of all heads. d_head:
 * published width of a head; 0: the mixer's width / heads. */
quire_err config_mamba2(const config *c, float expand, int32_t d_head, model_desc *d, state_layers *s);
/* Whether a layer of a GGUF file has Mamba's mixer. */
bool config_has_mamba(const config *c, int32_t layer);
/* Whether a layer of a GGUF file has a router. */
bool config_has_experts(const config *c, int32_t layer);

/* ---- config_rope.c ---- */

/* The rotary embedding of a model without any rotary keys. */
rope_desc config_plain_rope(const config *c, const model_desc *d);
/* Reads a rotary table and its scaling into *r, which holds the defaults; initially
 * r->n_dims is the number of elements of a head that rotate if the file does not say it,
 * and the head's width for "proportional" scaling. object: the config.json object with
 * the numbers; NULL: "rope_parameters" or "rope_scaling". QUIRE_UNSUPPORTED: an unknown
 * scaling, which err names. */
quire_err config_rope(const config *c, const char *object, const model_desc *d, rope_desc *r);
/* Reads how many elements of a head rotate from config.json, at most a whole head. */
quire_err config_rotary_dim(const config *c, const model_desc *d, int32_t *n_dims);
/* Adds a rotary table to the description and uses it in every layer. */
quire_err config_add_rope(const config *c, model_desc *d, const rope_desc *r);
/* For most models, which have one table: reads and adds it. hf, gguf: which elements of a
 * head rotate together in each format. fraction: the part of a head's elements that
 * rotates if the file does not say it. */
quire_err config_rotary(const config *c, model_desc *d, rope_pairs hf, rope_pairs gguf, float fraction);
/* For models with a second table for layers with windows: config.json's "rope_parameters"
 * has an object for "full_attention" and one for "sliding_attention"; null means no
 * positions in those layers. full, local: the defaults. Call after the windows are
 * read. */
quire_err config_rotary_by_window(const config *c, const rope_desc *full, const rope_desc *local,
                                  model_desc *d);
/* Llama's description: config_decoder without assumptions, whole heads rotate. */
quire_err config_llama(const config *c, rope_pairs hf, rope_pairs gguf, model_desc *d);

/* ---- config_moe.c ---- */

/* Reads the widths of latent attention into d->latent, which holds the architecture's
 * defaults. Call after config_decoder with own_heads. */
quire_err config_latent(const config *c, model_desc *d);
/* Gives a layer a cache of latents and steps for latent attention, followed by experts if
 * it has any. */
void config_set_latent(model_desc *d, int32_t layer);
/* Adds the rotary table of latent attention and sets the scale of scores. hf: which
 * elements of a head rotate together in checkpoints; in GGUF files neighbours do. */
quire_err config_latent_rotary(const config *c, model_desc *d, rope_pairs hf, rope_pairs gguf);
/* All of this, for a model whose layers are all latent attention. usual: values that
 * config.json leaves out; d_value 0: the model's width / heads. hf ROPE_NEIGHBOURS:
 * unless rope_interleave is false. */
quire_err config_latents(const config *c, const latent_desc *usual, rope_pairs hf, rope_pairs gguf,
                         model_desc *d);
/* Reads how rows select keys (DeepSeek-V3.2), and adds a cache to the layers that do.
 * Call after config_latents and config_set_states. usual: values that config.json leaves
 * out. pairs: which elements of an index head rotate together. */
quire_err config_index(const config *c, index_desc usual, rope_pairs pairs, model_desc *d);
/* Adds caches, by d->index, for index keys to the layers that select keys, and for what a
 * pool's key is made from. */
quire_err config_add_index(const config *c, const bool *chooses, model_desc *d);
/* Reads how queries are scaled by position (Ministral 3). needed: keys are required. */
quire_err config_temperature(const config *c, bool needed, model_desc *d);

/* ---- config_moe.c: windows ---- */

/* Gives a layer a window: it sees, and its cache keeps, this many tokens. 0: all. */
void config_set_window(model_desc *d, int32_t layer, int32_t window);
/* Reads the window's length. *window keeps its default if the file has none, and becomes
 * 0 if config.json has null. */
quire_err config_window(const config *c, int32_t *window);
/* Gives every layer the file's window, or `usual` if there is none (0: no window). */
quire_err config_window_on_all(const config *c, int32_t usual, model_desc *d);
/* Reads the period of layers in which one has no window. */
quire_err config_period(const config *c, const char *gguf, const char *hf, int32_t *period);
/* Determines which layers have windows: is_window[i] for each layer. Uses config.json's
 * "layer_types" ("sliding_attention"), or GGUF's sliding_window_pattern as a list;
 * otherwise, in each `period` layers, all but layer full_at (period - 1: the last). A
 * number in sliding_window_pattern replaces period. period 0: none. */
quire_err config_window_layers(const config *c, const model_desc *d, int32_t period, int32_t full_at,
                               bool *is_window);
/* Refuses a list of texts per layer in config.json that has too few elements; more are
 * allowed, for next-token layers. */
quire_err config_check_types(const config *c, const model_desc *d, const char *key);
/* Gives layers with windows (config_window_layers) this window, and the others none. */
quire_err config_windows(const config *c, int32_t window, int32_t period, int32_t full_at, model_desc *d);

/* Makes the last n_shared layers read the cache of the last layer of their kind (with or
 * without a window) that has its own. Call after the windows are set. */
quire_err config_share_caches(const config *c, int32_t n_shared, model_desc *d);

/* Call after config_moe: gives the layers that are not in is_sparse a dense part of width
 * d_ff. config.json's "mlp_layer_types" ("sparse", "dense") replaces is_sparse. */
quire_err config_sparse_types(const config *c, bool *is_sparse, int32_t d_ff, model_desc *d);

/* Refuses a GGUF file whose attention is causal. */
quire_err config_check_two_sided(const config *c);

/* Reads the numbers of experts and their routing into d->moe, which holds the
 * architecture's defaults, and replaces every layer's dense part by experts. Changes
 * nothing for a model without experts. */
quire_err config_moe(const config *c, model_desc *d);
/* Whether a GGUF file's mixture uses a correction bias to choose experts. */
bool config_has_correction(const config *c, const model_desc *d);
/* Sets the number of shared experts if the file does not state it: n, each as wide as the
 * others. Call after config_moe. */
void config_usual_shared(const config *c, int32_t n, model_desc *d);
/* Call after config_moe: gives dense layers back a feed-forward part of width d_ff. Dense
 * are those with config.json's "mlp_layer_types" "dense"; otherwise the first n_dense, or
 * as many as config.json's key hf or GGUF's leading_dense_block_count says; in a GGUF
 * file without that, layers without a router. */
quire_err config_dense_layers(const config *c, const char *hf, int32_t n_dense, int32_t d_ff, model_desc *d);
/* The same by Qwen's keys: dense are the layers in mlp_only_layers (by default the first
 * n_usual), and all but each decoder_sparse_step-th. */
quire_err config_sparse_layers(const config *c, int32_t n_usual, int32_t d_ff, model_desc *d);
/* Give a layer n experts, or a dense part of width d_ff. */
void config_set_experts(model_desc *d, int32_t layer, int32_t n);
void config_set_dense(model_desc *d, int32_t layer, int32_t d_ff);

/* Values that a config.json may leave out: those of an architecture's published
 * configuration. GGUF files have them all. */

typedef struct published {
    const char *architecture;  /* as in model_desc */
    int32_t d_model, n_layers; /* only a nested configuration leaves these out */
    int32_t n_heads;
    int32_t n_kv_heads; /* 0: as many as heads */
    int32_t d_head;     /* 0: the model's width / heads */
    int32_t d_ff;       /* 0: the architecture's own rule */
    int32_t n_vocab, max_positions;
    float norm_eps, theta; /* theta 0: no rotary embedding */
    int32_t n_experts, n_used, d_expert;
} published;

/* The published values of an architecture; all 0 if it is not in the table. */
const published *published_of(const char *architecture);

#endif
