/* Qwen2 and 2.5: arXiv:2407.10671, 2412.15115: Llama with biases on q, k and v. Qwen3:
 * arXiv:2505.09388: norms over the heads of q and k instead. Their mixtures of experts.
 * The text models of Qwen2-VL, 2.5-VL and 3-VL (arXiv:2409.12191), whose positions have
 * three axes, which coincide without images. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "model/architectures.h"
#include "model/find_weight.h"

static const arch_names qwen_vl_names = {.left_out = {"visual"}};
static const arch_names qwen3_vl_moe_names = {
    .hf = {STACK_NAMES("model.layers.%d.mlp.experts")}, /* quantised: modules */
};
static const arch_names qwen2_moe_names = {
    .hf = {SHARED_NAMES("model.layers.%d.mlp.shared_expert")},
};

/* Which layers have a window if the file lists none: those from max_window_layers on, the
 * even ones before it, or all. */
typedef enum windowed { WINDOWED_LAST, WINDOWED_EVEN, WINDOWED_ALL } windowed;

/* The published max_window_layers; GGUF files state theirs. */
static int32_t usual_first(const config *c, const model_desc *d) {
    return c->is_gguf ? d->n_layers : strcmp(d->architecture, "qwen2vl") == 0 ? 80 : 28;
}

/* Sets windows, if use_sliding_window is set. */
static quire_err qwen_read_windows(const config *c, windowed which, model_desc *d) {
    bool use = false, is_window[DESC_MAX_LAYERS];
    int32_t window = c->is_gguf ? 0 : 4096, first = usual_first(c, d);
    TRY(config_bool(c, NULL, "use_sliding_window", &use));
    if (!use) {
        return QUIRE_OK;
    }
    TRY(config_window(c, &window));
    TRY(config_i32(c, NULL, "max_window_layers", &first));
    TRY(config_window_layers(c, d, 0, 0, is_window));
    bool are_listed =
        config_has(c, NULL, "layer_types") || config_has(c, "attention.sliding_window_pattern", NULL);
    for (int32_t i = 0; i < d->n_layers; i++) {
        bool has = which == WINDOWED_ALL    ? true
                   : are_listed             ? is_window[i]
                   : which == WINDOWED_EVEN ? i % 2 == 0 && i < first
                                            : i >= first;
        config_set_window(d, i, has ? window : 0);
    }
    return QUIRE_OK;
}

static quire_err qwen_describe_common(const config *c, windowed which, model_desc *d) {
    TRY(config_llama(c, ROPE_HALVES, ROPE_HALVES, d));
    return qwen_read_windows(c, which, d);
}

static quire_err describe_qwen2(const config *c, model_desc *d) {
    return qwen_describe_common(c, WINDOWED_LAST, d);
}

static quire_err describe_qwen3(const config *c, model_desc *d) {
    TRY(qwen_describe_common(c, WINDOWED_LAST, d));
    d->attend.qk_norm = QK_NORM_HEAD;
    d->no_head = config_is(c, "Qwen3Model");
    return QUIRE_OK;
}

/* Reads Qwen's experts: layers in mlp_only_layers, and all but each
 * decoder_sparse_step-th, are dense. */
static quire_err qwen_experts(const config *c, model_desc *d) {
    assert(d != NULL);
    int32_t d_ff = d->layers[0].d_ff;
    TRY(config_moe(c, d));
    return config_sparse_layers(c, 0, d_ff, d);
}

static quire_err describe_qwen2_moe(const config *c, model_desc *d) {
    TRY(qwen_describe_common(c, WINDOWED_EVEN, d));
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX, .shared_gate = true, .d_shared = d->layers[0].d_ff};
    return qwen_experts(c, d);
}

static quire_err describe_qwen3_moe(const config *c, model_desc *d) {
    TRY(qwen_describe_common(c, WINDOWED_ALL, d));
    d->attend.qk_norm = QK_NORM_HEAD;
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX, .renormalise = c->is_gguf};
    return qwen_experts(c, d);
}

/* Whether an expert's weights are transposed. Published files have them the other way
 * than files written by transformers; the shape tells. */
static bool are_transposed(const config *c, const model_desc *d) {
    const tensor_view *t = NULL;
    for (int32_t i = 0; i < model_file_n_tensors(c->f) && t == NULL; i++) {
        const tensor_view *one = model_file_tensor(c->f, i);
        t = str_ends(str_of(one->name), ".mlp.experts.gate_up_proj") ? one : NULL;
    }
    return t == NULL || t->n_dims != 3 || t->dims[2] != d->d_model || t->dims[1] == d->d_model;
}

