/* Latent attention: its widths, its rotary table, and what scores are multiplied by. */
#include <assert.h>
#include <math.h>

#include "model/config.h"
#include "model/steps.h"

/* The widths of heads: keys that older files have mean these, and newer ones the latent. */
static quire_err read_gguf_widths(const config *c, model_desc *d) {
    latent_desc *m = &d->latent;
    int32_t d_key = 0, n_heads = d->layers[0].n_heads, rows = config_tensor_rows(c, d, "attn_kv_b");
    TRY(config_i32(c, "attention.key_length", NULL, &d_key));
    TRY(config_i32(c, "attention.key_length_mla", NULL, &d_key));
    TRY(config_i32(c, "attention.value_length", NULL, &m->d_value));
    TRY(config_i32(c, "attention.value_length_mla", NULL, &m->d_value));
    m->d_nope = d_key - m->d_rope;
    m->d_value = rows > 0 && n_heads > 0 ? rows / n_heads - m->d_nope : m->d_value;
    return QUIRE_OK;
}

quire_err config_latent(const config *c, model_desc *d) {
    latent_desc *m = &d->latent;
    m->eps = m->eps > 0.0f ? m->eps : 1e-6f; /* whatever the norms of rows have */
    m->q_rank = c->is_gguf ? 0 : m->q_rank;
    TRY(config_i32_or_none(c, "attention.q_lora_rank", "q_lora_rank", &m->q_rank));
    TRY(config_i32(c, "attention.kv_lora_rank", "kv_lora_rank", &m->rank));
    TRY(config_i32(c, "rope.dimension_count", "qk_rope_head_dim", &m->d_rope));
    TRY(config_i32(c, NULL, "qk_nope_head_dim", &m->d_nope));
    TRY(config_i32(c, NULL, "v_head_dim", &m->d_value));
    if (c->is_gguf) {
        TRY(read_gguf_widths(c, d));
    }
    const int32_t least_rope = m->rotary_folds ? 0 : 1;
    if (m->rank < 1 || m->rank > DESC_MAX_LATENT || m->d_rope < least_rope || m->d_rope > DESC_MAX_HEAD ||
        m->d_nope < 1 || m->d_nope > DESC_MAX_HEAD || m->d_value < 1 || m->d_value > DESC_MAX_HEAD) {
        return err_set(c->err, QUIRE_UNSUPPORTED, -1,
                       "%s: a latent of rank %d for heads of %d + %d elements and values of %d; this build "
                       "computes ranks to %d and heads to %d",
                       model_file_path(c->f), (int)m->rank, (int)m->d_nope, (int)m->d_rope, (int)m->d_value,
                       DESC_MAX_LATENT, DESC_MAX_HEAD);
    }
    if (m->rank + m->d_rope > DESC_MAX_LATENT) {
        return config_bad(c, "kv_lora_rank", "and the rotary part beside it are too wide");
    }
    return QUIRE_OK;
}

void config_set_latent(model_desc *d, int32_t layer) {
    assert(layer >= 0 && layer < d->n_layers);
    layer_desc *l = &d->layers[layer];
    d->caches[l->caches[CACHE_ATTENTION]] =
        (cache_desc){.kind = LAYER_LATENT, .d_latent = d->latent.rank + desc_rotary_part(d, l)};
    l->steps = l->n_experts > 0 ? steps_latent_moe : steps_latent;
}

/* What YaRN multiplies queries and keys by, of all their elements: mscale_all_dim's growth. */
static quire_err read_growth(const config *c, const rope_desc *r, float *growth) {
    float all = 0.0f;
    TRY(config_f32(c, "rope.scaling.yarn_log_multiplier",
                   "rope_parameters.mscale_all_dim|rope_scaling.mscale_all_dim", &all));
    all = c->is_gguf ? 10.0f * all : all; /* where the 0.1 of the formula is in the number */
    *growth =
        r->kind > ROPE_PLAIN && all != 0.0f && r->factor > 1.0f ? 0.1f * all * logf(r->factor) + 1.0f : 1.0f;
    return *growth > 0.0f ? QUIRE_OK : config_bad(c, "mscale_all_dim", "must be 0 or more");
}

