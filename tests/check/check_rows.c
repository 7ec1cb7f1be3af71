#include "check/check_rows.h"

#include "check/check_table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/model.h"
#include "quire.h"

enum { PAGE_TOKENS = 16, MAX_PATH = 4096 };

/* Arrays of one batch of one sequence. */
typedef struct rows_batch {
    int32_t *positions, *pages;
    kv_slot *slots;
    attn_item *work;
} rows_batch;

static quire_err run(model *m, backend *b, const int32_t *prompt, int32_t n, const rows_batch *a, float *out,
                     quire_error *err) {
    const model_desc *d = model_description(m);
    int32_t n_pages = (n + PAGE_TOKENS - 1) / PAGE_TOKENS;
    kv_layout layout;
    TRY(kv_layout_init(d, kv_both(DTYPE_F32), PAGE_TOKENS, &layout, err));
    TRY(b->ops->step_open(b, &(step_limits){.max_rows = n, .max_seqs = 1, .max_out = 1}, &layout, d->n_vocab,
                          err));
    TRY(b->ops->kv_open(b, n_pages * layout.n_groups, err));
    batch_seq seq = {.n_rows = n, .n_tokens = n, .two_sided = d->two_sided};
    batch q = {.n_rows = n,
               .n_seqs = 1,
               .wants_rows = true,
               .tokens = prompt,
               .positions = a->positions,
               .n_axes = 1,
               .seqs = &seq};
    for (int32_t g = 0; g < layout.n_groups; g++) {
        for (int32_t i = 0; i < n; i++) {
            int32_t page = g * n_pages + i / PAGE_TOKENS;
            a->positions[i] = i;
            a->pages[page] = page;
            a->slots[g * n + i] = (kv_slot){(int64_t)page * PAGE_TOKENS + i % PAGE_TOKENS};
        }
        seq.pages[g] = a->pages + g * n_pages;
        q.slots[g] = a->slots + g * n;
    }
    q.work = a->work;
    q.n_work = batch_plan_work(&seq, 1, 16, a->work, n);
    model_forward(m, &q);
    b->ops->step_wait(b);
    b->ops->buffer_read(b, model_hidden(m), 0, n, out);
    return QUIRE_OK;
}

/* The rows after the last norm, [n, width], by a forward pass without an engine. */
static quire_err hidden_rows(const char *path, const char *override_kv, const int32_t *prompt, int32_t n,
                             float *out, quire_error *err) {
    model_file *f = NULL;
    backend *b = NULL;
    model *m = NULL;
    size_t rows = (size_t)n * KV_MAX_GROUPS;
    rows_batch a = {mem_new((size_t)n, sizeof(int32_t)), mem_new(rows, sizeof(int32_t)),
                    mem_new(rows, sizeof(kv_slot)), mem_new((size_t)n, sizeof(attn_item))};
    quire_err e = a.positions && a.pages && a.slots && a.work
                      ? QUIRE_OK
                      : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    e = e ? e : model_file_open_with(path, &(model_overrides){.kv = override_kv}, &f, err);
    e = e ? e
          : backend_cpu_open(&(backend_options){.compute = COMPUTE_F32, .isa = "auto", .n_threads = 1}, &b,
                             err);
    e = e ? e : model_open(f, b, n, &m, err);
    e = e ? e : run(m, b, prompt, n, &a, out, err);
    model_close(m);
    if (b != NULL) {
        b->ops->close(b);
    }
    model_file_close(f);
    mem_free(a.positions);
    mem_free(a.pages);
    mem_free(a.slots);
    mem_free(a.work);
    return e;
}