static quire_err describe_qwen3_vl_moe(const config *c, model_desc *d) {
    TRY(describe_qwen3_moe(c, d));
    d->moe.renormalise = true; /* norm_topk_prob is ignored */
    d->moe.transposed = are_transposed(c, d);
    return QUIRE_OK;
}

/* The scores are the last row's; a GGUF file's are the logits of "yes" and "no". */
static const score_head qwen3_scores = {
    .kind = POOLING_LAST, .gguf_kind = POOLING_LAST, .out = "score", .gguf_softmax = true};

/* Qwen3-Next, Qwen3.5 and 3.6, and their mixtures of experts: three of four layers have
 * the gated delta rule instead of attention (Yang et al. 2024, arXiv:2412.06464), and
 * attention has a gate on its result. Norms have 1 + w, except that of the delta rule's
 * result. */

static const arch_names qwen_next_names = {
    .gguf = {[W_FFN_NORM] = "blk.%d.post_attention_norm"},
    .hf = {SHARED_NAMES("model.layers.%d.mlp.shared_expert"),
           [W_EXPERT_GATE_UP] = "model.layers.%d.mlp.experts.gate_up_proj",
           [W_EXPERTS_DOWN] = "model.layers.%d.mlp.experts.down_proj",
           [W_DELTA_CONV] = "model.layers.%d.linear_attn.conv1d"},
    .left_out = {"visual"},
};

/* Reads which layers have attention: the file's list, else the last of each
 * full_attention_interval. */
static quire_err qwen_next_layers(const config *c, const model_desc *d, state_layers *s) {
    int32_t period = 4, recurs[DESC_MAX_LAYERS];
    size_t n;
    bool are_typed;
    TRY(config_state_types(c, d, "linear_attention", s, &are_typed));
    TRY(config_period(c, "full_attention_interval", "full_attention_interval", &period));
    TRY(config_i32s(c, "attention.recurrent_layers", NULL, recurs, DESC_MAX_LAYERS, &n));
    if (n > 0 && n < (size_t)d->n_layers) {
        return config_bad(c, "attention.recurrent_layers", "must have one value for each layer");
    }
    for (int32_t i = 0; i < d->n_layers && !are_typed; i++) {
        s->recurs[i] = n > 0 ? recurs[i] != 0 : period > 0 && (i + 1) % period != 0;
        s->attends[i] = !s->recurs[i];
    }
    return QUIRE_OK;
}

/* Qwen3-Next's description without its feed-forward parts. *s: which layers have
 * attention, and the caches of the others. */
static quire_err qwen_next_common(const config *c, state_layers *s, model_desc *d) {
    assert(d != NULL);
    d->delta = (delta_desc){.kind = DELTA_GATED,
                            .n_heads = 32,
                            .n_key_heads = 16,
                            .d_key = 128,
                            .d_value = 128,
                            .n_taps = 4,
                            .gate = ACT_SILU};
    d->norm.add_one = true;
    d->attend.qk_norm = QK_NORM_HEAD;
    d->attend.gate = ATTEND_GATE_QUERIES;
    d->attend.gate_f = ACT_SIGMOID;
    TRY(config_decoder(c, &(decoder_shape){0}, d));
    TRY(config_i32(c, NULL, "mtp_num_hidden_layers", &d->n_next_token_layers));
    TRY(config_rotary(c, d, ROPE_HALVES, ROPE_HALVES, 0.25f));
    TRY(config_delta(c, d));
    TRY(qwen_next_layers(c, d, s));
    config_delta_caches(d, s);
    return QUIRE_OK;
}

/* Gives layers without attention their steps, and all layers their caches. */
static quire_err qwen_next_end(const config *c, const state_layers *s, model_desc *d) {
    for (int32_t i = 0; i < d->n_layers; i++) {
        if (s->recurs[i]) {
            d->layers[i].steps = d->layers[i].n_experts > 0 ? steps_delta_moe : steps_delta;
        }
    }
    return config_set_states(c, s, d);
}

static quire_err describe_qwen3_next(const config *c, model_desc *d) {
    state_layers s = {0};
    TRY(qwen_next_common(c, &s, d));
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX, .shared_gate = true, .d_shared = 512, .renormalise = true};
    TRY(qwen_experts(c, d));
    return qwen_next_end(c, &s, d);
}

