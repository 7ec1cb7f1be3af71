/* A reader of a model's numbers: GGUF's metadata or config.json after one set of calls.
 *
 * Every call takes two keys. gguf is the part after the architecture's name
 * ("block_count"). hf is a dotted path of config.json, or several with '|' between them,
 * of which the first that is there counts ("hidden_size|n_embd"); inside "text_config"
 * first, where the file has one. NULL: that format never has the number; for a GGUF file
 * --override-kv can set it then, by config.json's name after the architecture's. An
 * absent key leaves *out unchanged. A value of another type or out of range is
 * QUIRE_BAD_FILE, and the error names the file and the key. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include <stdint.h>

#include "core/model_desc.h"
#include "core/recurrence.h"
#include "file/model_file.h"

/* How GGUF files have the rows of a head of queries and keys. */
typedef enum head_rows {
    HEAD_ROWS_ALIKE,   /* as checkpoints do */
    HEAD_ROWS_IN_TURN, /* a checkpoint's halves in turn, so that neighbours rotate together */
    /* of those that rotate, which are neighbours: the first of each pair, then the
     * others */
    HEAD_ROWS_IN_HALVES,
} head_rows;

typedef struct config {
    const model_file *f;
    const char *arch; /* prefix of GGUF's keys; the class of config.json's text */
    bool is_gguf;
    bool has_text; /* config.json has "text_config" */
    quire_error *err;
    head_rows *rows; /* gets how GGUF files of this model have them; or NULL */
} config;

config config_of(const model_file *f, const char *name, quire_error *err); /* name: arch, borrowed */

/* Derives c->rows, if wanted, from the pairs of elements that rotate together in either
 * format. */
static inline void config_set_rows(const config *c, rope_pairs in_hf, rope_pairs in_gguf) {
    if (c->rows != NULL) {
        *c->rows = in_hf == in_gguf       ? HEAD_ROWS_ALIKE
                   : in_hf == ROPE_HALVES ? HEAD_ROWS_IN_TURN
                                          : HEAD_ROWS_IN_HALVES;
    }
}

quire_err config_i32(const config *c, const char *gguf, const char *hf, int32_t *out); /* 0 .. INT32_MAX */
quire_err config_f32(const config *c, const char *gguf, const char *hf, float *out);   /* finite */
/* a number is true unless it is 0 */
quire_err config_bool(const config *c, const char *gguf, const char *hf, bool *out);
quire_err config_str(const config *c, const char *gguf, const char *hf, str *out);
/* The same for a number that config.json may set to null, which makes *out 0. An
 * explicit 0 of config.json is refused. */
quire_err config_i32_or_none(const config *c, const char *gguf, const char *hf, int32_t *out);
quire_err config_f32_or_none(const config *c, const char *gguf, const char *hf, float *out);
/* The number of a layer, or -1, which stands for the last. */
quire_err config_layer(const config *c, const char *gguf, const char *hf, int32_t *out);
/* A number that must be there. */
quire_err config_need_i32(const config *c, const char *gguf, const char *hf, int32_t *out);
/* A number, or a list of them, one a layer, that must all be equal. */
quire_err config_same_i32(const config *c, const char *gguf, const char *hf, int32_t *out);
/* A list of numbers, or one number: at most max of them, *n: how many there are (0: the
 * key is absent). */
quire_err config_i32s(const config *c, const char *gguf, const char *hf, int32_t *out, size_t max, size_t *n);
/* A list of numbers of config.json; *n 0: the key is absent. */
quire_err config_f32s(const config *c, const char *hf, float *out, size_t max, size_t *n);
/* Reads element i of a list of numbers; *out is unchanged if it is absent or null. */
quire_err config_f32_at(const config *c, const char *gguf, const char *hf, size_t i, float *out);
/* Whether config.json has a list of numbers there, with at least one. */
bool config_is_list(const config *c, const char *hf);
/* Reads element i of a list of strings; *out empty: absent. */
quire_err config_str_at(const config *c, const char *hf, size_t i, str *out);
/* Whether config.json names this architecture: some checkpoints say by it that they have
 * no head. */