/* Row k of *pooled by the engine: mean, first, last. */
static quire_err pooled_rows(const char *path, const char *override_kv, const int32_t *prompt, size_t n,
                             size_t width, float *pooled, quire_error *err) {
    static const char *const kinds[] = {"mean", "cls", "last"};
    quire_options o;
    quire_engine *engine;
    quire_options_init(&o);
    o.model = path;
    o.override_kv = override_kv;
    o.compute = QUIRE_COMPUTE_F32;
    o.kv_dtype = QUIRE_KV_F32;
    o.n_pages = 256;
    TRY(quire_engine_open(&o, &engine, err));
    quire_err e = QUIRE_OK;
    for (size_t k = 0; k < 3 && e == QUIRE_OK; k++) {
        float *rows;
        size_t n_row;
        e = quire_embed(engine, &(quire_input){.ids = prompt, .n_ids = n}, 1,
                        &(quire_embed_options){kinds[k], 0, 1}, &rows, &n_row, err);
        if (e == QUIRE_OK && n_row != width) {
            e = err_set(err, QUIRE_INTERNAL, -1, "a pooled row has %zu elements, must have %zu", n_row,
                        width);
        }
        if (e == QUIRE_OK) {
            memcpy(pooled + k * width, rows, width * sizeof *pooled);
            quire_free(rows);
        }
    }
    quire_engine_close(engine);
    return e;
}

/* The largest difference; *at: where. NaN counts. */
static float worst_of(const float *a, const float *b, size_t n, size_t *at) {
    float worst = 0;
    for (size_t i = 0; i < n; i++) {
        float d = fabsf(a[i] - b[i]);
        if (!(d <= worst)) {
            worst = d;
            *at = i;
        }
    }
    return worst;
}

static quire_err read_expected(const char *dir, const char *name, int64_t n_rows, int64_t *width, float **out,
                               quire_error *err) {
    char path[MAX_PATH];
    int64_t dims[2];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    TRY(check_read_npy(path, out, dims, err));
    bool fits = dims[0] == n_rows && (*width == 0 || dims[1] == *width);
    *width = dims[1];
    return fits ? QUIRE_OK
                : err_set(err, QUIRE_BAD_FILE, -1, "%s: must have %lld rows", path, (long long)n_rows);
}

void check_rows(check_report *r, const char *kind, const char *where, const char *path, const char *dir,
                const int32_t *prompt, size_t n, float tolerance) {
    float *hidden = NULL, *pooled = NULL, *found = NULL;
    int64_t width = 0;
    size_t at = 0;
    quire_error err = {0};
    quire_err e = read_expected(dir, "hidden.npy", (int64_t)n, &width, &hidden, &err);
    e = e ? e : read_expected(dir, "pooled.npy", 3, &width, &pooled, &err);
    found = e == QUIRE_OK ? mem_new((n + 3) * (size_t)width, sizeof *found) : NULL;
    e = e == QUIRE_OK && found == NULL ? err_set(&err, QUIRE_NO_MEMORY, -1, "out of memory") : e;
    e = e ? e : hidden_rows(path, r->override_kv, prompt, (int32_t)n, found, &err);
    size_t n_hidden = n * (size_t)width;
    e = e ? e : pooled_rows(path, r->override_kv, prompt, n, (size_t)width, found + n_hidden, &err);
    float worst = e == QUIRE_OK ? worst_of(found, hidden, n_hidden, &at) : 0, of_pooled = 0;
    if (e == QUIRE_OK && worst <= tolerance) {
        of_pooled = worst_of(found + n_hidden, pooled, 3 * (size_t)width, &at);
    }
    if (e == QUIRE_UNSUPPORTED) {
        check_unsupported(r, kind, where, check_table_reason(err.message, path));
    } else if (e != QUIRE_OK) {
        check_fail(r, kind, where, "%s", err.message);
    } else if (!(worst <= tolerance) || !(of_pooled <= tolerance)) {
        check_fail(r, kind, where, "%s rows differ by up to %g (at most %g), first at row %zu, element %zu",
                   worst <= tolerance ? "pooled" : "hidden", (double)(worst <= tolerance ? of_pooled : worst),
                   (double)tolerance, at / (size_t)width, at % (size_t)width);
    } else {
        check_pass(r, kind, where);
        if (r->table) {
            check_table_add(where, path, NULL, (double)(worst > of_pooled ? worst : of_pooled));
        }
    }
    mem_free(hidden);
    mem_free(pooled);
    mem_free(found);
}
