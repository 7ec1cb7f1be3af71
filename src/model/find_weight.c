#include "model/find_weight.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "file/packed.h"

#define MODEL_ROOT "model." /* prefix of weight names in Hugging Face checkpoints */

/* The prefix depends on the checkpoint: composite ones have the text model further in,
 * those without a head leave it out, encoders have other names. The token embedding shows
 * it. */
const char *loader_root(const model_file *f, const arch_names *names) {
    static const char *const roots[] = {MODEL_ROOT,
                                        "language_model.model.",
                                        "model.language_model.",
                                        "model.text_model.",
                                        "language_model.",
                                        "bert.",
                                        "roberta.",
                                        ""};
    /* PACKED_SUFFIX: packed models with tied embeddings; "_packed": compressed-tensors */
    static const char *const suffixes[] = {"", PACKED_SUFFIX, "_packed"};
    const char *tokens = weight_name_of(names, W_TOKENS).hf;
    bool has_root = strncmp(tokens, MODEL_ROOT, strlen(MODEL_ROOT)) == 0;
    for (size_t i = 0; has_root && i < sizeof roots / sizeof *roots; i++) {
        for (size_t k = 0; k < sizeof suffixes / sizeof *suffixes; k++) {
            char name[LOADER_NAME_BYTES];
            (void)snprintf(name, sizeof name, "%s%s.weight%s", roots[i], tokens + strlen(MODEL_ROOT),
                           suffixes[k]);
            if (model_file_find(f, name) != NULL) {
                return roots[i];
            }
        }
    }
    return MODEL_ROOT;
}

/* The full name of a tensor in the file's convention. pattern: the first of alternatives
 * separated by '|' is used. */
static void find_weight_spell(const loader *l, const char *pattern, int32_t layer, const char *suffix,
                              char out[LOADER_NAME_BYTES]) {
    int n = (int)strcspn(pattern, "|"), skip = 0;
    const char *hole = strstr(pattern, "%d"), *root = "";
    if (strncmp(pattern, MODEL_ROOT, strlen(MODEL_ROOT)) == 0) {
        root = l->root;
        skip = (int)strlen(MODEL_ROOT);
    }
    if (hole != NULL && hole - pattern < n) {
        int head = (int)(hole - pattern);
        snprintf(out, LOADER_NAME_BYTES, "%s%.*s%d%.*s%s", root, head - skip, pattern + skip, (int)layer,
                 n - head - 2, hole + 2, suffix);
    } else {
        snprintf(out, LOADER_NAME_BYTES, "%s%.*s%s", root, n - skip, pattern + skip, suffix);
    }
}

void loader_full_name(const loader *l, weight_name name, int32_t layer, const char *suffix,
                      char out[LOADER_NAME_BYTES]) {
    assert(l != NULL);
    const char *first = model_file_format(l->file) == MODEL_GGUF ? name.gguf : name.hf;
    for (const char *pattern = first; pattern != NULL; pattern = strchr(pattern, '|')) {
        pattern += *pattern == '|';
        find_weight_spell(l, pattern, layer, suffix, out);
        if (model_file_find(l->file, out) || model_file_why_unread(l->file, out)) {
            return;
        }
    }
    find_weight_spell(l, first, layer, suffix, out);
}

used_tensor *loader_use(loader *l, const tensor_view *t) {
    assert(l != NULL);
    used_tensor *u = &l->used[t - model_file_tensor(l->file, 0)];
    u->used = true;
    return u;
}

/* Reports progress before t is loaded, and counts t. */
static quire_err loader_tell(loader *l, const tensor_view *t) {
    const load_watch watch = model_file_watcher(l->file);
    const double part = l->n_all_bytes > 0.0 ? l->n_bytes / l->n_all_bytes : 0.0;
    if (watch.progress != NULL && !watch.progress(watch.user, part)) {
        return err_set(l->err, QUIRE_CANCELLED, -1, "%s: loading was cancelled", model_file_path(l->file));
    }
    l->n_bytes += l->used[t - model_file_tensor(l->file, 0)].used ? 0.0 : (double)t->n_bytes;
    return QUIRE_OK;
}

quire_err loader_find(loader *l, weight_name name, int32_t layer, const char *suffix,
                      const tensor_view **out) {
    assert(l != NULL);
    char full[LOADER_NAME_BYTES];
    loader_full_name(l, name, layer, suffix, full);
    const char *why = model_file_why_unread(l->file, full);
    if (why) {
        return err_set(l->err, QUIRE_UNSUPPORTED, -1, "%s: tensor %s cannot be read by this version: %s",
                       model_file_path(l->file), full, why);
    }
    *out = model_file_find(l->file, full);
    if (*out) {
        TRY(loader_tell(l, *out));
        loader_use(l, *out);
    }
    return QUIRE_OK;
}

const tensor_view *loader_look(const loader *l, weight_name name, int32_t layer, const char *suffix) {
    assert(l != NULL);
    char full[LOADER_NAME_BYTES];
    loader_full_name(l, name, layer, suffix, full);
    return model_file_find(l->file, full);
}

const char *loader_shape(const int64_t *dims, int32_t n, char text[LOADER_SHAPE_BYTES]) {
    int at = snprintf(text, LOADER_SHAPE_BYTES, "[");
    for (int32_t i = 0; i < n; i++) {
        at += snprintf(text + at, LOADER_SHAPE_BYTES - (size_t)at, "%s%lld", i > 0 ? ", " : "",
                       (long long)dims[i]);
    }
    (void)snprintf(text + at, LOADER_SHAPE_BYTES - (size_t)at, "]");
    return text;
}
