#include "file/sampling_defaults.h"

#include <math.h>
#include <sys/stat.h>

#include "base/str.h"
#include "file/open_file.h"

#define FILE_NAME "generation_config.json"
#define MAX_BYTES ((size_t)64 << 20)

static const struct {
    const char *name, *gguf; /* name in requests and in generation_config.json; name in GGUF */
} fields[SAMPLING_DEFAULT_FIELDS] = {
    {"temperature", "general.sampling.temp"},
    {"top_k", "general.sampling.top_k"},
    {"top_p", "general.sampling.top_p"},
    {"min_p", "general.sampling.min_p"},
    {"repetition_penalty", "general.sampling.penalty_repeat"},
};

/* Returns the shortest decimal number that rounds to the same float: 0.95f gives 0.95. */
static double shortest(double v) {
    if (v != (double)(float)v) {
        return v;
    }
    char text[32];
    double d = v;
    for (int digits = 1; digits <= 9; digits++) {
        (void)c_locale_snprintf(text, sizeof text, "%.*g", digits, v);
        d = c_locale_strtod(text, NULL);
        if ((double)(float)d == v) {
            break;
        }
    }
    return d;
}

/* Reads field i from its value in the file; key is its name in the file. */
static quire_err sampling_defaults_take(sampling_defaults *d, int i, const meta_value *v, const char *key,
                                        quire_error *err) {
    static const char *const kinds[] = {[META_BOOL] = "true or false",
                                        [META_STR] = "a text",
                                        [META_ARRAY] = "a list",
                                        [META_OTHER] = "an object"};
    if (v->kind == META_ABSENT) {
        return QUIRE_OK;
    }
    if ((v->kind != META_INT && v->kind != META_FLOAT) || !isfinite(v->f)) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: %s is %s; it must be a number", d->source.p, key,
                       v->kind == META_FLOAT || v->kind == META_INT ? "not finite" : kinds[v->kind]);
    }
    d->names[i] = fields[i].name;
    d->values[i] = v->f;
    return QUIRE_OK;
}

static quire_err sampling_defaults_take_json(sampling_defaults *d, const json_doc *doc, quire_error *err) {
    for (int i = 0; i < SAMPLING_DEFAULT_FIELDS; i++) {
        meta_value v = json_doc_meta(json_doc_find(doc, fields[i].name));
        TRY(sampling_defaults_take(d, i, &v, fields[i].name, err));
    }
    return QUIRE_OK;
}

static quire_err take_gguf(sampling_defaults *d, const model_file *f, quire_error *err) {
    for (int i = 0; i < SAMPLING_DEFAULT_FIELDS; i++) {
        meta_value v = open_file_meta(f, fields[i].gguf);
        TRY(sampling_defaults_take(d, i, &v, fields[i].gguf, err));
        d->values[i] = shortest(d->values[i]);
    }
    return QUIRE_OK;
}

quire_err sampling_defaults_of_model(const model_file *f, sampling_defaults *out, quire_error *err) {
    sampling_defaults d = {0};
    bool in_directory = f->format == MODEL_HF && !f->is_packed;
    quire_err e = in_directory ? open_file_join(&d.source, f->path, FILE_NAME, err)
                               : strbuf_add_str(&d.source, f->path);
    if (e == QUIRE_NO_MEMORY) {
        err_set(err, e, -1, "%s: out of memory", f->path);
    } else if (e == QUIRE_OK) {
        e = f->format == MODEL_HF ? sampling_defaults_take_json(&d, &f->generation, err)
                                  : take_gguf(&d, f, err);
    }
    if (e != QUIRE_OK) {
        sampling_defaults_deinit(&d);
    }
    *out = d;
    return e;
}

static quire_err sampling_defaults_read_file(sampling_defaults *d, quire_error *err) {
    file_map map;
    json_doc doc = {0};
    TRY(file_map_open(d->source.p, MAX_BYTES, &map, err));
    quire_err e = json_doc_parse(&doc, file_map_text(&map), JSON_NAMES_LAST, d->source.p, err);
    TRY_DONE(e, sampling_defaults_take_json(d, &doc, err));
done:
    json_doc_deinit(&doc);
    file_map_close(&map);
    return e;
}

quire_err sampling_defaults_read(const char *path, sampling_defaults *out, quire_error *err) {
    sampling_defaults d = {0};
    struct stat is;
    bool is_directory = stat(path, &is) == 0 && S_ISDIR(is.st_mode);
    quire_err e = err_set(
        err, is_directory ? open_file_join(&d.source, path, FILE_NAME, err) : strbuf_add_str(&d.source, path),
        -1, "%s: out of memory", path);
    if (e == QUIRE_OK) {
        e = sampling_defaults_read_file(&d, err);
    }
    if (e != QUIRE_OK) {
        sampling_defaults_deinit(&d);
    }
    *out = d;
    return e;
}

void sampling_defaults_deinit(sampling_defaults *d) {
    strbuf_deinit(&d->source);
    *d = (sampling_defaults){0};
}