static quire_err describe_qwen3_5(const config *c, model_desc *d) {
    state_layers s = {0};
    TRY(qwen_next_common(c, &s, d));
    d->delta.cyclic = c->is_gguf; /* GGUF files have value heads in another order */
    return qwen_next_end(c, &s, d);
}

static quire_err describe_qwen3_5_moe(const config *c, model_desc *d) {
    state_layers s = {0};
    TRY(qwen_next_common(c, &s, d));
    d->delta.cyclic = c->is_gguf;
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX, .shared_gate = true, .d_shared = 512, .renormalise = true};
    TRY(config_moe(c, d));
    d->moe.renormalise = true; /* norm_topk_prob is ignored */
    return qwen_next_end(c, &s, d);
}

/* Qwen4 (Qwen4Exp): Qwen3.5's mixtures with a gated residual of several streams,
 * attention to selected pools of keys, and embeddings of hashed n-grams that are added
 * before a layer. */

/* clang-format off */
static const layer_step steps_gated_delta[] = {
    GATHER(W_GATED_ATTN_NORM, A), DELTA(A, A), SCATTER(A),
    GATHER(W_GATED_FFN_NORM, A), MOE(A, B), SCATTER(B), END};
static const layer_step steps_gated_attend[] = {
    GATHER(W_GATED_ATTN_NORM, A), ATTEND(A, A), SCATTER(A),
    GATHER(W_GATED_FFN_NORM, A), MOE(A, B), SCATTER(B), END};
static const layer_step steps_ngrams_delta[] = {
    NGRAMS, GATHER(W_GATED_ATTN_NORM, A), DELTA(A, A), SCATTER(A),
    GATHER(W_GATED_FFN_NORM, A), MOE(A, B), SCATTER(B), END};
static const layer_step steps_ngrams_attend[] = {
    NGRAMS, GATHER(W_GATED_ATTN_NORM, A), ATTEND(A, A), SCATTER(A),
    GATHER(W_GATED_FFN_NORM, A), MOE(A, B), SCATTER(B), END};
/* clang-format on */

static const arch_names qwen4_names = {
    .gguf = {[W_INDEX_K] = "blk.%d.indexer.k_proj", [W_INDEX_Q] = "blk.%d.indexer.q_proj"},
    .hf = {SHARED_NAMES("model.layers.%d.mlp.shared_expert"),
           [W_EXPERT_GATE_UP] = "model.layers.%d.mlp.experts.gate_up_proj",
           [W_EXPERTS_DOWN] = "model.layers.%d.mlp.experts.down_proj",
           [W_INDEX_QK] = "model.layers.%d.self_attn.indexer.index_qk_proj",
           [W_INDEX_K_NORM] = "model.layers.%d.self_attn.indexer.k_layernorm",
           [W_INDEX_Q_NORM] = "model.layers.%d.self_attn.indexer.q_layernorm",
           [W_DELTA_CONV] = "model.layers.%d.linear_attn.conv1d"},
    .left_out = {"visual"},
};

enum { MOST_RANK = 1 << 20, MOST_BLOCK = 16 };

static quire_err qwen4_read_streams(const config *c, model_desc *d) {
    streams_desc *m = &d->streams;
    *m = (streams_desc){.kind = STREAMS_GATED, .n = 4, .rank = 320};
    TRY(config_i32(c, "hyper_connection.count", "hc_count", &m->n));
    TRY(config_i32(c, "hyper_connection.low_rank", "hc_lowrank", &m->rank));
    return m->n >= 1 && m->n <= DESC_MAX_STREAMS && m->rank >= 1 && m->rank <= MOST_RANK
               ? QUIRE_OK
               : config_bad(c, c->is_gguf ? "hyper_connection.count" : "hc_count",
                            "must be from 1 to 8, and the gates' rank over 0");
}

/* ---- key selection ---- */

/* Reads the tokens per pool. GGUF files have a list, with 0 for layers that do not select
 * keys. */
