/* Models: DIR/NAME/ is a Hugging Face directory with ids.json {"prompt", "greedy"} and
 * logits.npy [prompt, vocabulary], often with the same model as model.gguf. In f32
 * compute with f32 KV the logits of the prompt must be within the tolerance and the
 * greedy ids exact, from both files. Models with hidden.npy in its place give rows
 * (check_rows.h). DIR/manifest.json may say models.NAME.gguf.lacks:
 * what that file format does not carry. Such a file counts as passed only if the
 * architecture's published values, which stand in for what it lacks, give what the
 * reference gives; else it is unsupported. models.NAME.note may say that the reference
 * computes in chunks: a case that is over the tolerance, but not far, is then
 * unsupported. */
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "check/check.h"
#include "check/check_rows.h"
#include "check/check_run.h"
#include "check/check_table.h"
#include "quire.h"
#include "json/json.h"

#define KIND "models"

#define TOLERANCE 1e-4f /* largest difference of a logit */
/* of a reference that computes a recurrence in chunks, where a row may be that far from
 * what the recurrence gives in double precision; over TOLERANCE it is no pass either */
#define CHUNKS_TOLERANCE 4e-4f

enum { MAX_PATH = 4096 };

/* One directory's expectation. */
typedef struct model_case {
    int32_t *prompt, *greedy; /* mem_new'd */
    size_t n_prompt, n_greedy;
    float *logits; /* mem_new'd [n_prompt, n_vocab] */
    int64_t n_vocab;
    bool cache_dependent; /* the reference's values change with what comes after a token */
    /* of the file at hand, by the manifest: where it differs, that is why; NULL:
     * nothing */
    const char *lacks;
    bool is_chunked; /* the reference computes a recurrence in chunks */
} model_case;

static void case_deinit(model_case *c) {
    mem_free(c->prompt);
    mem_free(c->greedy);
    mem_free(c->logits);
}

/* Models that give rows: an encoder's ids.json has a prompt alone. */
static void check_encoder(check_report *r, const char *dir, const char *name, bool has_gguf,
                          const char *lacks) {
    char path[MAX_PATH], where[512], *text;
    size_t n;
    model_case c = {0};
    quire_error err = {0};
    snprintf(path, sizeof path, "%s/ids.json", dir);
    quire_err e = check_read(path, &text, &n, &err);
    if (e == QUIRE_OK) {
        json_value *ids = json_document((str){text, n});
        mem_free(text);
        e = check_take_ids(ids, "prompt", path, &c.prompt, &c.n_prompt, &err);
        json_drop(ids);
    }
    if (e != QUIRE_OK) {
        check_fail(r, KIND, name, "%s", err.message);
    } else {
        if (r->override_kv == NULL) {
            check_rows(r, KIND, name, dir, dir, c.prompt, c.n_prompt, TOLERANCE);
        }
        snprintf(where, sizeof where, "%s/model.gguf", name);
        snprintf(path, sizeof path, "%s/model.gguf", dir);
        if (has_gguf && lacks != NULL) {
            check_unsupported(r, KIND, where, lacks);
        } else if (has_gguf) {
            check_rows(r, KIND, where, path, dir, c.prompt, c.n_prompt, TOLERANCE);
        }
    }
    case_deinit(&c);
}

static quire_err read_case(const char *dir, model_case *c, quire_error *err) {
    char path[MAX_PATH], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/ids.json", dir);
    TRY(check_read(path, &text, &n, err));
    json_value *ids = json_document((str){text, n});
    mem_free(text);
    quire_err e = check_take_ids(ids, "prompt", path, &c->prompt, &c->n_prompt, err);
    e = e ? e : check_take_ids(ids, "greedy", path, &c->greedy, &c->n_greedy, err);
    c->cache_dependent = json_has(ids, "greedy_cached");
    json_drop(ids);
    TRY(e);
    int64_t dims[2];
    snprintf(path, sizeof path, "%s/logits.npy", dir);
    TRY(check_read_npy(path, &c->logits, dims, err));
    c->n_vocab = dims[1];
    return dims[0] == (int64_t)c->n_prompt
               ? QUIRE_OK
               : err_set(err, QUIRE_BAD_FILE, -1, "%s: must have a row for each token of the prompt", path);
}

