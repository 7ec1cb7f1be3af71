/* Quantised models: DIR/hf/NAME/ is a Hugging Face directory with ids.json {"ids"} and
 * the logits of each of them, [ids, vocabulary], from exactly dequantised weights:
 * logits.npy, in f32 compute. Others have rounded activations too: logits_w8a8.npy is
 * int8 compute's, logits_a8.npy fp8's. logits_kv8.npy is f32's with keys and values in
 * fp8_e4m3, by the checkpoint's scales. */
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "check/check.h"
#include "check/check_run.h"
#include "quire.h"

#define KIND "quants"

enum { MAX_PATH = 4096 };

/* A file of logits: how they are computed here, and how far they may be off. tie: where
 * one rounded activation lies so near a tie that it falls the other way, its token's
 * logits and later ones may be off by so much, and the case counts as unsupported; those
 * of tokens before it are exact. */
typedef struct logits_kind {
    const char *file;
    quire_compute compute;
    quire_kv_dtype kv_dtype;
    float tolerance, tie;
} logits_kind;

static const logits_kind kinds[] = {{"logits.npy", QUIRE_COMPUTE_F32, QUIRE_KV_F32, 2e-3f, 0.0f},
                                    {"logits_w8a8.npy", QUIRE_COMPUTE_INT8, QUIRE_KV_F32, 0.05f, 0.0f},
                                    {"logits_a8.npy", QUIRE_COMPUTE_FP8, QUIRE_KV_F32, 0.05f, 0.5f},
                                    {"logits_a4.npy", QUIRE_COMPUTE_FP8, QUIRE_KV_F32, 0.05f, 0.5f},
                                    {"logits_kv8.npy", QUIRE_COMPUTE_F32, QUIRE_KV_FP8_E4M3, 0.05f, 0.0f}};

/* What is wanted, and where. */
typedef struct quant_case {
    const logits_kind *kind;
    char where[512];
    const char *model;
    int32_t *ids;
    size_t n_ids;
    float *want;
    int64_t dims[2];
} quant_case;

static int64_t best_of(const float *row, int64_t n, float *margin) {
    int64_t best = 0;
    float next = -INFINITY;
    for (int64_t i = 1; i < n; i++) {
        next = row[i] > row[best] ? row[best] : row[i] > next ? row[i] : next;
        best = row[i] > row[best] ? i : best;
    }
    *margin = row[best] - next;
    return best;
}

/* The largest difference of the first n logits, and where. NaN counts. */
static float worst_of(const quant_case *c, const float *got, size_t n, size_t *at) {
    float worst = 0;
    for (size_t i = 0; i < n; i++) {
        float d = fabsf(got[i] - c->want[i]);
        if (!(d <= worst)) {
            worst = d;
            *at = i;
        }
    }
    return worst;
}

/* Whether the logits are exact up to some token, and from there on as far off as a tie
 * may put them. */
static bool is_tie(const quant_case *c, const float *got, float worst) {
    size_t n_vocab = (size_t)c->dims[1], n = 0, at = 0;
    while (n < c->n_ids && worst_of(c, got, (n + 1) * n_vocab, &at) <= c->kind->tolerance) {
        n++;
    }
    return worst <= c->kind->tie && n > 0 && worst_of(c, got, n * n_vocab, &at) <= 2e-3f;
}