static quire_err qwen4_read_block(const config *c, int32_t *block) {
    int32_t list[DESC_MAX_LAYERS];
    size_t n;
    TRY(config_i32(c, NULL, "indexer_compress_ratio", block));
    TRY(config_i32s(c, "attention.compress_ratios", NULL, list, DESC_MAX_LAYERS, &n));
    for (size_t i = 0; i < n; i++) {
        if (list[i] > 0 && *block > 0 && list[i] != *block) {
            return config_bad(c, "attention.compress_ratios",
                              "must be the same in all layers that select keys");
        }
        *block = list[i] > 0 ? list[i] : *block;
    }
    return *block >= 2 && *block <= MOST_BLOCK
               ? QUIRE_OK
               : config_bad(c, c->is_gguf ? "attention.compress_ratios" : "indexer_compress_ratio",
                            "must be from 2 to 16");
}

static quire_err qwen4_read_index(const config *c, model_desc *d) {
    index_desc *x = &d->index;
    bool chooses[DESC_MAX_LAYERS];
    int32_t n_key_heads = 1;
    *x = (index_desc){.kind = CHOOSE_POOLS, .source = INDEX_OF_ROW, .rms_norms = true, .unweighed = true};
    TRY(config_need_i32(c, "attention.indexer.head_count", "indexer_n_heads", &x->n_heads));
    TRY(config_need_i32(c, "attention.indexer.key_length", "indexer_head_dim", &x->d_head));
    TRY(config_need_i32(c, "attention.indexer.top_k", "indexer_budget", &x->n_best));
    TRY(config_i32(c, NULL, "indexer_kv_heads", &n_key_heads));
    TRY(qwen4_read_block(c, &x->block));
    if (n_key_heads != 1 || x->n_best < x->block) {
        return config_bad(c, c->is_gguf ? "attention.indexer.top_k" : "indexer_budget",
                          "must be at least the number of keys in a block, and indexer_kv_heads must be 1");
    }
    x->n_best -= x->n_best % x->block;
    x->rope = 0;
    x->key_rope = d->n_ropes;
    if (d->n_ropes == DESC_MAX_ROPES) {
        return config_unsupported(c, "too many rotary tables");
    }
    d->ropes[d->n_ropes] = d->ropes[0];
    d->ropes[d->n_ropes++].behind = x->block - 1; /* a pool's key rotates like its first token's */
    for (int32_t i = 0; i < d->n_layers; i++) {
        chooses[i] = true; /* layers with attention */
    }
    return config_add_index(c, chooses, d);
}

/* ---- n-grams ---- */

/* Reads n numbers of a tensor of the n-grams, by its name in a checkpoint, or of a GGUF
 * file's key. */
static quire_err ngram_numbers(const config *c, const model_desc *d, const char *gguf, const char *hf,
                               size_t n, int64_t *out) {
    char name[WEIGHT_NAME_BYTES];
    size_t length = 0;
    if (c->is_gguf) {
        (void)snprintf(name, sizeof name, "%s.%s", c->arch, gguf);
        const quire_err e = model_file_i64s(c->f, name, out, n, &length);
        return e == QUIRE_OK && length == n ? e : config_bad(c, gguf, "must hold a number for each hash");
    }
    (void)snprintf(name, sizeof name, "%slayers.%d.ple.ple_embedding.%s", loader_root(c->f, NULL),
                   (int)d->ngrams.layer, hf);
    const tensor_view *t = model_file_find(c->f, name);
    if (t == NULL || t->type != DTYPE_I64 || t->n_dims != 1 || t->dims[0] != (int64_t)n ||
        t->n_bytes != n * sizeof *out) {
        return config_bad(c, name, "is missing, or does not have one I64 number for each hash");
    }
    memcpy(out, t->data, t->n_bytes);
    return QUIRE_OK;
}

/* Reads the rows of the table and of each of its parts. */
static quire_err ngram_read_rows(const config *c, ngram_desc *g) {
    int32_t n_parts = 1;
    int64_t n_rows = 0;
    TRY(config_i32(c, NULL, "split_ngram_parts", &n_parts));
    for (int32_t i = 0; i < n_parts; i++) {
        char name[WEIGHT_NAME_BYTES];
        (void)snprintf(name, sizeof name, "%slayers.%d.ple.ple_embedding.ngram_embedding.shard_%d.weight",
                       c->is_gguf ? "" : loader_root(c->f, NULL), (int)g->layer, (int)i);
        const tensor_view *t = model_file_find(c->f, c->is_gguf ? "per_layer_token_embd.weight" : name);
        const int64_t rows = t != NULL && t->n_dims == 2 ? t->dims[0] : 0;
        const bool fits = i == 0 || rows == g->rows_each || (rows < g->rows_each && i == n_parts - 1);
        if (rows < 1 || !fits || n_rows + rows > INT32_MAX) {
            return config_bad(c, name, "is missing, or does not have as many rows as the first part");
        }
        g->rows_each = i == 0 ? (int32_t)rows : g->rows_each;
        n_rows += rows;
    }
    g->n_rows = (int32_t)n_rows;
    return QUIRE_OK;
}

