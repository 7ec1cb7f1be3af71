#include "lab/bench/adapter_loads.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/ring.h"
#include "base/rng.h"
#include "base/str.h"
#include "core/half.h"
#include "lab/bench/temporary.h"
#include "model/arch.h"
#include "model/model_adapter.h"
#include "setup/adapter_store.h"

/* ---- the file ---- */

/* A matrix of the file: A or B of a module. */
typedef struct loads_matrix {
    str module;
    int64_t rows, columns;
    char part;
} loads_matrix;

/* Calls write for A and B of each module of the layers, once for each of the model's
 * linears. */
static quire_err loads_each_matrix(const model *m, int32_t rank,
                                   quire_err (*write)(void *context, const loads_matrix *t), void *context) {
    const weight_table *t = &m->weights;
    bool *is_done = mem_new(t->n, sizeof *is_done);
    quire_err e = mem_check(is_done);
    for (int32_t i = 0; e == QUIRE_OK && i < t->n_names[0]; i++) {
        const weight_ref *ref = &t->refs[t->by_name[0][i].i];
        const weight_entry *w = &t->entries[ref->entry];
        const str name = t->by_name[0][i].name;
        const bool is_whole = w->part.n_rows == 0 || ref->whole;
        if (w->w == NULL || w->turned || !is_whole || is_done[ref->entry] ||
            !str_contains(name, str_of("layers."))) {
            continue;
        }
        is_done[ref->entry] = true;
        e = write(context, &(loads_matrix){name, rank, w->n_in, 'A'});
        e = e == QUIRE_OK ? write(context, &(loads_matrix){name, w->n_out, rank, 'B'}) : e;
    }
    mem_free(is_done);
    return e;
}

typedef struct loads_file {
    strbuf header;
    size_t at; /* bytes of numbers so far */
    FILE *f;
    uint64_t seed;
} loads_file;

static quire_err loads_put_header(void *context, const loads_matrix *t) {
    loads_file *w = context;
    const size_t end = w->at + (size_t)(t->rows * t->columns) * sizeof(uint16_t);
    TRY(strbuf_addf(&w->header,
                    "%s\"base_model.model.%.*s.lora_%c.weight\":{\"dtype\":\"F16\",\"shape\":[%lld,%lld],"
                    "\"data_offsets\":[%zu,%zu]}",
                    w->at > 0 ? "," : "{", (int)t->module.n, t->module.p, t->part, (long long)t->rows,
                    (long long)t->columns, w->at, end));
    w->at = end;
    return QUIRE_OK;
}

static quire_err loads_put_numbers(void *context, const loads_matrix *t) {
    loads_file *w = context;
    uint16_t row[4096];
    for (int64_t left = t->rows * t->columns; left > 0;) {
        const size_t n = left < 4096 ? (size_t)left : 4096;
        for (size_t i = 0; i < n; i++) {
            row[i] = f32_to_f16((rng_uniform((uint32_t)(rng_next(&w->seed) >> 32)) - 0.5f) * 0.02f);
        }
        if (fwrite(row, sizeof *row, n, w->f) != n) {
            return QUIRE_IO;
        }
        left -= (int64_t)n;
    }
    return QUIRE_OK;
}

/* Opens a file of the directory for writing. NULL: err says why. */
static FILE *loads_create(const char *dir, const char *name, quire_error *err) {
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (f == NULL) {
        (void)err_set(err, QUIRE_IO, -1, "%s: %s", path, strerror(errno));
    }
    return f;
}

static quire_err loads_close(FILE *f, quire_err e, const char *dir, quire_error *err) {
    const bool is_written = fclose(f) == 0 && e == QUIRE_OK;
    return is_written
               ? QUIRE_OK
               : err_set(err, e == QUIRE_OK ? QUIRE_IO : e, -1, "%s: the adapter could not be written", dir);
}