/* Reports the first of: a logit too far off, a greedy id that differs. */
static void compare(check_report *r, const char *where, const char *path, const char *architecture,
                    const model_case *c, const float *logits, const int32_t *greedy, size_t n_greedy) {
    float worst = 0;
    size_t at = 0, n = c->n_prompt * (size_t)c->n_vocab;
    for (size_t i = 0; i < n; i++) {
        float d = fabsf(logits[i] - c->logits[i]);
        if (!(d <= worst)) { /* NaN counts */
            worst = d;
            at = i;
        }
    }
    if (!(worst <= TOLERANCE) && c->lacks != NULL) {
        check_unsupported(r, KIND, where, c->lacks);
        return;
    }
    if (!(worst <= (c->is_chunked ? CHUNKS_TOLERANCE : TOLERANCE))) {
        size_t n_vocab = (size_t)c->n_vocab;
        check_fail(r, KIND, where,
                   "logits differ by up to %g (at most %g): token %zu, id %zu is %.9g, must be %.9g",
                   (double)worst, (double)TOLERANCE, at / n_vocab, at % n_vocab, (double)logits[at],
                   (double)c->logits[at]);
        return;
    }
    for (size_t i = 0; i < c->n_greedy; i++) {
        if (i >= n_greedy || greedy[i] != c->greedy[i]) {
            check_fail(r, KIND, where, "greedy id %zu is %d, must be %d", i,
                       i < n_greedy ? (int)greedy[i] : -1, (int)c->greedy[i]);
            return;
        }
    }
    if (!(worst <= TOLERANCE)) {
        char what[160];
        (void)snprintf(what, sizeof what,
                       "the reference computes in chunks: logits differ by up to %g (at most %g)",
                       (double)worst, (double)TOLERANCE);
        check_unsupported(r, KIND, where, what);
        return;
    }
    check_pass(r, KIND, where);
    if (r->table) {
        check_table_add(where, path, architecture, (double)worst);
    }
}

static void check_engine(check_report *r, const char *where, const char *path, quire_engine *engine,
                         const model_case *c) {
    int32_t n_vocab = quire_engine_info(engine)->n_vocab;
    if (n_vocab != c->n_vocab) {
        check_fail(r, KIND, where, "%d logits a token, must be %lld", (int)n_vocab, (long long)c->n_vocab);
        return;
    }
    quire_error err = {0};
    float *logits = mem_new(c->n_prompt * (size_t)c->n_vocab, sizeof *logits);
    int32_t *greedy = mem_new(c->n_greedy, sizeof *greedy);
    size_t n_greedy = 0;
    quire_err e = logits && greedy ? check_run(engine, c->prompt, c->n_prompt, c->n_greedy, logits, greedy,
                                               &n_greedy, &err)
                                   : err_set(&err, QUIRE_NO_MEMORY, -1, "out of memory");
    if (e != QUIRE_OK) {
        check_fail(r, KIND, where, "%s", err.message);
    } else {
        compare(r, where, path, quire_engine_info(engine)->architecture, c, logits, greedy, n_greedy);
    }
    mem_free(greedy);
    mem_free(logits);
}

static void check_file(check_report *r, const char *where, const char *path, const model_case *c) {
    quire_options o;
    quire_options_init(&o);
    o.model = path;
    o.compute = QUIRE_COMPUTE_F32;
    o.kv_dtype = QUIRE_KV_F32;
    o.override_kv = r->override_kv;
    /* the reference chooses the likeliest token of plain logits */
    o.generation_config = "none";
    /* rotary scaling may depend on it, and the reference goes by the sequence */
    o.max_model_len = (int32_t)(c->n_prompt + c->n_greedy);
    /* several groups of layers each take pages of their own */
    o.n_pages = 64 + o.max_model_len / o.page_tokens * 16;
    quire_error err = {0};
    quire_engine *engine;
    quire_err e = quire_engine_open(&o, &engine, &err);
    if (e == QUIRE_OK) {
        check_engine(r, where, path, engine, c);
        quire_engine_close(engine);
    } else if (e == QUIRE_UNSUPPORTED) {
        check_unsupported(r, KIND, where, check_table_reason(err.message, path));
    } else {
        check_fail(r, KIND, where, "%s", err.message);
    }
}