quire_err config_latent_rotary(const config *c, model_desc *d, rope_pairs hf, rope_pairs gguf) {
    assert(c != NULL);
    const latent_desc *m = &d->latent;
    rope_desc r = config_plain_rope(c, d);
    float growth, part = 1.0f;
    r.pairs = c->is_gguf ? gguf : hf;
    config_set_rows(c, hf, gguf);
    r.n_dims = m->d_rope;
    TRY(config_rope(c, NULL, d, &r));
    r.n_dims = m->d_rope; /* a part of the whole head, which partial_rotary_factor may count */
    if (c->is_gguf && r.kind == ROPE_YARN) {
        TRY(config_f32(c, "rope.scaling.attn_factor", NULL, &part));
        r.attention_factor = part > 0.0f ? part : 1.0f;
    }
    TRY(read_growth(c, &r, &growth));
    d->attention_scale = growth * growth / sqrtf((float)(m->d_nope + m->d_rope));
    return config_add_rope(c, d, &r);
}

quire_err config_temperature(const config *c, bool needed, model_desc *d) {
    const char *beta = "rope_parameters.llama_4_scaling_beta|rope_scaling.llama_4_scaling_beta";
    const char *length =
        "rope_parameters.original_max_position_embeddings|rope_scaling.original_max_position_embeddings";
    attend_desc *a = &d->attend;
    TRY(config_f32(c, "attention.temperature_scale", beta, &a->temperature));
    TRY(config_i32(c, "rope.scaling.original_context_length", length, &a->temperature_length));
    if (needed && !config_has(c, "attention.temperature_scale", beta)) {
        return config_bad(c, "rope_parameters.llama_4_scaling_beta", "is missing from the metadata");
    }
    if (a->temperature != 0.0f && a->temperature_length < 1) {
        return c->is_gguf ? config_bad(c, "attention.temperature_scale",
                                       "needs rope.scaling.original_context_length, at least 1")
                          : config_bad(c, "llama_4_scaling_beta",
                                       "needs original_max_position_embeddings beside it, at least 1");
    }
    a->temperature_on_all = a->temperature != 0.0f;
    return QUIRE_OK;
}

quire_err config_latents(const config *c, const latent_desc *usual, rope_pairs hf, rope_pairs gguf,
                         model_desc *d) {
    decoder_shape s = {.own_heads = true};
    bool neighbours = hf == ROPE_NEIGHBOURS;
    TRY(config_decoder(c, &s, d));
    if (!c->is_gguf) {
        d->latent = *usual;
        d->latent.d_value =
            d->latent.d_value > 0 ? d->latent.d_value : d->d_model / (s.n_heads > 0 ? s.n_heads : 1);
    }
    TRY(config_latent(c, d));
    for (int32_t i = 0; i < d->n_layers; i++) {
        config_set_latent(d, i);
    }
    if (neighbours) {
        TRY(config_bool(c, NULL, "rope_interleave", &neighbours));
    }
    return config_latent_rotary(c, d, neighbours ? ROPE_NEIGHBOURS : ROPE_HALVES, gguf);
}

quire_err config_index_choosers(const config *c, const model_desc *d, bool *chooses) {
    int32_t listed[DESC_MAX_LAYERS];
    size_t n;
    TRY(config_i32s(c, "attention.indexer.types", NULL, listed, DESC_MAX_LAYERS, &n));
    for (int32_t i = 0; i < d->n_layers; i++) {
        str type;
        TRY(config_str_at(c, "indexer_types", (size_t)i, &type));
        if (type.n > 0 && !str_is(type, "full") && !str_is(type, "shared")) {
            return config_bad(c, "indexer_types", "may name full and shared only");
        }
        chooses[i] = type.n > 0 ? str_is(type, "full") : (size_t)i >= n || listed[i] != 0;
    }
    for (int32_t i = 0; i < d->n_layers; i++) { /* those that do not attend do not count */
        if (d->layers[i].caches[CACHE_ATTENTION] >= 0) {
            return chooses[i] ? QUIRE_OK
                              : config_bad(c, "indexer_types", "must begin with a layer that chooses");
        }
    }
    return QUIRE_OK;
}