static quire_err loads_write(const model *m, int32_t rank, const char *dir, quire_error *err) {
    loads_file w = {.seed = 3};
    FILE *f = loads_create(dir, "adapter_config.json", err);
    if (f == NULL) {
        TRY(QUIRE_IO);
    }
    const bool is_said =
        fprintf(f, "{\"peft_type\":\"LORA\",\"r\":%d,\"lora_alpha\":%d}", (int)rank, (int)rank) > 0;
    TRY(loads_close(f, is_said ? QUIRE_OK : QUIRE_IO, dir, err));
    quire_err e = loads_each_matrix(m, rank, loads_put_header, &w);
    e = e == QUIRE_OK ? strbuf_add_str(&w.header, w.at > 0 ? "}" : "{}") : e;
    w.f = e == QUIRE_OK ? loads_create(dir, "adapter_model.safetensors", err) : NULL;
    if (w.f == NULL) {
        strbuf_deinit(&w.header);
        return e == QUIRE_OK ? QUIRE_IO : err_set(err, e, -1, "out of memory");
    }
    const uint64_t n = w.header.n;
    e = fwrite(&n, sizeof n, 1, w.f) == 1 && fwrite(w.header.p, 1, n, w.f) == n ? QUIRE_OK : QUIRE_IO;
    e = e == QUIRE_OK ? loads_each_matrix(m, rank, loads_put_numbers, &w) : e;
    strbuf_deinit(&w.header);
    return loads_close(w.f, e, dir, err);
}

/* ---- the store's loader ---- */

typedef struct loads_model {
    const model *m;
    backend *b;
    int32_t rank;
} loads_model;

static quire_err loads_load(void *context, const char *path, loaded_adapter *out, quire_error *err) {
    const loads_model *l = context;
    const adapter_limits limits = {.max_rank = l->rank, .max_bytes = INT64_MAX};
    model_adapter *own = mem_new(1, sizeof *own);
    TRY(mem_check_for(own, "an adapter", err));
    const quire_err e = model_adapter_open(l->m, l->b, path, &limits, own, err);
    if (e != QUIRE_OK) {
        mem_free(own);
        return e;
    }
    *out = (loaded_adapter){.weights = own->weights, .rank = own->rank, .n_bytes = own->n_bytes, .own = own};
    return QUIRE_OK;
}

static void loads_free(void *context, loaded_adapter *a) {
    const loads_model *l = context;
    model_adapter_close(l->b, a->own);
    mem_free(a->own);
}

/* ---- requests ---- */

/* A request: it wants an adapter, and has it until its place is another one's. */
typedef struct loads_request {
    adapter_want want; /* first */
    char name[32];
    wake answered;
} loads_request;

static void loads_answered(adapter_want *w) {
    wake_ring(&((loads_request *)(void *)w)->answered);
}

/* A number below n, drawn by Zipf's law: i has a weight of 1 / (i + 1). */
static int32_t loads_draw(uint64_t *seed, int32_t n) {
    double sum = 0.0;
    for (int32_t i = 0; i < n; i++) {
        sum += 1.0 / (i + 1);
    }
    double left = (double)rng_uniform((uint32_t)(rng_next(seed) >> 32)) * sum;
    int32_t i = 0;
    while (i + 1 < n && left > 1.0 / (i + 1)) {
        left -= 1.0 / (i++ + 1);
    }
    return i;
}

/* Requests the adapter. True: it is loaded. */
static bool loads_want(adapter_store *s, loads_request *r, int32_t number) {
    const adapter_source from = adapter_store_source(s);
    (void)snprintf(r->name, sizeof r->name, "adapter-%d", (int)number);
    r->want =
        (adapter_want){.parts = {{.name = r->name, .scale = 1.0f}}, .n_parts = 1, .ready = loads_answered};
    return from.want(from.context, &r->want);
}

static quire_err loads_result(const loads_request *r, quire_error *err) {
    const quire_error *why = &r->want.error;
    return r->want.ref != NULL ? QUIRE_OK : err_set(err, why->code, -1, "%s", why->message);
}

/* What reading took, of one adapter, or of all. */
typedef struct loads_read {
    const adapter_ref *of; /* NULL: all */
    int64_t us;
} loads_read;

static void loads_add_read(void *context, const adapter_about *a) {
    loads_read *r = context;
    r->us += r->of == NULL || r->of == a->ref ? a->load_us : 0;
}

static double loads_read_ms(adapter_store *s, const adapter_ref *of) {
    loads_read r = {.of = of};
    adapter_store_visit(s, loads_add_read, &r);
    return (double)r.us * 1e-3;
}

