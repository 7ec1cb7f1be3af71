#include "core/model_desc.h"

#include <math.h>
#include <stddef.h>

#define MAX_HEADS     4096
#define MAX_WIDTH     (1 << 17)
#define MAX_FF        (1 << 20)
#define MAX_VOCAB     (1 << 22)
#define MAX_POSITIONS (1 << 30)

static quire_err check_count(const char *name, int32_t v, int32_t max, quire_error *err) {
    if (v < 1 || v > max) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "%s is %d; this build computes 1 to %d", name, v, max);
    }
    return QUIRE_OK;
}

static quire_err check_positive(const char *name, float v, quire_error *err) {
    if (!isfinite(v) || v <= 0.0f) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s is %g; it must be a number over 0", name, (double)v);
    }
    return QUIRE_OK;
}

static quire_err check_shape(const model_desc *d, quire_error *err) {
    TRY(check_count("the number of layers", d->n_layers, DESC_MAX_LAYERS, err));
    TRY(check_count("the hidden size", d->d_model, MAX_WIDTH, err));
    TRY(check_count("the number of attention heads", d->n_heads, MAX_HEADS, err));
    TRY(check_count("the number of key-value heads", d->n_kv_heads, MAX_HEADS, err));
    TRY(check_count("the head size", d->d_head, DESC_MAX_HEAD, err));
    TRY(check_count("the feed-forward size", d->d_ff, MAX_FF, err));
    TRY(check_count("the vocabulary size", d->n_vocab, MAX_VOCAB, err));
    TRY(check_count("the number of positions", d->max_positions, MAX_POSITIONS, err));
    if (d->n_heads % d->n_kv_heads != 0) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%d attention heads cannot share %d key-value heads evenly", d->n_heads, d->n_kv_heads);
    }
    if (d->d_head % 2 != 0) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "the head size is %d; it must be even", d->d_head);
    }
    return QUIRE_OK;
}

static quire_err check_rope_scaling(const rope_desc *r, quire_error *err) {
    bool scaled = r->kind == ROPE_LINEAR || r->kind == ROPE_NTK || r->kind == ROPE_LLAMA3 || r->kind == ROPE_YARN;
    if (scaled) {
        TRY(check_positive("the rotary scaling factor", r->factor, err));
    }
    if (r->kind == ROPE_LLAMA3 || r->kind == ROPE_YARN) {
        TRY(check_count("the rotary scaling's original number of positions", r->original_positions, MAX_POSITIONS, err));
    }
    if (r->kind == ROPE_LLAMA3) {
        TRY(check_positive("low_freq_factor", r->low_freq_factor, err));
        TRY(check_positive("high_freq_factor", r->high_freq_factor, err));
        if (r->high_freq_factor <= r->low_freq_factor) {
            return err_set(err, QUIRE_BAD_FILE, -1, "high_freq_factor is %g; it must be over low_freq_factor, %g",
                           (double)r->high_freq_factor, (double)r->low_freq_factor);
        }
    }
    if (r->kind == ROPE_YARN) {
        TRY(check_positive("beta_fast", r->beta_fast, err));
        TRY(check_positive("beta_slow", r->beta_slow, err));
        if (!isfinite(r->attention_factor) || r->attention_factor < 0.0f) {
            return err_set(err, QUIRE_BAD_FILE, -1, "the rotary attention factor is %g; it must be 0 or more", (double)r->attention_factor);
        }
    }
    return QUIRE_OK;
}

static quire_err check_rope(const model_desc *d, quire_error *err) {
    const rope_desc *r = &d->rope;
    if ((unsigned)r->kind > ROPE_YARN || (unsigned)r->pairs > ROPE_NEIGHBOURS) {
        return err_set(err, QUIRE_INVALID, -1, "unknown kind of rotary embedding");
    }
    if (r->kind == ROPE_NONE) {
        return QUIRE_OK;
    }
    if (r->n_dims < 2 || r->n_dims > d->d_head || r->n_dims % 2 != 0) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%d rotary dimensions; an even number from 2 to the head size, %d, is possible", r->n_dims,
                       d->d_head);
    }
    TRY(check_positive("the rotary base", r->theta, err));
    TRY(check_rope_scaling(r, err));
    for (int32_t i = 0; r->freq_factors != NULL && i < r->n_dims / 2; i++) {
        TRY(check_positive("a rotary frequency factor", r->freq_factors[i], err));
    }
    return QUIRE_OK;
}

static quire_err check_layers(const model_desc *d, quire_error *err) {
    for (int32_t i = 0; d->layer_kinds != NULL && i < d->n_layers; i++) {
        if ((unsigned)d->layer_kinds[i] > LAYER_STATE) {
            return err_set(err, QUIRE_INVALID, -1, "layer %d is of an unknown kind", i);
        }
        if (d->layer_kinds[i] == LAYER_WINDOW && d->window < 1) {
            return err_set(err, QUIRE_BAD_FILE, -1, "layer %d attends to a window of %d tokens; it must be 1 or more", i, d->window);
        }
        if (d->layer_kinds[i] == LAYER_LATENT) {
            TRY(check_count("the latent size", d->d_latent, DESC_MAX_LATENT, err));
        }
        if (d->layer_kinds[i] == LAYER_STATE && (d->state_bytes < 1 || d->state_bytes > DESC_MAX_STATE_BYTES)) {
            return err_set(err, QUIRE_UNSUPPORTED, -1, "layer %d keeps a state of %lld bytes; this build keeps 1 to %lld", i,
                           (long long)d->state_bytes, (long long)DESC_MAX_STATE_BYTES);
        }
    }
    return QUIRE_OK;
}

static quire_err check_tokens(const model_desc *d, quire_error *err) {
    if (d->n_eos < 0 || d->n_eos > DESC_MAX_EOS) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "%d end tokens; this build keeps up to %d", d->n_eos, DESC_MAX_EOS);
    }
    for (int32_t i = 0; i < d->n_eos; i++) {
        if (d->eos[i] < 0 || d->eos[i] >= d->n_vocab) {
            return err_set(err, QUIRE_BAD_FILE, -1, "end token %d lies outside the vocabulary of %d", d->eos[i], d->n_vocab);
        }
    }
    if (d->bos < -1 || d->bos >= d->n_vocab) {
        return err_set(err, QUIRE_BAD_FILE, -1, "begin token %d lies outside the vocabulary of %d", d->bos, d->n_vocab);
    }
    return QUIRE_OK;
}

quire_err desc_check(const model_desc *d, quire_error *err) {
    TRY(check_shape(d, err));
    if (!isfinite(d->norm_eps) || d->norm_eps < 0.0f || d->norm_eps >= 1.0f) {
        return err_set(err, QUIRE_BAD_FILE, -1, "the norm's epsilon is %g; it must be at least 0 and under 1", (double)d->norm_eps);
    }
    TRY(check_positive("the attention scale", d->attention_scale, err));
    if ((unsigned)d->activation >= N_ACTIVATIONS) {
        return err_set(err, QUIRE_INVALID, -1, "unknown activation function");
    }
    TRY(check_rope(d, err));
    TRY(check_layers(d, err));
    return check_tokens(d, err);
}
