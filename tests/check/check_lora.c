/* LoRA: DIR/manifest.json lists adapters and their bases, all of them directories of DIR
 * with ids.json {"ids", "greedy"} and logits.npy [ids, vocabulary]. A base may have
 * model.gguf too, and an adapter adapter.gguf. Each base and each adapter runs alone, then
 * all of a base at once, rows of all adapters in one batch: in f32 the logits must be
 * within the tolerance, the greedy ids exact, and those of both ways equal bit for bit. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "check/check.h"
#include "check/check_run.h"
#include "model/lora_run.h"
#include "model/model_adapter.h"
#include "json/json.h"

#define KIND      "lora"
#define TOLERANCE 1e-3f

enum { MAX_PATH = 4096, MAX_CASES = 256, MAX_LORA_RANK = 256 };

/* A base, or an adapter of it. */
typedef struct lora_case {
    char name[128];  /* its directory */
    char where[320]; /* for reports */
    bool is_gguf;    /* its file there is adapter.gguf */
    int32_t *ids, *greedy;
    size_t n_ids, n_greedy;
    float *logits; /* the reference's */
    int64_t n_vocab;
    model_adapter adapter; /* weights NULL: the base */
    lora_seq alone, together;
    bool failed;
} lora_case;

/* One base with its adapters. */
typedef struct lora_set {
    const char *dir, *file; /* file: of the base in its directory; "": that itself */
    check_report *r;
    lora_base base;
    lora_case *cases; /* the first is the base */
    int32_t n;
} lora_set;

static void case_fail(lora_set *s, lora_case *c, const char *what) {
    if (!c->failed) {
        check_fail(s->r, KIND, c->where, "%s", what);
    }
    c->failed = true;
}

static quire_err read_lora_case(const char *dir, lora_case *c, quire_error *err) {
    char path[MAX_PATH], *text;
    size_t n;
    int64_t dims[2];
    (void)snprintf(path, sizeof path, "%s/%s/ids.json", dir, c->name);
    TRY(check_read(path, &text, &n, err));
    json_value *ids = json_document((str){text, n});
    mem_free(text);
    quire_err e = check_take_ids(ids, "ids", path, &c->ids, &c->n_ids, err);
    e = e ? e : check_take_ids(ids, "greedy", path, &c->greedy, &c->n_greedy, err);
    json_drop(ids);
    TRY(e);
    (void)snprintf(path, sizeof path, "%s/%s/logits.npy", dir, c->name);
    TRY(check_read_npy(path, &c->logits, dims, err));
    c->n_vocab = dims[1];
    return dims[0] == (int64_t)c->n_ids
               ? QUIRE_OK
               : err_set(err, QUIRE_BAD_FILE, -1, "%s: must have a row for each id", path);
}

static quire_err seq_init(const lora_case *c, lora_seq *s, quire_error *err) {
    *s = (lora_seq){.adapter = c->adapter.weights,
                    .prompt = c->ids,
                    .n_prompt = (int32_t)c->n_ids,
                    .n_greedy = (int32_t)c->n_greedy};
    s->logits = mem_new((c->n_ids + c->n_greedy) * (size_t)c->n_vocab, sizeof *s->logits);
    s->greedy = mem_new(c->n_greedy, sizeof *s->greedy);
    return s->logits && s->greedy ? QUIRE_OK : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
}

static void compare(lora_set *s, lora_case *c) {
    float worst = 0;
    char what[160];
    for (size_t i = 0; i < c->n_ids * (size_t)c->n_vocab; i++) {
        const float d = fabsf(c->alone.logits[i] - c->logits[i]);
        worst = d <= worst ? worst : d; /* NaN counts */
    }
    if (!(worst <= TOLERANCE)) {
        (void)snprintf(what, sizeof what, "logits differ by up to %g (at most %g)", (double)worst,
                       (double)TOLERANCE);
        case_fail(s, c, what);
    }
    for (size_t i = 0; i < c->n_greedy; i++) {
        if (c->alone.greedy[i] != c->greedy[i]) {
            (void)snprintf(what, sizeof what, "greedy id %zu is %d, must be %d", i, (int)c->alone.greedy[i],
                           (int)c->greedy[i]);
            case_fail(s, c, what);
        }
    }
    const size_t n = (c->n_ids + c->n_greedy - 1) * (size_t)c->n_vocab;
    if (memcmp(c->alone.logits, c->together.logits, n * sizeof(float)) != 0) {
        case_fail(s, c, "logits beside other adapters have other bits than alone");
    }
}

/* Reads and opens a case, and runs it alone. QUIRE_UNSUPPORTED: this build cannot. */
static quire_err case_run(lora_set *s, lora_case *c, bool is_base, quire_error *err) {
    char path[MAX_PATH];
    const adapter_limits limits = {.max_rank = MAX_LORA_RANK, .max_bytes = INT32_MAX};
    (void)snprintf(path, sizeof path, "%s/%s%s", s->dir, c->name, c->is_gguf ? "/adapter.gguf" : "");
    TRY(is_base ? QUIRE_OK : model_adapter_open(s->base.m, s->base.b, path, &limits, &c->adapter, err));
    TRY(seq_init(c, &c->alone, err));
    TRY(seq_init(c, &c->together, err));
    if (c->n_vocab != s->base.n_vocab) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%d logits a token, must be %lld", (int)s->base.n_vocab,
                       (long long)c->n_vocab);
    }
    return lora_run(&s->base, &c->alone, 1, err);
}

