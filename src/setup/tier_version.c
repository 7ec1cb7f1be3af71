/* The version of pages in tiers: identifies everything, besides the tokens, on which the
 * bytes of a page depend. */
#include "setup/engine_parts.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "core/kv_layout.h"
#include "kv/namespace.h"
#include "model/steps.h"

static uint64_t hash_text(uint64_t h, const char *text) {
    return kv_hash_root(h, text, strlen(text));
}

/* Hash of the overrides, if any, and of every tensor: name, type, shape, bytes. */
static uint64_t hash_weights(const model_file *f) {
    str set = model_file_overrides(f);
    uint64_t h = set.n > 0 ? kv_hash_root(0, set.p, set.n) : 0;
    for (int32_t i = 0; i < model_file_n_tensors(f); i++) {
        const tensor_view *t = model_file_tensor(f, i);
        h = hash_text(h, t->name);
        h = kv_hash_root(h + (uint64_t)t->type, t->dims, (size_t)t->n_dims * sizeof *t->dims);
        h = kv_hash_root(h, t->data, t->n_bytes);
    }
    return h;
}

static uint64_t hash_rope(uint64_t h, const rope_desc *r) {
    char text[512];
    (void)snprintf(text, sizeof text, "rope %d %d %d %a %a %a %a %a %a %a %d %d %d %d", (int)r->kind,
                   (int)r->pairs, r->n_dims, (double)r->theta, (double)r->factor, (double)r->low_freq_factor,
                   (double)r->high_freq_factor, (double)r->beta_fast, (double)r->beta_slow,
                   (double)r->attention_factor, r->truncate, r->backwards, r->original_positions,
                   r->has_factors);
    h = kv_hash_root(hash_text(h, text), r->factors, sizeof r->factors);
    return kv_hash_root(h, r->long_factors, sizeof r->long_factors);
}

static uint64_t hash_layer(uint64_t h, const layer_desc *l) {
    char text[512], steps[128];
    steps_text(l->steps, steps, sizeof steps);
    const residual_mix *m = l->mixes;
    (void)snprintf(
        text, sizeof text, "layer %s %d %d %d %d %d %d %d %d %d %d %a %a %a %a %a %a %a %a %a %a %a", steps,
        l->caches[0], l->caches[1], l->caches[2], l->caches[3], l->rope, l->n_heads, l->window, l->chunk,
        l->d_ff, l->n_experts, (double)l->limit, (double)l->dense_limit, (double)l->cutoff,
        (double)l->xielu.positive, (double)l->xielu.negative, (double)l->xielu.linear, (double)l->xielu.eps,
        (double)m[0].keep, (double)m[0].add, (double)m[1].keep, (double)m[1].add);
    return hash_text(h, text);
}

static uint64_t hash_cache(uint64_t h, const cache_desc *c) {
    char text[256];
    (void)snprintf(text, sizeof text, "cache %d %d %d %d %d %d %d %lld", (int)c->kind, c->n_kv_heads,
                   c->d_key, c->d_value, c->window, c->d_latent, c->n_units, (long long)c->unit_bytes);
    return hash_text(h, text);
}

static uint64_t hash_attend(uint64_t h, const attend_desc *a) {
    char text[512];
    (void)snprintf(
        text, sizeof text, "attend %d %d %d %d %d %d %d %a %d %a %d %d %a %a %a %a %a %a %d %d %d %d %a",
        (int)a->qk_norm, (int)a->qk_norm_type, a->norm_after_rope, a->v_norm, a->values_are_keys, a->sinks,
        a->sinks_in_windows, (double)a->value_scale, a->scale_by_layer, (double)a->temperature,
        a->temperature_length, a->temperature_on_all, (double)a->cap, (double)a->clip, (double)a->alibi,
        (double)a->alibi_scale, (double)a->in_scale, (double)a->out_scale, a->alibi_bf16, (int)a->gate,
        (int)a->gate_f, a->gate_bias, (double)a->temperature_power);
    return hash_text(h, text);
}

static uint64_t hash_latent(uint64_t h, const latent_desc *m) {
    char text[256];
    (void)snprintf(text, sizeof text, "latent %d %d %d %d %d %a %a %a", m->q_rank, m->rank, m->d_nope,
                   m->d_rope, m->d_value, (double)m->eps, (double)m->q_scale, (double)m->latent_scale);
    return hash_text(h, text);
}

static uint64_t hash_index(uint64_t h, const index_desc *x) {
    char text[128];
    (void)snprintf(text, sizeof text, "index %d %d %d %d", x->n_best, x->n_heads, x->d_head, x->rope);
    return hash_text(h, text);
}

static uint64_t hash_embed(uint64_t h, const embed_desc *e) {
    char text[256];
    (void)snprintf(text, sizeof text, "embed %a %d %d %d %d %d %d %d %d", (double)e->scale, e->width,
                   e->normed, e->positions, e->position_offset, e->skips_padding, e->n_token_types,
                   e->d_layer_input, e->n_input_rows);
    return hash_text(h, text);
}

static uint64_t hash_moe(uint64_t h, const moe_desc *m) {
    char text[256];
    (void)snprintf(text, sizeof text, "moe %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %a %a %a %a %d",
                   m->n_used, m->n_identity, m->d_expert, m->d_shared, m->d_latent, m->n_groups,
                   m->n_groups_used, (int)m->score, m->group_by_best_two, m->closed_is_zero,
                   m->correction_bias, m->renormalise, m->scale_inputs, m->shared_gate, m->router_norm,
                   m->choose_by_logits, m->shared_mean, (double)m->scale, (double)m->logit_cap,
                   (double)m->jitter_eps, (double)m->limit, (int)m->activation);
    return hash_text(h, text);
}