/* Reads the hashes: multipliers of tokens, and each head's part of the table. */
static quire_err ngram_read_hashes(const config *c, model_desc *d) {
    ngram_desc *g = &d->ngrams;
    const size_t n_heads = (size_t)(g->n - 1) * (size_t)g->n_heads;
    int64_t sizes[NGRAM_MAX_HEADS], offsets[NGRAM_MAX_HEADS];
    TRY(ngram_numbers(c, d, "ple.layer_multipliers", "layer_multipliers", (size_t)g->n, g->multipliers));
    TRY(ngram_numbers(c, d, "ple.head_vocab_sizes", "ngram_heads_vocab_sizes", n_heads, sizes));
    TRY(ngram_numbers(c, d, "ple.head_offsets", "ngram_heads_offsets", n_heads, offsets));
    for (size_t i = 0; i < n_heads; i++) {
        if (sizes[i] < 1 || sizes[i] > g->n_rows || offsets[i] < 0 || offsets[i] > g->n_rows - sizes[i]) {
            return config_bad(c, c->is_gguf ? "ple.head_offsets" : "ngram_heads_offsets",
                              "and the sizes must be within the table");
        }
        g->sizes[i] = (int32_t)sizes[i];
        g->offsets[i] = (int32_t)offsets[i];
    }
    return QUIRE_OK;
}

/* Reads the parameters of n-grams; *has: whether a layer has them. config.json counts
 * layers from 1. */
static quire_err ngram_read_shape(const config *c, model_desc *d, bool *has) {
    ngram_desc *g = &d->ngrams;
    int32_t layers[DESC_MAX_LAYERS], width = 0;
    size_t n;
    TRY(config_i32s(c, "ple.layers", "ple_layer_ids", layers, DESC_MAX_LAYERS, &n));
    *has = n > 0;
    if (n > 1) {
        return config_unsupported(c, "n-grams in more than one layer are not supported");
    }
    if (n == 0) {
        return QUIRE_OK;
    }
    *g = (ngram_desc){.n = 3, .n_heads = 8, .n_taps = 4, .end = d->n_eos > 0 ? d->eos[0] : 0};
    g->layer = c->is_gguf ? layers[0] : layers[0] - 1;
    TRY(config_i32(c, "ple.ngram_size", "ngram_size", &g->n));
    TRY(config_i32(c, "ple.heads_per_ngram", "heads_per_ngram", &g->n_heads));
    TRY(config_i32(c, "ple.conv_kernel", "ple_conv_kernel_size", &g->n_taps));
    TRY(config_i32(c, "ple.eos_token_id", NULL, &g->end));
    if (g->layer < 0 || g->layer >= d->n_layers || g->n < 2 || g->n > NGRAM_MAX || g->n_heads < 1 ||
        g->n_heads > NGRAM_MAX_HEADS / (g->n - 1) || g->n_taps < 2 || g->n_taps > CONV_MAX_TAPS ||
        (g->n_taps - 1) * g->n >= CONV_MAX_TAPS || g->end >= d->n_vocab) {
        return config_bad(c, c->is_gguf ? "ple.ngram_size" : "ngram_size",
                          "and the other n-gram settings are not supported by this build");
    }
    width = d->d_model;
    TRY(config_i32(c, NULL, "ple_embed_dim", &width));
    g->d_head = width / ((g->n - 1) * g->n_heads);
    TRY(config_i32(c, "embedding_length_per_layer_input", NULL, &g->d_head));
    return g->d_head >= 1 && g->d_head <= MOST_RANK
               ? QUIRE_OK
               : config_bad(c, c->is_gguf ? "embedding_length_per_layer_input" : "ple_embed_dim",
                            "is below 1 or too large");
}