/* All places get a request at once. */
static quire_err loads_fill(adapter_store *s, const adapter_loads_options *o, loads_request *all,
                            uint64_t *seed, adapter_loads *out, quire_error *err) {
    bool *is_there = mem_new((size_t)o->n_in_use, sizeof *is_there);
    quire_err e = mem_check_for(is_there, "requests", err);
    for (int32_t i = 0; e == QUIRE_OK && i < o->n_in_use; i++) {
        is_there[i] = loads_want(s, &all[i], loads_draw(seed, o->n_known));
    }
    for (int32_t i = 0; is_there != NULL && i < o->n_in_use; i++) { /* all of them, whatever became of one */
        if (!is_there[i]) {
            (void)wake_wait(&all[i].answered, -1);
        }
        e = e == QUIRE_OK ? loads_result(&all[i], err) : e;
        out->all_wait = fmax(out->all_wait, (double)all[i].want.load_us * 1e-3);
    }
    mem_free(is_there);
    out->all_read = loads_read_ms(s, NULL);
    return e;
}

/* One request after the other, each in the place of one that is drawn. */
static quire_err loads_replace(adapter_store *s, const adapter_loads_options *o, loads_request *all,
                               uint64_t *seed, adapter_loads *out, quire_error *err) {
    for (int32_t i = 0; i < o->n_draws; i++) {
        loads_request *r = &all[rng_next(seed) % (uint64_t)o->n_in_use];
        adapter_ref_drop(r->want.ref);
        r->want.ref = NULL;
        if (!loads_want(s, r, loads_draw(seed, o->n_known))) {
            (void)wake_wait(&r->answered, -1);
        }
        TRY(loads_result(r, err));
        const double wait = (double)r->want.load_us * 1e-3, read = loads_read_ms(s, r->want.ref);
        if (wait > 0.0 && wait * out->one_read >= out->one_wait * read) {
            out->one_wait = wait;
            out->one_read = read;
        }
    }
    return QUIRE_OK;
}

static quire_err loads_know(adapter_store *s, int32_t n, const char *path, quire_error *err) {
    for (int32_t i = 0; i < n; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "adapter-%d", (int)i);
        TRY(adapter_store_add(s, name, path, true, err));
    }
    return QUIRE_OK;
}

static quire_err loads_run(adapter_store *s, const adapter_loads_options *o, const char *path,
                           adapter_loads *out, quire_error *err) {
    uint64_t seed = 17;
    loads_request *all = mem_new((size_t)o->n_in_use, sizeof *all);
    quire_err e = mem_check_for(all, "requests", err);
    for (int32_t i = 0; e == QUIRE_OK && i < o->n_in_use; i++) {
        e = wake_init(&all[i].answered) == QUIRE_OK ? QUIRE_OK
                                                    : err_set(err, QUIRE_NO_MEMORY, -1, "no wake-up");
    }
    e = e == QUIRE_OK ? loads_know(s, o->n_known, path, err) : e;
    e = e == QUIRE_OK ? loads_fill(s, o, all, &seed, out, err) : e;
    e = e == QUIRE_OK ? loads_replace(s, o, all, &seed, out, err) : e;
    const adapter_bounds b = adapter_store_bounds(s);
    out->n_loads = b.n_loads;
    out->n_evictions = b.n_evictions;
    out->n_bytes = b.n_bytes;
    out->most_loaded = b.most_resident;
    for (int32_t i = 0; all != NULL && i < o->n_in_use; i++) {
        adapter_ref_drop(all[i].want.ref);
        wake_deinit(&all[i].answered);
    }
    mem_free(all);
    return e;
}

quire_err adapter_loads_measure(model *m, backend *b, const adapter_loads_options *o, adapter_loads *out,
                                quire_error *err) {
    temporary dir;
    adapter_store *s = NULL;
    loads_model l = {.m = m, .b = b, .rank = o->rank};
    *out = (adapter_loads){0};
    TRY(temporary_make(&dir, err));
    quire_err e = loads_write(m, o->rank, dir.path, err);
    if (e == QUIRE_OK) {
        e = adapter_store_open(&(adapter_store_options){.max_resident = o->n_in_use, .max_rank = o->rank},
                               &(adapter_loader){.load = loads_load, .free = loads_free, .context = &l}, &s,
                               err);
    }
    e = e == QUIRE_OK ? loads_run(s, o, dir.path, out, err) : e;
    adapter_store_close(s);
    temporary_remove(&dir);
    return e;
}
