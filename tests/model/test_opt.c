/* Variants of OPT that no golden file covers, compared with plain formulas: norms after
 * the layers and embeddings narrower than the model (both in the 350M model), no final
 * norm, norms without weights, no biases. */
#include "golden_model.h"

#include <math.h>

enum { V = 24, D = 16, E = 8, H = 2, F = 32, L = 2, POSITIONS = 16, MAX_PARTS = 64, MAX_FLOATS = 16384 };

typedef struct opt_form {
    const char *name;
    bool before, narrow, no_end, bare, no_bias;
} opt_form;

static const opt_form forms[] = {
    {.name = "as the golden one", .before = true},
    {.name = "350M", .narrow = true},
    {.name = "norms behind"},
    {.name = "narrow", .before = true, .narrow = true},
    {.name = "no norm at the end", .before = true, .no_end = true},
    {.name = "bare norms", .before = true, .bare = true},
    {.name = "no biases", .narrow = true, .no_bias = true},
};

/* A checkpoint in memory. */
typedef struct weights {
    json_t *header;
    float data[MAX_FLOATS];
    size_t n;
    uint64_t random;
} weights;

static void put_weight(weights *w, const char *name, int32_t rows, int32_t columns) {
    size_t n = (size_t)rows * (size_t)(columns > 0 ? columns : 1);
    json_t *dims = columns > 0 ? json_pack("[i,i]", rows, columns) : json_pack("[i]", rows);
    assert_true(w->n + n <= MAX_FLOATS);
    json_object_set_new(w->header, name,
                        json_pack("{s:s,s:o,s:[I,I]}", "dtype", "F32", "shape", dims, "data_offsets",
                                  (json_int_t)(4 * w->n), (json_int_t)(4 * (w->n + n))));
    for (size_t i = 0; i < n; i++) {
        w->data[w->n++] = ((float)(rng_next(&w->random) % 2000) - 1000.0f) * 5e-4f;
    }
}

static void put_layer_part(weights *w, const opt_form *f, int32_t layer, const char *part, int32_t rows,
                           int32_t columns) {
    char name[128];
    bool is_norm = columns == 0;
    if (is_norm && f->bare) {
        return;
    }
    snprintf(name, sizeof name, "model.decoder.layers.%d.%s.weight", layer, part);
    put_weight(w, name, rows, columns);
    if (is_norm || !f->no_bias) {
        snprintf(name, sizeof name, "model.decoder.layers.%d.%s.bias", layer, part);
        put_weight(w, name, rows, 0);
    }
}

static void put_weights(weights *w, const opt_form *f) {
    static const char *const square[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                         "self_attn.out_proj"};
    *w = (weights){.header = json_object(), .random = 7};
    put_weight(w, "model.decoder.embed_tokens.weight", V, f->narrow ? E : D);
    put_weight(w, "model.decoder.embed_positions.weight", POSITIONS + 2, D);
    if (f->narrow) {
        put_weight(w, "model.decoder.project_in.weight", D, E);
        put_weight(w, "model.decoder.project_out.weight", E, D);
    }
    if (f->before && !f->no_end && !f->bare) {
        put_weight(w, "model.decoder.final_layer_norm.weight", D, 0);
        put_weight(w, "model.decoder.final_layer_norm.bias", D, 0);
    }
    for (int32_t i = 0; i < L; i++) {
        for (int k = 0; k < 4; k++) {
            put_layer_part(w, f, i, square[k], D, D);
        }
        put_layer_part(w, f, i, "self_attn_layer_norm", D, 0);
        put_layer_part(w, f, i, "fc1", F, D);
        put_layer_part(w, f, i, "fc2", D, F);
        put_layer_part(w, f, i, "final_layer_norm", D, 0);
    }
}

static temp_dir write_model(const weights *w, const opt_form *f) {
    json_t *config =
        json_pack("{s:[s],s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:b,s:b,s:b,s:b}", "architectures", "OPTForCausalLM",
                  "hidden_size", D, "num_hidden_layers", L, "num_attention_heads", H, "ffn_dim", F,
                  "vocab_size", V, "max_position_embeddings", POSITIONS, "word_embed_proj_dim",
                  f->narrow ? E : D, "do_layer_norm_before", f->before, "_remove_final_layer_norm", f->no_end,
                  "layer_norm_elementwise_affine", !f->bare, "enable_bias", !f->no_bias);
    strbuf file = {0};
    char *header = json_dumps(w->header, JSON_COMPACT);
    put_u64(&file, strlen(header));
    put(&file, header, strlen(header));
    put(&file, (const char *)w->data, w->n * sizeof *w->data);
    temp_dir d = golden_write("", config, &file);
    strbuf_deinit(&file);
    free(header);
    json_decref(config);
    return d;
}

/* ---- the formulas ---- */

/* NULL: the checkpoint has no such weight. */
static const float *weight_of(const weights *w, int32_t layer, const char *part, const char *end) {
    char name[128];
    int n = layer >= 0 ? snprintf(name, sizeof name, "model.decoder.layers.%d.", layer)
                       : snprintf(name, sizeof name, "model.decoder.");
    snprintf(name + n, sizeof name - (size_t)n, "%s%s", part, end);
    const json_t *t = json_object_get(w->header, name);
    return t != NULL ? w->data + json_integer_value(json_array_get(json_object_get(t, "data_offsets"), 0)) / 4
                     : NULL;
}