/* Adds caches to the layer with n-grams: for the last tokens, and for its convolution. */
static quire_err qwen4_read_ngrams(const config *c, model_desc *d) {
    const ngram_desc *g = &d->ngrams;
    bool has;
    TRY(ngram_read_shape(c, d, &has));
    if (!has) {
        return QUIRE_OK;
    }
    TRY(ngram_read_rows(c, &d->ngrams));
    TRY(ngram_read_hashes(c, d));
    if (d->n_caches + 2 > DESC_MAX_CACHES || d->d_model > INT32_MAX / DESC_MAX_STREAMS) {
        return config_unsupported(c, "too many layers, or too wide ones");
    }
    const cache_desc tokens = ngram_cache(g->n),
                     conv = conv_cache(conv_units(d->streams.n * d->d_model), (g->n_taps - 1) * g->n + 1);
    layer_desc *l = &d->layers[g->layer];
    l->caches[CACHE_NGRAMS] = desc_add_cache(d, &tokens);
    l->caches[CACHE_NGRAM_CONV] = desc_add_cache(d, &conv);
    l->steps = l->steps == steps_gated_delta ? steps_ngrams_delta : steps_ngrams_attend;
    return QUIRE_OK;
}

/* ---- the model ---- */

/* Reads the gate's function; checkpoints leave it out if it is silu. */
static quire_err qwen4_read_gate(const config *c, model_desc *d) {
    str gate = {0};
    if (!config_is_null(c, "output_gate_type")) {
        TRY(config_str(c, NULL, "output_gate_type", &gate));
    }
    if (gate.n > 0 && !str_is(gate, "sigmoid") && !str_is(gate, "silu")) {
        return config_bad(c, "output_gate_type", "must be sigmoid or silu");
    }
    d->delta.gate = c->is_gguf || str_is(gate, "sigmoid") ? ACT_SIGMOID : ACT_SILU;
    return QUIRE_OK;
}

static quire_err describe_qwen4(const config *c, model_desc *d) {
    state_layers s = {.may_choose = true};
    TRY(qwen_next_common(c, &s, d));
    d->delta.cyclic = c->is_gguf;
    d->head.bare = true; /* the step that joins the streams includes the norm */
    TRY(qwen4_read_gate(c, d));
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX, .shared_gate = true, .d_shared = 512, .renormalise = true};
    TRY(config_moe(c, d));
    if (d->layers[0].n_experts < 1) {
        return config_bad(c, c->is_gguf ? "expert_count" : "num_experts", "must be at least 1");
    }
    TRY(qwen4_read_streams(c, d));
    for (int32_t i = 0; i < d->n_layers; i++) {
        d->layers[i].steps = s.recurs[i] ? steps_gated_delta : steps_gated_attend;
    }
    TRY(config_set_states(c, &s, d));
    TRY(qwen4_read_index(c, d));
    return qwen4_read_ngrams(c, d);
}

const arch qwen_archs[] = {
    {{"qwen2"}, {"Qwen2ForCausalLM"}, .describe = describe_qwen2},
    {{"qwen2vl"},
     {"Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration"},
     &qwen_vl_names,
     .describe = describe_qwen2},
    {{"qwen2moe"}, {"Qwen2MoeForCausalLM"}, &qwen2_moe_names, .describe = describe_qwen2_moe},
    {{"qwen3"},
     {"Qwen3ForCausalLM", "Qwen3Model", "Qwen3ForSequenceClassification"},
     .describe = describe_qwen3,
     .scores = &qwen3_scores},
    {{"qwen3vl"}, {"Qwen3VLForConditionalGeneration"}, &qwen_vl_names, .describe = describe_qwen3},
    {{"qwen3vlmoe"},
     {"Qwen3VLMoeForConditionalGeneration"},
     &qwen3_vl_moe_names,
     .describe = describe_qwen3_vl_moe},
    {{"qwen3moe"}, {"Qwen3MoeForCausalLM"}, .describe = describe_qwen3_moe},
    {{"qwen3next"}, {"Qwen3NextForCausalLM"}, &qwen_next_names, .describe = describe_qwen3_next},
    {{"qwen35"},
     {"Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"},
     &qwen_next_names,
     .describe = describe_qwen3_5},
    {{"qwen35moe"},
     {"Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"},
     &qwen_next_names,
     .describe = describe_qwen3_5_moe},
    {{"qwen4exp"},
     {"Qwen4ExpForConditionalGeneration", "Qwen4ExpForCausalLM"},
     &qwen4_names,
     .describe = describe_qwen4},
    {.describe = NULL},
};