bool config_is(const config *c, const char *architecture);
bool config_has(const config *c, const char *gguf, const char *hf);
/* Whether config.json has the first of the keys that it has at all with null. */
bool config_is_null(const config *c, const char *hf);
/* Refuses a key whose value is neither an object nor null. */
quire_err config_object(const config *c, const char *hf);
/* Refuses a model that this build cannot compute: "FILE: WHAT". */
quire_err config_unsupported(const config *c, const char *what);
quire_err config_bad(const config *c, const char *key, const char *what);
/* The same, naming the key that the file has, else the first: "FILE: KEY WHAT". */
quire_err config_bad_at(const config *c, const char *gguf, const char *hf, const char *what);
/* QUIRE_UNSUPPORTED, naming that key, unless least <= n <= most. */
quire_err config_check(const config *c, const char *gguf, const char *hf, int32_t n, int32_t least,
                       int32_t most);

/* ---- config_shape.c ---- */

/* The numbers of a model whose layers are all alike. What an architecture assumes if the
 * file says nothing is set before the call. */
typedef struct decoder_shape {
    int32_t n_layers, n_heads, n_kv_heads, d_head, d_ff;
    bool has_values; /* values may be of another width than keys, usually d_value (0: as keys) */
    int32_t d_value;
    bool has_heads_by_layer; /* heads of queries may be a list too: n_heads is then the first layer's */
    /* a name that config.json has for the activation of d; NULL: none but the usual */
    const char *own_activation;
    bool own_heads;    /* the caller reads how wide heads are, and sets caches and scale by it */
    bool no_attention; /* no layer attends, or has a feed-forward part */
    bool lacks_ff;     /* of some layers the file may say a feed-forward width of 0 */
} decoder_shape;

/* Reads widths, layers, heads, vocabulary, positions, norm's epsilon, activation, tying
 * and the tokens that end and begin a text. Numbers that config.json leaves out are the
 * published ones (config.h). Zeroes in *s stand for these, and else for: as many KV
 * heads as heads; width / heads; a feed-forward width that must be there. KV heads and
 * feed-forward widths may be lists with one for each layer; *s then has the first. Adds
 * the layers, with full attention and no rotary table, to d. */
quire_err config_decoder(const config *c, decoder_shape *s, model_desc *d);
/* KV heads by the rows of a GGUF file's first attn_k: some files' head_count_kv counts
 * query heads. */
void config_kv_heads_of_tensor(const config *c, model_desc *d);
/* Some architectures' GGUF files state a wrong feed-forward width: takes it from the
 * first layer's tensor. */
quire_err config_ff_of_tensor(const config *c, model_desc *d);
/* The rows of a tensor of a GGUF file (of layer %d the first that has it), packed or not;
 * 0: there is none. */
int32_t config_tensor_rows(const config *c, const model_desc *d, const char *name);
/* The rows of a matrix; 0: t is NULL or no matrix. GGUF files store one of a single row
 * as a vector. */
int32_t config_matrix_rows(const config *c, const tensor_view *t);
/* The rows of a table of embeddings of a GGUF file, by its whole name; 0: there is
 * none. */
int32_t config_table_rows(const config *c, const char *name);
/* Reads the activation function of config.json's key; d keeps its own where the key is
 * absent. */
quire_err config_activation(const config *c, const char *hf, model_desc *d);

/* ---- config_mamba.c: delta rule and short convolutions ---- */

/* What the layers of a model keep besides keys and values. */
typedef struct state_layers {
    bool attends[DESC_MAX_LAYERS], recurs[DESC_MAX_LAYERS]; /* a layer may do both */
    bool may_choose;                                        /* layers may be of type "indexed_attention" */
    bool may_have_windows;                                  /* layers may be of type "sliding_attention": */
    bool has_window[DESC_MAX_LAYERS];
    cache_desc state, conv; /* of a layer that recurs; n_units 0: it has none */
} state_layers;

/* Takes attention and its caches from layers that do not attend, and gives states to
 * those that recur. Nothing else may read caches afterwards: called last. */
quire_err config_set_states(const config *c, const state_layers *s, model_desc *d);
/* Reads from config.json's "layer_types" which layers attend ("full_attention",
 * "attention") and which recur (names in `recurrent`). *found: whether the list
 * exists. */
quire_err config_state_types(const config *c, const model_desc *d, const char *recurrent, state_layers *s,
                             bool *found);