/* How many tokens are a pool, of which as many are chosen as hold the tokens to read. */
static quire_err read_pools(const config *c, index_desc *x) {
    bool reads_tail = true;
    TRY(config_i32(c, "attention.indexer.kpool", "index_kpool", &x->block));
    TRY(config_bool(c, "attention.indexer.kpool_select_tail", "index_kpool_always_select_tail", &reads_tail));
    if (x->block < 2 || x->block > CONV_MAX_TAPS || x->n_best < x->block) {
        return config_bad(c, c->is_gguf ? "attention.indexer.kpool" : "index_kpool",
                          "must be from 2 to 16, and no more than the keys that a row reads");
    }
    x->n_best -= x->n_best % x->block;
    return reads_tail ? QUIRE_OK
                      : config_unsupported(c, "index_kpool_always_select_tail false is not supported: the "
                                              "first rows would read nothing");
}

quire_err config_index(const config *c, index_desc usual, rope_pairs pairs, model_desc *d) {
    assert(c != NULL);
    bool chooses[DESC_MAX_LAYERS];
    index_desc *x = &d->index;
    *x = usual;
    if (c->is_gguf) {
        x->n_heads = x->d_head = x->n_best = x->block = 0;
    }
    TRY(config_i32(c, "attention.indexer.head_count", "index_n_heads", &x->n_heads));
    TRY(config_i32(c, "attention.indexer.key_length", "index_head_dim", &x->d_head));
    TRY(config_i32(c, "attention.indexer.top_k", "index_topk", &x->n_best));
    if (x->kind == CHOOSE_POOLS) {
        TRY(read_pools(c, x));
    }
    if ((d->latent.q_rank == 0 && x->source == INDEX_OF_LATENT) || x->n_best < 1 || x->n_heads < 1 ||
        x->d_head < d->latent.d_rope || x->d_head > DESC_MAX_HEAD) {
        return config_bad(
            c, c->is_gguf ? "attention.indexer" : "index_topk",
            "and the index heads must be over 0, heads as wide as the rotary part at least, and "
            "queries of a latent");
    }
    TRY(config_index_choosers(c, d, chooses));
    x->rope = x->key_rope = NO_ROPE;
    if (d->n_ropes == DESC_MAX_ROPES) {
        return config_unsupported(c, "too many rotary tables");
    }
    if (d->n_ropes > 0) {
        x->rope = x->key_rope = d->n_ropes;
        d->ropes[d->n_ropes] = d->ropes[0];
        d->ropes[d->n_ropes++].pairs = pairs;
    }
    return config_add_index(c, chooses, d);
}

quire_err config_add_index(const config *c, const bool *chooses, model_desc *d) {
    const index_desc *x = &d->index;
    const cache_desc keys = {.kind = LAYER_LATENT, .d_latent = x->d_head},
                     pools = x->gated_pools ? pool_cache(x->d_head, x->block)
                                            : conv_cache(conv_units(x->d_head), x->block);
    for (int32_t i = 0; i < d->n_layers; i++) {
        layer_desc *l = &d->layers[i];
        if (d->n_caches + 2 > DESC_MAX_CACHES) {
            return config_unsupported(c, "too many layers with an index");
        }
        const bool is_chooser = chooses[i] && l->caches[CACHE_ATTENTION] >= 0;
        l->caches[CACHE_SECOND] = is_chooser ? desc_add_cache(d, &keys) : NO_CACHE;
        if (is_chooser && x->kind == CHOOSE_POOLS) {
            l->caches[CACHE_CONV] = desc_add_cache(d, &pools);
        }
    }
    return QUIRE_OK;
}
