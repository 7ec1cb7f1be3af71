/* The version of pages in tiers: everything besides the tokens on which the bytes of a page depend. */
#include "setup/engine_parts.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "core/kv_layout.h"
#include "kv/hash.h"

static uint64_t hash_text(uint64_t h, const char *text) {
    return kv_hash_root(h, text, strlen(text));
}

/* Hashes every tensor: name, type, shape, bytes. */
static uint64_t hash_weights(const model_file *f) {
    uint64_t h = 0;
    for (int32_t i = 0; i < model_file_n_tensors(f); i++) {
        const tensor_view *t = model_file_tensor(f, i);
        h = hash_text(h, t->name);
        h = kv_hash_root(h + (uint64_t)t->type, t->dims, (size_t)t->n_dims * sizeof *t->dims);
        h = kv_hash_root(h, t->data, t->n_bytes);
    }
    return h;
}

/* Hashes the numbers of a description that affect a layer's results. freq_factors is a tensor of the file. */
static uint64_t hash_description(const model_desc *d) {
    char text[1024];
    const rope_desc *r = &d->rope;
    (void)snprintf(text, sizeof text, "%s %d %d %d %d %d %d %d %a %a %d %d %d %d %lld | %d %d %d %a %a %a %a %a %a %a %d %d",
                   d->architecture, d->n_layers, d->d_model, d->n_heads, d->n_kv_heads, d->d_head, d->d_ff, d->n_vocab, (double)d->norm_eps,
                   (double)d->attention_scale, (int)d->activation, d->tied_embeddings, d->window, d->d_latent, (long long)d->state_bytes,
                   (int)r->kind, (int)r->pairs, r->n_dims, (double)r->theta, (double)r->factor, (double)r->low_freq_factor,
                   (double)r->high_freq_factor, (double)r->beta_fast, (double)r->beta_slow, (double)r->attention_factor, r->truncate,
                   r->original_positions);
    uint64_t h = hash_text(0, text);
    for (int32_t i = 0; d->layer_kinds != NULL && i < d->n_layers; i++) {
        h = kv_hash_root(h, &d->layer_kinds[i], sizeof d->layer_kinds[i]);
    }
    return h;
}

void tier_version(const model_file *f, const model_desc *d, const backend *b, dtype kv, int32_t max_positions,
                  char out[KV_VERSION_BYTES + 1]) {
    char isa[64] = "any";
    if (b->compute == COMPUTE_BF16) { /* the one mode whose bits an instruction set may change */
        (void)snprintf(isa, sizeof isa, "%s", b->ops->describe(b));
        char *threads = strchr(isa, ','); /* "cpu, avx2, 2 threads bound to 0,2": the threads do not matter */
        threads = threads ? strchr(threads + 1, ',') : NULL;
        if (threads) {
            *threads = 0;
        }
    }
    int32_t length = d->rope.kind == ROPE_NTK ? max_positions : 0;
    (void)snprintf(out, KV_VERSION_BYTES + 1,
                   "quire %s, model %016llx %016llx, backend %s, compute %s, kv %s in pages %d, isa %s, length %d", QUIRE_VERSION,
                   (unsigned long long)hash_weights(f), (unsigned long long)hash_description(d), b->ops->name, compute_name(b->compute),
                   dtype_name(kv), KV_LAYOUT_VERSION, isa, (int)length);
}