/* Reads the heads of linear attention, and the taps of its convolutions, into d->delta,
 * which holds the defaults: Qwen's names, and GGUF's. */
quire_err config_delta(const config *c, model_desc *d);
/* Sets the caches of linear attention by d->delta. */
void config_delta_caches(const model_desc *d, state_layers *s);
/* Reads how many taps a short convolution has: 2 to CONV_MAX_TAPS. */
quire_err config_taps(const config *c, const char *gguf, const char *hf, int32_t *n_taps);

/* ---- config_mamba.c: Mamba ---- */

/* Reads the numbers of Mamba-1's mixers into d->mamba, and what a layer with one keeps
 * into *s. */
quire_err config_mamba1(const config *c, model_desc *d, state_layers *s);
/* As above, for Mamba-2. d->mamba holds the published heads, groups and states, and the
 * mixer's width where the file says it by itself. expand: where it does not, the
 * published width over the model's; 0: it is that of all heads. d_head:
 * the published width of a head; 0: the mixer's / heads. */
quire_err config_mamba2(const config *c, float expand, int32_t d_head, model_desc *d, state_layers *s);
/* Whether a layer of a GGUF file has Mamba's mixer. */
bool config_has_mamba(const config *c, int32_t layer);
/* Whether a layer of a GGUF file has a router. */
bool config_has_experts(const config *c, int32_t layer);

/* ---- config_rope.c ---- */

/* What rotary embedding is without any key. */
rope_desc config_plain_rope(const config *c, const model_desc *d);
/* Reads a rotary table with its scaling into *r, which holds the defaults; r->n_dims is
 * then the elements of a head that rotate where the file does not say it, and the head's
 * width for the scaling "proportional". object: the object of config.json with its
 * numbers, NULL: "rope_parameters" or "rope_scaling". QUIRE_UNSUPPORTED names a scaling
 * that this build does not know. */
quire_err config_rope(const config *c, const char *object, const model_desc *d, rope_desc *r);
/* Reads how many elements of a head rotate where config.json counts them: no more than a
 * head has. */
quire_err config_rotary_dim(const config *c, const model_desc *d, int32_t *n_dims);
/* Adds a table to the description and gives it to every layer. */
quire_err config_add_rope(const config *c, model_desc *d, const rope_desc *r);
/* The one table of most models: reads and adds it. hf, gguf: which elements of a head
 * rotate together in checkpoints of either form. fraction: of a head's elements that
 * rotate where the file does not say it. */
quire_err config_rotary(const config *c, model_desc *d, rope_pairs hf, rope_pairs gguf, float fraction);
/* Two tables, where layers with windows have one of their own: config.json's
 * "rope_parameters" has an object for "full_attention" and one for "sliding_attention";
 * one that is null leaves its layers without positions. full and local are the defaults
 * if the file says nothing. After the windows are read. */
quire_err config_rotary_by_window(const config *c, const rope_desc *full, const rope_desc *local,
                                  model_desc *d);
/* config_decoder of a shape without assumptions, and config_rotary of whole heads:
 * Llama's description. */
quire_err config_llama(const config *c, rope_pairs hf, rope_pairs gguf, model_desc *d);

/* ---- config_moe.c ---- */

/* Reads the widths of latent attention into d->latent, which holds the architecture's
 * defaults. After config_decoder of a shape with own_heads. */
quire_err config_latent(const config *c, model_desc *d);
/* Gives a layer a cache of latents and its attention, or experts after it where it has
 * some. */
void config_set_latent(model_desc *d, int32_t layer);
/* Adds the one rotary table of such layers, and sets the scale of scores. hf: which
 * elements of a head rotate together in a checkpoint; those of GGUF files are
 * neighbours. */
quire_err config_latent_rotary(const config *c, model_desc *d, rope_pairs hf, rope_pairs gguf);
/* All of this, for a model whose layers all keep latents. usual: what config.json leaves
 * out; d_value 0: the model's width over heads. hf ROPE_NEIGHBOURS: unless
 * rope_interleave is false. */
quire_err config_latents(const config *c, const latent_desc *usual, rope_pairs hf, rope_pairs gguf,
                         model_desc *d);
