#include "model/left_out.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/packed.h"
#include "model/quant_method.h"
#include "model/quantise_load.h"

/* The text after a prefix; NULL: name does not start with it. */
static const char *behind(const char *name, const char *prefix) {
    size_t n = strlen(prefix);
    return strncmp(name, prefix, n) == 0 ? name + n : NULL;
}

/* The number before a dot; -1: none that counts layers. */
static int32_t number_at(const char *text) {
    size_t n = strspn(text, "0123456789");
    return n > 0 && n <= 4 && text[n] == '.' ? (int32_t)strtol(text, NULL, 10) : -1;
}

/* The number after the first dot: "block.0.mlp" is layer 0. Names without one are layer 0
 * too. */
static int32_t second_number(const char *text) {
    const char *dot = strchr(text, '.');
    int32_t n = dot != NULL ? number_at(dot + 1) : 0;
    return n > 0 && n < DESC_MAX_LAYERS ? n : 0;
}

/* The next-token layer to which a tensor belongs; -1: none. */
static int32_t next_token_layer(const model_file *f, const model_desc *d, const char *root,
                                const char *name) {
    bool is_gguf = model_file_format(f) == MODEL_GGUF;
    const char *inside = behind(name, is_gguf ? "blk." : root), *layer = inside;
    if (!is_gguf) {
        const char *apart = behind(name, "mtp.");
        apart = apart == NULL && inside != NULL ? behind(inside, "mtp_") : apart;
        if (apart != NULL) {
            return second_number(apart);
        }
        layer = inside != NULL ? behind(inside, "layers.") : NULL;
    }
    int32_t i = layer != NULL ? number_at(layer) - d->n_layers : -1;
    return i >= 0 && i < d->n_next_token_layers ? i : -1;
}

size_t text_prefix(const char *root) {
    static const char *const parts[] = {"language_model.", "text_model."};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *at = strstr(root, parts[i]);
        if (at != NULL) {
            return (size_t)(at - root) + strlen(parts[i]);
        }
    }
    return 0;
}

/* Prefixes of names of image and audio towers, and of projections to the text, in GGUF
 * files. */
static const char *const gguf_towers[] = {"v.", "mm.", "a."};

/* The tower prefix of a GGUF file's tensor; NULL: not a tower's. */
static const char *gguf_tower(const model_file *f, const char *name) {
    for (size_t i = 0; model_file_format(f) == MODEL_GGUF && i < sizeof gguf_towers / sizeof *gguf_towers;
         i++) {
        if (behind(name, gguf_towers[i]) != NULL) {
            return gguf_towers[i];
        }
    }
    return NULL;
}

/* Whether a tensor of a composite file is outside its text model, in an image or audio
 * tower. */
static bool is_of_tower(const model_file *f, const char *root, const char *name) {
    bool is_apart = strncmp(name, root, text_prefix(root)) != 0 && behind(name, "lm_head.") == NULL;
    return is_apart || gguf_tower(f, name) != NULL;
}

static bool is_pooled(const model_desc *d, const char *root, const char *name) {
    bool is = false;
    for (int32_t i = 0; i < d->pooling.n_steps; i++) {
        is =
            is || (d->pooling.steps[i].name[0] != 0 && weight_is_named(root, d->pooling.steps[i].name, name));
    }
    return is;
}

/* Whether a tensor is of an expert for images, which come after those for text. */
static bool is_for_images(const model_desc *d, const arch_names *names, const char *root, const char *name) {
    static const weight_role roles[] = {W_EXPERT_GATE, W_EXPERT_UP, W_EXPERT_DOWN};
    const int32_t n_text = d->moe.n_image_experts; /* there are as many for text as for images */
    for (size_t r = 0; n_text > 0 && r < sizeof roles / sizeof *roles; r++) {
        const char *pattern = weight_name_of(names, roles[r]).hf, *at = strstr(name, ".experts.");
        const int32_t e = at != NULL ? number_at(at + strlen(".experts.")) : -1;
        if (e >= n_text && e - n_text < n_text && weight_is_named(root, pattern, name)) {
            return true;
        }
    }
    return false;
}

/* The pattern of arch_names.left_out that matches a checkpoint's tensor. NULL: none, or a
 * step after pooling reads it. */
static const char *beside(const model_file *f, const model_desc *d, const arch_names *names, const char *root,
                          const char *name) {
    if (model_file_format(f) != MODEL_HF || is_pooled(d, root, name)) {
        return NULL;
    }
    if (is_for_images(d, names, root, name)) {
        return "experts for images";
    }
    for (int i = 0; names != NULL && i < MAX_LEFT_OUT_NAMES && names->left_out[i] != NULL; i++) {
        if (weight_is_named(root, names->left_out[i], name)) {
            return names->left_out[i];
        }
    }
    return NULL;
}

