/* Metadata accessors: convert the values of both formats. */
#include <assert.h>
#include <float.h>
#include <math.h>

#include "file/model_file.h"
#include "file/open_file.h"
#include "file/packed.h"
#include "file/sampling_defaults.h"

#define MAX_I64 0x1p63 /* smallest double over INT64_MAX */

meta_value open_file_meta(const model_file *f, const char *key) {
    assert(f != NULL);
    meta_value v;
    if (f->overrides != NULL && overrides_find(f->overrides, key, &v)) {
        return v;
    }
    if (f->format == MODEL_GGUF) {
        return gguf_meta(gguf_find(&f->gguf, key));
    }
    return json_doc_meta(json_doc_find(&f->config, key));
}

static meta_value metadata_item(const meta_value *array, size_t i) {
    return array->in_json ? json_doc_item(array->node, i) : gguf_item(array->node, i);
}

/* ---- one value ---- */

static quire_err missing_or(const meta_value *v, meta_kind wanted) {
    if (v->kind == META_ABSENT) {
        return QUIRE_NOT_FOUND;
    }
    return v->kind == wanted ? QUIRE_OK : QUIRE_BAD_FILE;
}

static quire_err to_i64(const meta_value *v, int64_t *out) {
    if (v->kind == META_FLOAT && v->f >= -MAX_I64 && v->f < MAX_I64 && v->f == floor(v->f)) {
        *out = (int64_t)v->f;
        return QUIRE_OK;
    }
    TRY(missing_or(v, META_INT));
    *out = v->i;
    return QUIRE_OK;
}

static quire_err metadata_to_f32(const meta_value *v, float *out) {
    if (v->kind != META_INT) {
        TRY(missing_or(v, META_FLOAT));
    }
    if (isfinite(v->f) && fabs(v->f) > (double)FLT_MAX) {
        return QUIRE_BAD_FILE;
    }
    *out = (float)v->f;
    return QUIRE_OK;
}

quire_err model_file_i64(const model_file *f, const char *key, int64_t *out) {
    meta_value v = open_file_meta(f, key);
    return to_i64(&v, out);
}

quire_err model_file_f32(const model_file *f, const char *key, float *out) {
    meta_value v = open_file_meta(f, key);
    return metadata_to_f32(&v, out);
}

quire_err model_file_bool(const model_file *f, const char *key, bool *out) {
    meta_value v = open_file_meta(f, key);
    TRY(missing_or(&v, META_BOOL));
    *out = v.i != 0;
    return QUIRE_OK;
}

quire_err model_file_str(const model_file *f, const char *key, str *out) {
    meta_value v = open_file_meta(f, key);
    TRY(missing_or(&v, META_STR));
    *out = v.s;
    return QUIRE_OK;
}

/* ---- arrays ---- */

/* Converts an element of a list to a number: true to 1, false to 0. */
static quire_err to_number(const meta_value *v, int64_t *out) {
    if (v->kind == META_BOOL) {
        *out = v->i;
        return QUIRE_OK;
    }
    return to_i64(v, out);
}

/* Converts all elements before it writes: after an error out is unchanged. */
static quire_err to_i64s(const meta_value *v, int64_t *out, size_t max, size_t *n) {
    int64_t one;
    if (v->kind != META_ARRAY) {
        TRY(to_i64(v, &one));
        if (max > 0) {
            out[0] = one;
        }
        *n = 1;
        return QUIRE_OK;
    }
    for (size_t i = 0; i < v->n; i++) {
        meta_value x = metadata_item(v, i);
        if (to_number(&x, &one) != QUIRE_OK) {
            return QUIRE_BAD_FILE;
        }
    }
    for (size_t i = 0; i < v->n && i < max; i++) {
        meta_value x = metadata_item(v, i);
        TRY(to_number(&x, &out[i]));
    }
    *n = v->n;
    return QUIRE_OK;
}

quire_err model_file_i64s(const model_file *f, const char *key, int64_t *out, size_t max, size_t *n) {
    meta_value v = open_file_meta(f, key);
    return to_i64s(&v, out, max, n);
}

quire_err model_file_f32s(const model_file *f, const char *key, float *out, size_t max, size_t *n) {
    meta_value v = open_file_meta(f, key);
    TRY(missing_or(&v, META_ARRAY));
    for (size_t i = 0; i < v.n; i++) {
        meta_value x = metadata_item(&v, i);
        float one;
        if (metadata_to_f32(&x, i < max ? &out[i] : &one) != QUIRE_OK) {
            return QUIRE_BAD_FILE;
        }
    }
    *n = v.n;
    return QUIRE_OK;
}

quire_err model_file_f32_at(const model_file *f, const char *key, size_t i, float *out) {
    meta_value v = open_file_meta(f, key);
    TRY(missing_or(&v, META_ARRAY));
    if (i >= v.n) {
        return QUIRE_NOT_FOUND;
    }
    meta_value x = metadata_item(&v, i);
    return metadata_to_f32(&x, out);
}

quire_err model_file_str_at(const model_file *f, const char *key, size_t i, str *out, size_t *n) {
    meta_value v = open_file_meta(f, key);
    TRY(missing_or(&v, META_ARRAY));
    if (n != NULL) {
        *n = v.n;
    }
    if (i >= v.n) {
        return QUIRE_NOT_FOUND;
    }
    meta_value x = metadata_item(&v, i);
    if (x.kind != META_STR) {
        return QUIRE_BAD_FILE;
    }
    *out = x.s;
    return QUIRE_OK;
}

quire_err model_file_generation_i64s(const model_file *f, const char *key, int64_t *out, size_t max,
                                     size_t *n) {
    assert(f != NULL);
    meta_value v;
    if (f->overrides == NULL || !overrides_find(f->overrides, key, &v)) {
        v = json_doc_meta(json_doc_find(&f->generation, key));
    }
    return to_i64s(&v, out, max, n);
}

/* ---- overrides ---- */

quire_err open_file_overrides(model_file *f, quire_error *err) {
    return overrides_open(f->format, f->path, f->given, packed_section(f, PACKED_OVERRIDES), &f->overrides,
                          err);
}

str model_file_overrides(const model_file *f) {
    return f->overrides != NULL ? overrides_text(f->overrides) : (str){0};
}

const char *model_file_set_by(const model_file *f, const char *key) {
    meta_value v;
    return f->overrides != NULL && overrides_find(f->overrides, key, &v) ? overrides_flag(f->format) : NULL;
}

bool model_file_is_null(const model_file *f, const char *key) {
    return f->format != MODEL_GGUF && model_file_set_by(f, key) == NULL && json_doc_is_null(&f->config, key);
}

bool model_file_is_object(const model_file *f, const char *key) {
    assert(f != NULL);
    meta_value v;
    if (f->overrides != NULL && overrides_find(f->overrides, key, &v)) {
        return v.kind == META_OTHER;
    }
    return f->format != MODEL_GGUF && json_is(json_doc_find(&f->config, key), JSON_KIND_OBJECT);
}

quire_err model_file_check_overrides(const model_file *f, quire_error *err) {
    assert(f != NULL);
    sampling_defaults d;
    quire_error ignored;
    if (f->overrides == NULL) {
        return QUIRE_OK;
    }
    /* marks these keys as looked up: they are read only later */
    (void)sampling_defaults_of_model(f, &d, &ignored);
    sampling_defaults_deinit(&d);
    return overrides_check(f->overrides, f->path, err);
}