/* Reads how rows choose their keys (DeepSeek-V3.2), and gives the layers that do a cache
 * for it. After config_latents, and after config_set_states. usual: what config.json
 * leaves out. pairs: which elements of an index head rotate together. */
quire_err config_index(const config *c, index_desc usual, rope_pairs pairs, model_desc *d);
/* Gives the layers that choose caches for index keys, by d->index, and for what makes a
 * pool's. */
quire_err config_add_index(const config *c, const bool *chooses, model_desc *d);
/* Reads how queries grow with their position (Ministral 3). needed: the file must say
 * it. */
quire_err config_temperature(const config *c, bool needed, model_desc *d);

/* ---- config_moe.c: windows ---- */

/* Gives a layer a window: it sees, and its cache keeps, this many tokens. 0: it sees
 * all. */
void config_set_window(model_desc *d, int32_t layer, int32_t window);
/* Reads the window's length: *window keeps the caller's default if the file has none, and
 * becomes 0 if config.json says null. */
quire_err config_window(const config *c, int32_t *window);
/* Gives every layer the window that the file names, or `usual` if it names none (0: no
 * window). */
quire_err config_window_on_all(const config *c, int32_t usual, model_desc *d);
/* Reads how many layers make a period of which one has no window. */
quire_err config_period(const config *c, const char *gguf, const char *hf, int32_t *period);
/* Which layers have windows: config.json's "layer_types" ("sliding_attention"), GGUF's
 * sliding_window_pattern as a list, else all but
 * one of each `period` layers, that at full_at (period - 1: the last). GGUF's
 * sliding_window_pattern as a number is such a period. period 0: none. is_window[i] for
 * the model's layers. */
quire_err config_window_layers(const config *c, const model_desc *d, int32_t period, int32_t full_at,
                               bool *is_window);
/* A list of config.json with a text for each layer must have as many, where it is there;
 * next-token layers after them may have some too. */
quire_err config_check_types(const config *c, const model_desc *d, const char *key);
/* Gives these layers the window, and the others none. */
quire_err config_windows(const config *c, int32_t window, int32_t period, int32_t full_at, model_desc *d);

/* Has the last layers read the cache of the last layer of their kind, with a window or
 * without, that has one of its own. After the windows are set. */
quire_err config_share_caches(const config *c, int32_t n_shared, model_desc *d);

/* Reads from config.json's "mlp_layer_types" ("sparse", "dense") which layers are
 * mixtures of experts; without it is_sparse is unchanged. */
quire_err config_sparse_types(const config *c, const model_desc *d, bool *is_sparse);

/* Refuses a GGUF file whose rows see earlier ones only. */
quire_err config_check_two_sided(const config *c);

/* Reads the numbers of experts and how rows choose them into d->moe, which holds the
 * architecture's defaults, and gives every layer its experts in place of the dense part.
 * A model without experts: nothing changes. */
quire_err config_moe(const config *c, model_desc *d);
/* Whether a GGUF file's mixture chooses with a correction. */
bool config_has_correction(const config *c, const model_desc *d);
/* What counts where the file does not say how many shared experts there are: n, each as
 * wide as the others. After config_moe. */
void config_usual_shared(const config *c, int32_t n, model_desc *d);
/* After config_moe: gives dense layers their feed-forward part of width d_ff back. Those
 * are config.json's "mlp_layer_types" of "dense"; else the first n_dense, by
 * config.json's key hf or GGUF's leading_dense_block_count; in a GGUF file without it
 * those that have no router. */
quire_err config_dense_layers(const config *c, const char *hf, int32_t n_dense, int32_t d_ff, model_desc *d);
/* As above, by Qwen's keys: layers that mlp_only_layers names (usually the first
 * n_usual), and all but each decoder_sparse_step-th. */
quire_err config_sparse_layers(const config *c, int32_t n_usual, int32_t d_ff, model_desc *d);
/* Gives a layer n experts in place of its dense feed-forward part, and that part back. */
void config_set_experts(model_desc *d, int32_t layer, int32_t n);
void config_set_dense(model_desc *d, int32_t layer, int32_t d_ff);

/* What a config.json leaves out: the numbers of an architecture's published
 * configuration. GGUF files have all of theirs. */

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

/* The published numbers of an architecture; all 0 if it is not in the table. */
const published *published_of(const char *architecture);

#endif