static uint64_t hash_recurrences(uint64_t h, const conv_desc *c, const delta_desc *r) {
    char text[256];
    (void)snprintf(text, sizeof text, "conv %d delta %d %d %d %d %d %d %d %d %a %a %d %a", c->n_taps,
                   (int)r->kind, r->n_heads, r->n_key_heads, r->d_key, r->d_value, r->cyclic, r->n_taps,
                   r->d_low, (double)r->beta_scale, (double)r->lower, (int)r->gate, (double)r->norm_eps);
    return hash_text(h, text);
}

static uint64_t hash_mamba(uint64_t h, const mamba_desc *m) {
    char text[256];
    (void)snprintf(text, sizeof text, "mamba %d %d %d %d %d %d %d %d %a %d %d %a %a %a %a", m->n_inner,
                   m->n_heads, m->n_groups, m->n_states, m->n_taps, m->step_rank, (int)m->activation,
                   (int)m->inner_norms, (double)m->inner_eps, m->n_norm_groups, m->norm_first,
                   (double)m->step_least, (double)m->step_most, (double)m->in_scale, (double)m->out_scale);
    return kv_hash_root(hash_text(h, text), m->scales, sizeof m->scales);
}

static uint64_t hash_shared_and_lru(uint64_t h, const shared_desc *s, const lru_desc *l) {
    char text[128];
    (void)snprintf(text, sizeof text, "shared %d %d %d lru %d %d %d", s->n_blocks, s->adapter_rank,
                   s->has_attention_adapters, l->width, l->n_blocks, l->n_taps);
    return hash_text(h, text);
}

/* Hash of the numbers of a description that affect a layer's results. */
static uint64_t hash_description(const model_desc *d) {
    char text[512];
    (void)snprintf(text, sizeof text, "%s %d %d %d %a %a %d %d %d %d %d %d %d %d %d %a %d %a %a %a %a %a",
                   d->architecture, d->n_layers, d->d_model, d->n_vocab, (double)d->norm_eps,
                   (double)d->attention_scale, (int)d->activation, d->tied_embeddings, (int)d->norm.kind,
                   d->norm.add_one, d->norm.bare, d->norm.plain_last, d->norm.inner, d->ungated, d->two_sided,
                   (double)d->norm.post_eps, d->residual_by_depth, (double)d->residual_scale,
                   (double)d->head.scale, (double)d->head.cap, (double)d->gate_scale, (double)d->down_scale);
    uint64_t h = hash_moe(hash_embed(hash_attend(hash_text(0, text), &d->attend), &d->embed), &d->moe);
    (void)snprintf(text, sizeof text, "streams %d %d %d %d", d->streams.n, d->streams.active,
                   d->streams.d_laurel, d->streams.scales_output);
    h = hash_index(hash_latent(hash_text(h, text), &d->latent), &d->index);
    h = hash_recurrences(h, &d->conv, &d->delta);
    h = hash_shared_and_lru(hash_mamba(h, &d->mamba), &d->shared, &d->lru);
    (void)snprintf(text, sizeof text, "norms %d %d %d %d %a %a", d->norm.post_weighed, d->attend.result_norm,
                   d->moe.latent_norm, d->moe.result_norm, (double)d->moe.router_scale,
                   (double)d->blend_temperature);
    h = hash_text(h, text);
    for (int32_t i = 0; i < d->n_ropes; i++) {
        h = hash_rope(h, &d->ropes[i]);
    }
    for (int32_t i = 0; i < d->n_layers; i++) {
        h = hash_layer(h, &d->layers[i]);
    }
    for (int32_t i = 0; i < d->n_caches; i++) {
        h = hash_cache(h, &d->caches[i]);
    }
    return h;
}

void tier_version(const model_file *f, const model_desc *d, dtype quantised_to, const backend *b,
                  const kv_layout *kv, int32_t max_positions, char out[KV_VERSION_BYTES + 1]) {
    assert(b != NULL);
    char isa[64] = "any";
    locale_t before = c_locale_enter(); /* gives numbers in hashed texts a decimal point */
    uint64_t description = hash_description(d);
    c_locale_leave(before);
    if (b->compute == COMPUTE_BF16) { /* the only mode in which the instruction set changes bits */
        (void)snprintf(isa, sizeof isa, "%s", b->ops->describe(b));
        char *threads = strchr(isa, ','); /* "cpu, avx2, 2 threads bound to 0,2": the threads do not matter */
        threads = threads ? strchr(threads + 1, ',') : NULL;
        if (threads) {
            *threads = 0;
        }
    }
    int32_t length = desc_scales_by_length(d) ? max_positions : 0;
    (void)snprintf(
        out, KV_VERSION_BYTES + 1,
        "quire %s, model %016llx %016llx%s%s, backend %s, compute %s, kv %s%s in pages %d, isa %s, length %d",
        QUIRE_VERSION, (unsigned long long)hash_weights(f), (unsigned long long)description,
        quantised_to != DTYPE_F32 ? " as " : "", quantised_to != DTYPE_F32 ? dtype_name(quantised_to) : "",
        b->ops->name, compute_name(b->compute), kv->type_name,
        kv->types.state != DTYPE_F32 ? " with states in bf16" : "", KV_LAYOUT_VERSION, isa, (int)length);
}