tensor_part tensor_part_of(const model_file *f, const model_desc *d, const arch_names *names,
                           const char *root, const char *name, int32_t *next_token) {
    *next_token = next_token_layer(f, d, root, name);
    return *next_token >= 0                          ? PART_NEXT_TOKEN
           : is_of_tower(f, root, name)              ? PART_TOWER
           : beside(f, d, names, root, name) != NULL ? PART_BESIDE
                                                     : PART_TEXT;
}

/* Whether this is a packed matrix that the file also has unpacked: a matrix that is both
 * head and embedding. */
static bool is_second_form(const model_file *f, const tensor_view *t) {
    char name[256];
    size_t n = strlen(t->name), m = strlen(PACKED_SUFFIX);
    if (t->packing == 0 || n <= m || n - m >= sizeof name) {
        return false;
    }
    snprintf(name, sizeof name, "%.*s", (int)(n - m), t->name);
    return model_file_find(f, name) != NULL;
}

/* Adds the pattern of a left-out tensor, once, to those that are reported. */
static void note_name(model_desc *d, const char *pattern) {
    size_t n = strlen(d->left_out_names);
    if (pattern != NULL && strstr(d->left_out_names, pattern) == NULL) {
        (void)snprintf(d->left_out_names + n, sizeof d->left_out_names - n, "%s%s", n > 0 ? ", " : "",
                       pattern);
    }
}

/* The compute mode of `auto`: int8 if more weights are integers than of any other type.
 * In a checkpoint whose config says that it is quantised, weights left in 16 or 32 bits
 * do not count. */
static compute_mode auto_compute(const model_file *f, const int64_t by_type[N_DTYPES], dtype most) {
    const bool is_said = quant_is(f);
    int64_t integers = 0, others = 0;
    for (int t = 0; t < N_DTYPES; t++) {
        const bool is_float = t == DTYPE_F32 || t == DTYPE_F16 || t == DTYPE_BF16;
        if (dtype_is_quantised((dtype)t) || t == DTYPE_I8 || quant_is_integers(f, (dtype)t)) {
            integers += by_type[t];
        } else if (!(is_said && is_float) && by_type[t] > others) {
            others = by_type[t];
        }
    }
    const bool has_floats = is_said && others > 0; /* floats of 8 or 4 bits */
    return integers > others ? COMPUTE_INT8 : most == DTYPE_F32 && !has_floats ? COMPUTE_F32 : COMPUTE_BF16;
}

void describe_weights(const model_file *f, const arch_names *names, const char *root, model_desc *d) {
    int64_t by_type[N_DTYPES] = {0};
    int32_t n_next = 0, next;
    d->n_params = d->weight_bytes = d->left_out_bytes = 0;
    d->n_left_out = 0;
    d->left_out_names[0] = 0;
    memset(d->weight_bytes_of, 0, sizeof d->weight_bytes_of);
    d->is_packed = model_file_packed_for(f, &d->packed_compute);
    for (int32_t i = 0; i < model_file_n_tensors(f); i++) {
        const tensor_view *t = model_file_tensor(f, i);
        if (tensor_part_of(f, d, names, root, t->name, &next) != PART_TEXT) {
            const char *tower = gguf_tower(f, t->name);
            note_name(d, tower != NULL ? tower : beside(f, d, names, root, t->name));
            n_next = next >= n_next ? next + 1 : n_next;
            d->n_left_out++;
            d->left_out_bytes += (int64_t)t->n_bytes;
            continue;
        }
        const matrix_use use = is_pooled(d, root, t->name) ? MATRIX_KEPT : quantise_use_of(f, names, root, t);
        const dtype type =
            quantise_type(d->quantise_to, use, t->type, t->dims[t->n_dims > 0 ? t->n_dims - 1 : 0]);
        int64_t n = quant_n_weights(f, t),
                n_bytes = type == t->type ? (int64_t)t->n_bytes : quantise_bytes(t, type);
        d->n_params += is_second_form(f, t) ? 0 : n;
        d->weight_bytes += n_bytes;
        d->weight_bytes_of[type] += n_bytes;
        by_type[type] += t->n_dims > 1 ? n : 0;
    }
    d->n_next_token_layers = n_next;
    d->weight_type = DTYPE_F32;
    for (int t = 0; t < N_DTYPES; t++) {
        if (by_type[t] > by_type[d->weight_type]) {
            d->weight_type = (dtype)t;
        }
    }
    d->has_fp8_kv = quant_has_fp8_kv(f);
    d->auto_compute = auto_compute(f, by_type, d->weight_type);
    if (d->quantise_to == DTYPE_I8) {
        /* products are int8 even if most weights are in tables that are not converted */
        d->auto_compute = COMPUTE_INT8;
    } else if (d->quantise_to == DTYPE_F8_E4M3) {
        d->auto_compute = COMPUTE_BF16;
    }
}