static void run_together(lora_set *s) {
    lora_seq *seqs = mem_new((size_t)s->n, sizeof *seqs);
    quire_error err = {0};
    quire_err e = mem_check(seqs);
    int32_t n = 0;
    for (int32_t i = 0; i < s->n && e == QUIRE_OK; i++) {
        if (!s->cases[i].failed) {
            seqs[n++] = s->cases[i].together;
        }
    }
    e = e ? e : n > 0 ? lora_run(&s->base, seqs, n, &err) : QUIRE_OK;
    for (int32_t i = 0; i < s->n; i++) {
        if (e != QUIRE_OK) {
            case_fail(s, &s->cases[i], err.message);
        } else if (!s->cases[i].failed) {
            compare(s, &s->cases[i]);
        }
        if (!s->cases[i].failed) {
            check_pass(s->r, KIND, s->cases[i].where);
        }
    }
    mem_free(seqs);
}

static void check_set(lora_set *s) {
    char path[MAX_PATH];
    quire_error err = {0};
    int32_t longest = 0;
    for (int32_t i = 0; i < s->n; i++) {
        lora_case *c = &s->cases[i];
        if (read_lora_case(s->dir, c, &err) != QUIRE_OK) {
            case_fail(s, c, err.message);
        }
        const int32_t n = (int32_t)(c->n_ids + c->n_greedy);
        longest = n > longest ? n : longest;
    }
    (void)snprintf(path, sizeof path, "%s/%s%s", s->dir, s->cases[0].name, s->file);
    quire_err e = lora_base_open(path, s->n, longest, s->n, MAX_LORA_RANK, &s->base, &err);
    for (int32_t i = 0; i < s->n; i++) {
        lora_case *c = &s->cases[i];
        const quire_err own = e != QUIRE_OK || c->failed ? e : case_run(s, c, i == 0, &err);
        if (own == QUIRE_UNSUPPORTED) {
            check_unsupported(s->r, KIND, c->where, err.message);
            c->failed = true;
        } else if (own != QUIRE_OK) {
            case_fail(s, c, err.message);
        }
    }
    if (e == QUIRE_OK) {
        run_together(s);
    }
    for (int32_t i = 0; i < s->n; i++) {
        lora_case *c = &s->cases[i];
        if (c->adapter.weights != NULL) {
            model_adapter_close(s->base.b, &c->adapter);
        }
        mem_free(c->ids);
        mem_free(c->greedy);
        mem_free(c->logits);
        mem_free(c->alone.logits);
        mem_free(c->alone.greedy);
        mem_free(c->together.logits);
        mem_free(c->together.greedy);
    }
    if (e == QUIRE_OK) {
        lora_base_close(&s->base);
    }
}

static bool exists(const char *dir, str name, const char *file) {
    char path[MAX_PATH];
    (void)snprintf(path, sizeof path, "%s/%.*s/%s", dir, (int)name.n, name.p, file);
    return access(path, F_OK) == 0;
}

static void add_case(lora_set *s, str name, bool is_gguf) {
    if (s->n < MAX_CASES) {
        lora_case *c = &s->cases[s->n++];
        c->is_gguf = is_gguf;
        (void)snprintf(c->name, sizeof c->name, "%.*s", (int)name.n, name.p);
        (void)snprintf(c->where, sizeof c->where, "%s%s%s%s%s", c->name, is_gguf ? "/adapter.gguf" : "",
                       s->file[0] != 0 ? " on " : "", s->file[0] != 0 ? s->cases[0].name : "", s->file);
    }
}

/* The cases of one base: it, and the adapters that name it. file: as in lora_set. */
static void check_base(const char *dir, const char *file, json_value *list, str base, check_report *r) {
    lora_set s = {.dir = dir, .file = file, .r = r, .cases = mem_new(MAX_CASES, sizeof *s.cases)};
    if (s.cases == NULL) {
        check_fail(r, KIND, "*", "out of memory");
        return;
    }
    add_case(&s, base, false);
    for (size_t i = 0; i < json_length(list); i++) {
        const str name = json_get_str(json_at(list, i), "name");
        if (str_eq(json_get_str(json_at(list, i), "base"), base)) {
            add_case(&s, name, false);
            if (exists(dir, name, "adapter.gguf")) {
                add_case(&s, name, true);
            }
        }
    }
    check_set(&s);
    mem_free(s.cases);
}

int check_lora(const char *dir, const char *root, check_report *r) {
    (void)root;
    char path[MAX_PATH], *text;
    size_t n;
    quire_error err = {0};
    (void)snprintf(path, sizeof path, "%s/manifest.json", dir);
    if (check_read(path, &text, &n, &err) != QUIRE_OK) {
        fprintf(stderr, "quire-check: %s\n", err.message);
        return 1;
    }
    json_value *list = json_document((str){text, n});
    mem_free(text);
    for (size_t i = 0; i < json_length(list); i++) {
        const str base = json_get_str(json_at(list, i), "base");
        bool is_new = base.n > 0;
        for (size_t k = 0; k < i; k++) {
            is_new = is_new && !str_eq(json_get_str(json_at(list, k), "base"), base);
        }
        if (is_new) {
            check_base(dir, "", list, base, r);
        }
        if (is_new && exists(dir, base, "model.gguf")) {
            check_base(dir, "/model.gguf", list, base, r);
        }
    }
    json_drop(list);
    return 0;
}