static void product(const weights *w, int32_t layer, const char *part, int32_t n_out, int32_t n_in,
                    const double *x, double *out) {
    const float *m = weight_of(w, layer, part, ".weight"), *bias = weight_of(w, layer, part, ".bias");
    for (int32_t i = 0; i < n_out; i++) {
        out[i] = bias != NULL ? (double)bias[i] : 0;
        for (int32_t k = 0; k < n_in; k++) {
            out[i] += (double)m[i * n_in + k] * x[k];
        }
    }
}

static void normed(const weights *w, int32_t layer, const char *part, const double *x, double *out) {
    const float *scale = weight_of(w, layer, part, ".weight"), *bias = weight_of(w, layer, part, ".bias");
    double mean = 0, square = 0;
    for (int32_t i = 0; i < D; i++) {
        mean += x[i] / D;
    }
    for (int32_t i = 0; i < D; i++) {
        square += (x[i] - mean) * (x[i] - mean) / D;
    }
    for (int32_t i = 0; i < D; i++) {
        double v = (x[i] - mean) / sqrt(square + 1e-5);
        out[i] = scale != NULL ? v * (double)scale[i] + (double)bias[i] : v;
    }
}

typedef double rows[N][D];

/* a = attention of the rows up to t, for row t. */
static void attend(const rows q, const rows k, const rows v, int32_t t, double *a) {
    const int32_t width = D / H;
    for (int32_t h = 0; h < H; h++) {
        double p[N], sum = 0;
        for (int32_t s = 0; s <= t; s++) {
            double dot = 0;
            for (int32_t i = 0; i < width; i++) {
                dot += q[t][h * width + i] * k[s][h * width + i];
            }
            sum += p[s] = exp(dot / sqrt(width));
        }
        for (int32_t i = 0; i < width; i++) {
            a[h * width + i] = 0;
            for (int32_t s = 0; s <= t; s++) {
                a[h * width + i] += p[s] / sum * v[s][h * width + i];
            }
        }
    }
}

static void run_layer(const weights *w, const opt_form *f, int32_t layer, rows x) {
    rows q, k, v;
    double h[D], a[D], o[D], wide[F];
    for (int32_t t = 0; t < N; t++) {
        memcpy(h, x[t], sizeof h);
        if (f->before) {
            normed(w, layer, "self_attn_layer_norm", x[t], h);
        }
        product(w, layer, "self_attn.q_proj", D, D, h, q[t]);
        product(w, layer, "self_attn.k_proj", D, D, h, k[t]);
        product(w, layer, "self_attn.v_proj", D, D, h, v[t]);
    }
    for (int32_t t = 0; t < N; t++) {
        attend(q, k, v, t, a);
        product(w, layer, "self_attn.out_proj", D, D, a, o);
        for (int32_t i = 0; i < D; i++) {
            x[t][i] += o[i];
        }
        normed(w, layer, f->before ? "final_layer_norm" : "self_attn_layer_norm", x[t], h);
        memcpy(f->before ? o : x[t], h, sizeof h);
        product(w, layer, "fc1", F, D, h, wide);
        for (int32_t i = 0; i < F; i++) {
            wide[i] = wide[i] > 0 ? wide[i] : 0;
        }
        product(w, layer, "fc2", D, F, wide, o);
        for (int32_t i = 0; i < D; i++) {
            x[t][i] += o[i];
        }
        if (!f->before) {
            normed(w, layer, "final_layer_norm", x[t], h);
            memcpy(x[t], h, sizeof h);
        }
    }
}

static void check_logits(const weights *w, const opt_form *f, const float *logits) {
    const float *tokens = weight_of(w, -1, "embed_tokens", ".weight"),
                *positions = weight_of(w, -1, "embed_positions", ".weight");
    const int32_t width = f->narrow ? E : D;
    rows x;
    for (int32_t t = 0; t < N; t++) {
        double e[D];
        for (int32_t i = 0; i < width; i++) {
            e[i] = (double)tokens[(3 + 5 * t) % V * width + i];
        }
        if (f->narrow) {
            product(w, -1, "project_in", D, E, e, x[t]);
        } else {
            memcpy(x[t], e, sizeof e);
        }
        for (int32_t i = 0; i < D; i++) {
            x[t][i] += (double)positions[(t + 2) * D + i];
        }
    }
    for (int32_t i = 0; i < L; i++) {
        run_layer(w, f, i, x);
    }
    for (int32_t t = 0; t < N; t++) {
        double h[D], e[D];
        memcpy(h, x[t], sizeof h);
        if (f->before && !f->no_end) {
            normed(w, -1, "final_layer_norm", x[t], h);
        }
        memcpy(e, h, sizeof e);
        if (f->narrow) {
            product(w, -1, "project_out", E, D, h, e);
        }
        for (int32_t i = 0; i < V; i++) {
            double logit = 0;
            for (int32_t c = 0; c < width; c++) {
                logit += (double)tokens[i * width + c] * e[c];
            }
            if (!(fabs(logit - (double)logits[t * V + i]) < 1e-5)) {
                fail_msg("%s: logit %d of row %d is %g, not %g", f->name, i, t, (double)logits[t * V + i],
                         logit);
            }
        }
    }
}

TEST(every_form_computes_the_plain_formulas) {
    weights *w = mem_new(1, sizeof *w);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        quire_error err;
        size_t n;
        put_weights(w, &forms[i]);
        temp_dir d = write_model(w, &forms[i]);
        float *logits = golden_run(d.path, COMPUTE_F32, &n, &err);
        if (logits == NULL) {
            fail_msg("%s: %s", forms[i].name, err.message);
        }
        assert_int_equal(n, N * V);
        check_logits(w, &forms[i], logits);
        mem_free(logits);
        temp_delete(&d, golden_files);
        json_decref(w->header);
    }
    mem_free(w);
}

TEST_MAIN(NULL, NULL)