static void compare(check_report *r, const quant_case *c, const float *got) {
    size_t at = 0, n_vocab = (size_t)c->dims[1], n = c->n_ids * n_vocab;
    float worst = worst_of(c, got, n, &at);
    if (!(worst <= c->kind->tolerance) && is_tie(c, got, worst)) {
        check_unsupported(
            r, KIND, c->where,
            "an activation so near a tie that it is rounded the other way; tokens before it are exact");
        return;
    }
    if (!(worst <= c->kind->tolerance)) {
        check_fail(r, KIND, c->where,
                   "logits differ by up to %g (at most %g): token %zu, id %zu is %.9g, must be %.9g",
                   (double)worst, (double)c->kind->tolerance, at / n_vocab, at % n_vocab, (double)got[at],
                   (double)c->want[at]);
        return;
    }
    for (size_t i = 0; i < c->n_ids; i++) {
        float margin, own;
        int64_t want = best_of(c->want + i * n_vocab, c->dims[1], &margin),
                best = best_of(got + i * n_vocab, c->dims[1], &own);
        if (want != best && margin > 2 * worst) {
            check_fail(r, KIND, c->where, "the likeliest id of token %zu is %lld, must be %lld", i,
                       (long long)best, (long long)want);
            return;
        }
    }
    check_pass(r, KIND, c->where);
}

static void run_case(check_report *r, const quant_case *c) {
    quire_options o;
    quire_error err = {0};
    quire_engine *engine;
    quire_options_init(&o);
    o.model = c->model;
    o.compute = c->kind->compute;
    o.kv_dtype = c->kind->kv_dtype;
    o.max_model_len = (int32_t)c->n_ids + 2;
    o.n_pages = 64;
    quire_err e = quire_engine_open(&o, &engine, &err);
    if (e == QUIRE_UNSUPPORTED) {
        check_unsupported(r, KIND, c->where, err.message);
        return;
    }
    if (e != QUIRE_OK) {
        check_fail(r, KIND, c->where, "%s", err.message);
        return;
    }
    int32_t greedy[1];
    size_t n_greedy;
    float *logits = mem_new(c->n_ids * (size_t)c->dims[1], sizeof *logits);
    if (quire_engine_info(engine)->n_vocab != c->dims[1] || c->dims[0] != (int64_t)c->n_ids ||
        logits == NULL) {
        check_fail(r, KIND, c->where, "%s must be [%zu, %d]", c->kind->file, c->n_ids,
                   (int)quire_engine_info(engine)->n_vocab);
    } else if (check_run(engine, c->ids, c->n_ids, 1, logits, greedy, &n_greedy, &err) != QUIRE_OK) {
        check_fail(r, KIND, c->where, "%s", err.message);
    } else {
        compare(r, c, logits);
    }
    mem_free(logits);
    quire_engine_close(engine);
}

static quire_err read_ids(const char *model, quant_case *c, quire_error *err) {
    char path[MAX_PATH], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/ids.json", model);
    TRY(check_read(path, &text, &n, err));
    json_value *ids = json_document((str){text, n});
    mem_free(text);
    quire_err e = check_take_ids(ids, "ids", path, &c->ids, &c->n_ids, err);
    json_drop(ids);
    return e;
}

/* All logits of one model. */
static void check_model(check_report *r, const char *model, const char *name) {
    quant_case c = {.model = model};
    quire_error err = {0};
    if (read_ids(model, &c, &err) != QUIRE_OK) {
        check_fail(r, KIND, name, "%s", err.message);
        return;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char path[MAX_PATH];
        c.kind = &kinds[i];
        snprintf(path, sizeof path, "%s/%s", model, c.kind->file);
        snprintf(c.where, sizeof c.where, "hf/%s/%s", name, c.kind->file);
        if (check_read_npy(path, &c.want, c.dims, &err) != QUIRE_OK) {
            if (i == 0) {
                check_fail(r, KIND, c.where, "%s", err.message);
            }
            continue;
        }
        run_case(r, &c);
        mem_free(c.want);
    }
    mem_free(c.ids);
}

void check_quant_models(const char *dir, check_report *r) {
    char path[MAX_PATH];
    glob_t found = {0};
    snprintf(path, sizeof path, "%s/hf/*/config.json", dir);
    size_t n = glob(path, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    for (size_t i = 0; i < n; i++) {
        char *model = found.gl_pathv[i], *end = strrchr(model, '/');
        *end = 0;
        check_model(r, model, strrchr(model, '/') + 1);
    }
    globfree(&found);
}