/* What manifest.json says that model.gguf of this case lacks, or NULL. */
static const char *gguf_lacks(json_value *manifest, const char *name) {
    json_value *value = manifest;
    const char *const path[] = {"models", name, "gguf", "lacks"};
    for (size_t i = 0; i < sizeof path / sizeof path[0]; i++) {
        value = json_get(value, path[i]);
    }
    return json_is(value, JSON_KIND_TEXT) ? json_str(value).p : NULL;
}

/* Whether manifest.json notes that the reference of this case computes in chunks. */
static bool is_in_chunks(json_value *manifest, const char *name) {
    json_value *value = manifest;
    const char *const path[] = {"models", name, "note"};
    for (size_t i = 0; i < sizeof path / sizeof path[0]; i++) {
        value = json_get(value, path[i]);
    }
    return json_is(value, JSON_KIND_TEXT) && strstr(json_str(value).p, "computes in chunks") != NULL;
}

static bool exists(const char *path) {
    glob_t found;
    bool there = glob(path, GLOB_NOSORT, NULL, &found) == 0;
    globfree(&found);
    return there;
}

static void check_case(check_report *r, const char *dir, const char *name, json_value *manifest) {
    char model_dir[MAX_PATH - 64], gguf[MAX_PATH], where[512];
    snprintf(model_dir, sizeof model_dir, "%s/%s", dir, name);
    snprintf(gguf, sizeof gguf, "%s/model.gguf", model_dir);
    snprintf(where, sizeof where, "%s/model.gguf", name);
    bool has_gguf = exists(gguf);
    model_case c = {0};
    quire_error err = {0};
    char logits[MAX_PATH];
    snprintf(logits, sizeof logits, "%s/logits.npy", model_dir);
    if (!exists(logits)) {
        check_encoder(r, model_dir, name, has_gguf,
                      r->override_kv == NULL ? gguf_lacks(manifest, name) : NULL);
        return;
    }
    if (read_case(model_dir, &c, &err) != QUIRE_OK) {
        check_fail(r, KIND, name, "%s", err.message);
        case_deinit(&c);
        return;
    }
    bool gguf_only = r->override_kv != NULL;
    c.is_chunked = is_in_chunks(manifest, name);
    if (c.cache_dependent && !gguf_only) {
        check_unsupported(r, KIND, name, "the reference's values depend on the sequence's whole length");
    } else if (!gguf_only) {
        check_file(r, name, model_dir, &c);
    }
    c.lacks = gguf_only ? NULL : gguf_lacks(manifest, name);
    if (has_gguf && c.cache_dependent) {
        check_unsupported(r, KIND, where,
                          c.lacks ? c.lacks : "the reference's values depend on the sequence's whole length");
    } else if (has_gguf) {
        check_file(r, where, gguf, &c);
    }
    case_deinit(&c);
}

int check_models(const char *dir, const char *root, check_report *r) {
    (void)root;
    char path[MAX_PATH], *text;
    size_t n;
    json_value *manifest = NULL;
    if (r->table) {
        check_table_begin();
    }
    quire_error ignored;
    snprintf(path, sizeof path, "%s/manifest.json", dir);
    if (check_read(path, &text, &n, &ignored) == QUIRE_OK) {
        manifest = json_document((str){text, n});
        mem_free(text);
    }
    glob_t found = {0};
    snprintf(path, sizeof path, "%s/*/ids.json", dir);
    size_t n_cases = glob(path, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    for (size_t i = 0; i < n_cases; i++) {
        const char *start = found.gl_pathv[i] + strlen(dir) + 1;
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(start, "/"), start);
        if (r->only == NULL || strcmp(r->only, name) == 0) {
            check_case(r, dir, name, manifest);
        }
    }
    globfree(&found);
    json_drop(manifest);
    if (r->table) {
        check_table_end();
    }
    if (n_cases == 0) {
        fprintf(stderr, "quire-check: %s: holds no */ids.json\n", dir);
    }
    return n_cases == 0;
}
