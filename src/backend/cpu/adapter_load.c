/* Loads adapters: checks their changes and packs them. Any thread, even while steps run,
 * since it only reads what loading the model made. */
#include <string.h>

#include "backend/cpu/adapter.h"
#include "base/mem.h"
#include "base/size.h"

/* An adapter's memory, handed out from the front. */
typedef struct adapter_memory {
    uint8_t *at;
    size_t left;
} adapter_memory;

/* Takes n * size bytes, which `count` has counted before. */
static void *take(adapter_memory *m, size_t n, size_t size) {
    const size_t bytes = size_align(n * size, MEM_ALIGN);
    void *p = m->at;
    assert(bytes <= m->left);
    m->at += bytes;
    m->left -= bytes;
    return p;
}

/* Counts what take(n, size) takes. */
static bool count(size_t *sum, size_t n, size_t size) {
    size_t bytes;
    return size_mul(n, size, &bytes) && bytes < SIZE_MAX / 2 &&
           size_add(*sum, size_align(bytes, MEM_ALIGN), sum) && *sum < SIZE_MAX / 2;
}

/* ---- checks ---- */

/* A change's name in errors. */
static const char *change_name(const adapter_change *c) {
    const tensor_view *v = c->a != NULL              ? c->a
                           : c->weight != NULL       ? c->weight
                           : c->instead != NULL      ? c->instead->weight
                           : c->norm == NULL         ? NULL
                           : c->norm->weight != NULL ? c->norm->weight
                                                     : c->norm->bias;
    return v != NULL ? v->name : "a bias";
}

/* Shape of the changed object: [n_out, n_in] of a linear, [V, D] of an embedding. */
static void changed_shape(const adapter_change *c, int64_t *rows, int64_t *columns) {
    int32_t width = 0;
    if (c->w != NULL) {
        *rows = c->w->layout.n_out;
        *columns = c->w->layout.n_in;
    } else {
        cpu_embedding_shape(c->rows, rows, &width);
        *columns = width;
    }
}

/* Checks that v is a matrix of floats, rows x columns; 0: any number. */
static quire_err check_matrix(const tensor_view *v, int64_t rows, int64_t columns, quire_error *err) {
    size_t n, bytes;
    if (v->type != DTYPE_F32 && v->type != DTYPE_F16 && v->type != DTYPE_BF16) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "tensor %s: an adapter's A and B cannot be of type %s",
                       v->name, dtype_name(v->type));
    }
    if (v->n_dims != 2 || v->dims[0] < 1 || v->dims[1] < 1 || (rows > 0 && v->dims[0] != rows) ||
        (columns > 0 && v->dims[1] != columns)) {
        return err_set(
            err, QUIRE_BAD_FILE, -1,
            "tensor %s: it is %lld x %lld, but the weights that it changes need a matrix of %lld %s", v->name,
            (long long)v->dims[0], (long long)v->dims[1], (long long)(rows > 0 ? rows : columns),
            rows > 0 ? "rows" : "columns");
    }
    if (v->packing != 0 || v->quant != NULL || !size_mul((size_t)v->dims[0], (size_t)v->dims[1], &n) ||
        !size_mul(n, (size_t)dtype_block_bytes(v->type), &bytes) || bytes > v->n_bytes) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tensor %s: its data is shorter than its shape requires",
                       v->name);
    }
    return QUIRE_OK;
}

/* Checks that the shapes of A and B fit the object and each other, and that steps have
 * room for the rank. */
static quire_err check_segment(const cpu_backend *b, const adapter_change *c, quire_error *err) {
    int64_t rows, columns;
    changed_shape(c, &rows, &columns);
    const bool is_linear = c->w != NULL;
    const int64_t rank = c->a->dims[0],
                  most = b->limits.max_adapters > 0 ? b->limits.max_rank : ADAPTER_MAX_RANK;
    if (c->a->n_dims == 2 && rank > most) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "tensor %s: rank %lld; at most %lld is allowed (--max-lora-rank)", c->a->name,
                       (long long)rank, (long long)most);
    }
    TRY(check_matrix(c->a, 0, is_linear ? columns : rows, err));
    TRY(check_matrix(c->b, is_linear ? rows : columns, 0, err));
    if (c->b->dims[1] != rank) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tensor %s: rank %lld beside one of %lld in %s", c->b->name,
                       (long long)c->b->dims[1], (long long)rank, c->a->name);
    }
    return QUIRE_OK;
}

static int32_t id_of(const adapter_change *c) {
    return c->w != NULL ? c->w->id : c->nm != NULL ? cpu_norm_id(c->nm) : cpu_embedding_id(c->rows);
}

static quire_err check_change(const cpu_backend *b, const adapter_change *c, quire_error *err) {
    const int n = (c->w != NULL) + (c->nm != NULL) + (c->rows != NULL);
    const bool of_linear = c->factors != NULL || c->bias != NULL || c->instead != NULL,
               is_wrong = n != 1 || (c->a == NULL) != (c->b == NULL) ||
                          (c->nm != NULL) != (c->norm != NULL) || (of_linear && c->w == NULL) ||
                          (c->weight != NULL && c->rows == NULL) || (c->a != NULL && c->nm != NULL);
    if (is_wrong || id_of(c) >= b->n_objects) {
        return err_set(err, QUIRE_INVALID, -1,
                       "%s: the adapter changes something that the model does not have", change_name(c));
    }
    return c->a != NULL ? check_segment(b, c, err) : QUIRE_OK;
}

/* ---- packing ---- */

static size_t a_numbers(const adapter_change *c) {
    const size_t rank = (size_t)c->a->dims[0], n = (size_t)c->a->dims[1];
    return c->w != NULL ? size_align(rank, ADAPTER_RANKS) * size_align(n, PACK_LANES) : rank * n;
}

static size_t b_numbers(const adapter_change *c) {
    return size_align((size_t)c->b->dims[0], PACK_LANES) * (size_t)c->b->dims[1];
}

/* Counts the bytes of a change. Cannot overflow: tensor sizes were checked, and padding
 * makes them at most 64 times as large. */
static bool count_change(const adapter_change *c, size_t *sum) {
    const size_t n_out = c->w != NULL ? (size_t)c->w->layout.n_blocks * PACK_LANES : 0;
    bool fits = c->factors == NULL || count(sum, n_out, sizeof(float));
    fits = fits && (c->bias == NULL || count(sum, n_out, sizeof(float)));
    return fits && (c->a == NULL || (c->a->n_bytes < SIZE_MAX / 256 && c->b->n_bytes < SIZE_MAX / 256 &&
                                     count(sum, a_numbers(c), adapter_number_bytes(c->a->type)) &&
                                     count(sum, b_numbers(c), adapter_number_bytes(c->b->type))));
}

/* Packs A of a linear: 16 inputs of a rank are adjacent. */
static void pack_a(const tensor_view *v, uint8_t *to) {
    const size_t size = adapter_number_bytes(v->type), rank = (size_t)v->dims[0], n = (size_t)v->dims[1],
                 steps = size_align(n, PACK_LANES) / PACK_LANES;
    for (size_t r = 0; r < rank; r++) {
        const uint8_t *from = (const uint8_t *)v->data + r * n * size;
        uint8_t *row =
            to + (r / ADAPTER_RANKS * steps * ADAPTER_RANKS + r % ADAPTER_RANKS) * PACK_LANES * size;
        for (size_t k = 0; k < n; k += PACK_LANES, row += ADAPTER_RANKS * PACK_LANES * size) {
            memcpy(row, from + k * size, (n - k < PACK_LANES ? n - k : PACK_LANES) * size);
        }
    }
}

static void copy_packed(const uint8_t *from, size_t size, uint8_t *to) {
    if (size == sizeof(float)) {
        memcpy(to, from, sizeof(float));
    } else {
        memcpy(to, from, sizeof(uint16_t));
    }
}

/* Packs B in blocks of 16 outputs, [rank][16]. */
static void pack_b(const tensor_view *v, uint8_t *to) {
    const size_t size = adapter_number_bytes(v->type), n = (size_t)v->dims[0], rank = (size_t)v->dims[1];
    for (size_t c = 0; c < n; c++) {
        const uint8_t *from = (const uint8_t *)v->data + c * rank * size;
        uint8_t *column = to + (c / PACK_LANES * rank * PACK_LANES + c % PACK_LANES) * size;
        for (size_t r = 0; r < rank; r++) {
            copy_packed(from + r * size, size, column + r * PACK_LANES * size);
        }
    }
}

/* Packs A of an embedding: the ranks of a row are adjacent. */
static void pack_rows_of_a(const tensor_view *v, uint8_t *to) {
    const size_t size = adapter_number_bytes(v->type), rank = (size_t)v->dims[0], n = (size_t)v->dims[1];
    for (size_t i = 0; i < n; i++) {
        for (size_t r = 0; r < rank; r++) {
            copy_packed((const uint8_t *)v->data + (r * n + i) * size, size, to + (i * rank + r) * size);
        }
    }
}

static const float *pack_floats(const float *from, const linear *w, adapter_memory *m) {
    if (from == NULL) {
        return NULL;
    }
    float *to = take(m, (size_t)w->layout.n_blocks * PACK_LANES, sizeof *to);
    memcpy(to, from, sizeof *to * (size_t)w->layout.n_out);
    return to;
}

static void pack_segment(const adapter_change *c, adapter_memory *m, adapter_segment *out) {
    uint8_t *a = take(m, a_numbers(c), adapter_number_bytes(c->a->type)),
            *b = take(m, b_numbers(c), adapter_number_bytes(c->b->type));
    if (c->w != NULL) {
        pack_a(c->a, a);
    } else {
        pack_rows_of_a(c->a, a);
    }
    pack_b(c->b, b);
    *out = (adapter_segment){.a_type = c->a->type,
                             .b_type = c->b->type,
                             .rank = (int32_t)c->a->dims[0],
                             .scale = c->scale,
                             .a = a,
                             .b = b};
}

/* ---- objects that the loading calls make ---- */

static void adapter_close_store(cpu_backend *s) {
    if (s != NULL) {
        cpu_own_free(s);
        thread_pool_close(s->thread_pool);
        mem_free(s);
    }
}

/* The backend that holds objects owned by an adapter; its loading calls run on the
 * calling thread. Made on first use. */
static quire_err adapter_store_of(const cpu_backend *b, adapter *a, quire_error *err) {
    if (a->store != NULL) {
        return QUIRE_OK;
    }
    cpu_backend *s = mem_new(1, sizeof *s);
    TRY(mem_check_for(s, "an adapter", err));
    s->base.compute = b->base.compute;
    s->isa = b->isa;
    s->math = b->math;
    s->linear = b->linear;
    s->nodes = b->nodes;
    const quire_err e = thread_pool_open(1, &s->thread_pool);
    if (e != QUIRE_OK) {
        mem_free(s);
        return err_set(err, e, -1, "out of memory for an adapter");
    }
    a->store = s;
    return QUIRE_OK;
}

/* Checks a replacing tensor and makes an unpacked view of it, whose bytes are copied. */
static quire_err check_instead(const tensor_view *v, int64_t rows, int64_t columns, tensor_view *out,
                               quire_error *err) {
    if (v->packing != 0 || v->quant != NULL || v->n_dims != 2 || v->dims[0] != rows ||
        v->dims[1] != columns) {
        return err_set(
            err, QUIRE_BAD_FILE, -1,
            "tensor %s: it must be a plain matrix of %lld x %lld, like the weights that it replaces", v->name,
            (long long)rows, (long long)columns);
    }
    *out = *v;
    out->stays = false;
    return QUIRE_OK;
}

static quire_err load_instead(adapter *a, const adapter_change *c, adapter_part *part, quire_error *err) {
    tensor_view view;
    linear_spec spec = *c->instead;
    linear *w = NULL;
    TRY(check_instead(spec.weight, c->w->layout.n_out, c->w->layout.n_in, &view, err));
    spec.weight = &view;
    TRY(cpu_linear_load(&a->store->base, &spec, &w, err));
    part->instead = w;
    part->bias = part->bias != NULL ? part->bias : w->bias;
    return QUIRE_OK;
}

static quire_err load_norm(adapter *a, const adapter_change *c, adapter_part *part, quire_error *err) {
    norm *nm = NULL;
    TRY(cpu_norm_load(&a->store->base, c->norm, &nm, err));
    if (!cpu_norm_is_alike(nm, c->nm)) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "tensor %s: its kind or width differs from the norm that it replaces", change_name(c));
    }
    part->nm = nm;
    return QUIRE_OK;
}

static quire_err load_rows(adapter *a, const adapter_change *c, adapter_part *part, quire_error *err) {
    tensor_view view;
    int64_t rows, columns;
    embedding *e = NULL;
    changed_shape(c, &rows, &columns);
    TRY(check_instead(c->weight, rows, columns, &view, err));
    TRY(cpu_embedding_load(&a->store->base, &view, &e, err));
    part->rows = e;
    return QUIRE_OK;
}

/* Fills a part from a change. */
static quire_err take_change(const cpu_backend *b, adapter *a, const adapter_change *c, adapter_memory *m,
                             adapter_segment *segment, adapter_part *part, quire_error *err) {
    if (c->a != NULL) {
        pack_segment(c, m, segment);
        part->segments = segment;
        part->n_segments = 1;
        part->rank = segment->rank;
    }
    if (c->w != NULL) {
        part->factors = pack_floats(c->factors, c->w, m);
        part->bias = pack_floats(c->bias, c->w, m);
    }
    if (c->instead == NULL && c->norm == NULL && c->weight == NULL) {
        return QUIRE_OK;
    }
    TRY(adapter_store_of(b, a, err));
    return c->instead != NULL ? load_instead(a, c, part, err)
           : c->norm != NULL  ? load_norm(a, c, part, err)
                              : load_rows(a, c, part, err);
}

/* ---- adapters ---- */

/* Counts the bytes that adapter_new takes for arrays. */
static bool count_arrays(const cpu_backend *b, size_t n_parts, size_t n_segments, size_t *sum) {
    *sum = 0;
    return count(sum, 1, sizeof(adapter)) && count(sum, (size_t)b->n_objects, sizeof(adapter_part *)) &&
           count(sum, n_parts, sizeof(adapter_part)) && count(sum, n_segments, sizeof(adapter_segment));
}

/* Allocates an adapter of n_bytes; *m is the memory left after its arrays. */
static quire_err adapter_new(const cpu_backend *b, size_t n_bytes, size_t n_parts, size_t n_segments,
                             adapter_memory *m, adapter_part **parts, adapter_segment **segments,
                             adapter **out, quire_error *err) {
    *m = (adapter_memory){cpu_new_spread(b, n_bytes), n_bytes};
    TRY(mem_check_for(m->at, "an adapter", err));
    adapter *a = take(m, 1, sizeof *a);
    a->n_objects = b->n_objects;
    a->n_bytes = (int64_t)n_bytes;
    a->parts = take(m, (size_t)b->n_objects, sizeof *a->parts);
    *parts = take(m, n_parts, sizeof **parts);
    *segments = take(m, n_segments, sizeof **segments);
    *out = a;
    return QUIRE_OK;
}

quire_err cpu_adapter_load(backend *base, const adapter_change *changes, int32_t n, adapter **out,
                           quire_error *err) {
    const cpu_backend *b = (const cpu_backend *)base;
    const size_t n_changes = (size_t)(n > 0 ? n : 0);
    size_t bytes;
    bool fits = count_arrays(b, n_changes, n_changes, &bytes);
    for (int32_t i = 0; i < n; i++) {
        TRY(check_change(b, &changes[i], err));
        fits = fits && count_change(&changes[i], &bytes);
    }
    if (!fits) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "the adapter has more bytes than can be addressed");
    }
    adapter_memory m;
    adapter_part *parts;
    adapter_segment *segments;
    adapter *a;
    TRY(adapter_new(b, bytes, n_changes, n_changes, &m, &parts, &segments, &a, err));
    quire_err e = QUIRE_OK;
    for (int32_t i = 0; i < n && e == QUIRE_OK; i++) {
        const int32_t id = id_of(&changes[i]);
        e = a->parts[id] != NULL
                ? err_set(err, QUIRE_INVALID, -1, "tensor %s: the adapter changes these weights twice",
                          change_name(&changes[i]))
                : take_change(b, a, &changes[i], &m, &segments[i], &parts[i], err);
        a->parts[id] = &parts[i];
    }
    if (e != QUIRE_OK) {
        cpu_adapter_free(base, a);
        return e;
    }
    *out = a;
    return QUIRE_OK;
}

void cpu_adapter_free(backend *b, adapter *a) {
    (void)b;
    if (a != NULL) {
        adapter_close_store(a->store);
        mem_free(a);
    }
}

int64_t cpu_adapter_bytes(const adapter *a) {
    return a->n_bytes + (a->store != NULL ? a->store->weight_bytes : 0);
}

/* ---- blends ---- */

/* Adds another adapter's change of an object, times scale, to a part of a blend. */
static quire_err blend_part(const adapter_part *from, float scale, adapter_segment **segments,
                            adapter_part *to, quire_error *err) {
    const bool is_first =
        to->n_segments == 0 && to->factors == NULL && to->bias == NULL && to->instead == NULL;
    if ((from->factors != NULL && (!is_first || scale != 1.0f)) || to->factors != NULL) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "an adapter with DoRA factors can neither be scaled nor be "
                       "combined with others that change the same weights");
    }
    if ((from->bias != NULL && to->bias != NULL) || (from->instead != NULL && to->instead != NULL) ||
        (from->nm != NULL && to->nm != NULL) || (from->rows != NULL && to->rows != NULL)) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "two adapters that replace the same weights, bias or norm cannot "
                       "be combined");
    }
    to->factors = from->factors;
    to->bias = from->bias != NULL ? from->bias : to->bias;
    to->instead = from->instead != NULL ? from->instead : to->instead;
    to->nm = from->nm != NULL ? from->nm : to->nm;
    to->rows = from->rows != NULL ? from->rows : to->rows;
    for (int32_t s = 0; s < from->n_segments; s++) {
        **segments = from->segments[s];
        (*segments)->scale *= scale;
        to->segments = to->n_segments == 0 ? *segments : to->segments;
        to->n_segments++;
        to->rank += from->segments[s].rank;
        (*segments)++;
    }
    return QUIRE_OK;
}

/* Counts the segments of all parts, and the objects that any of them changes. */
static void count_parts(const cpu_backend *b, const adapter *const *parts, int32_t n, size_t *n_parts,
                        size_t *n_segments) {
    *n_parts = *n_segments = 0;
    for (int32_t id = 0; id < b->n_objects; id++) {
        bool some = false;
        for (int32_t i = 0; i < n; i++) {
            const adapter_part *p = parts[i]->parts[id];
            some = some || p != NULL;
            *n_segments += p != NULL ? (size_t)p->n_segments : 0;
        }
        *n_parts += some;
    }
}

static quire_err blend_object(const cpu_backend *b, const adapter *const *parts, const float *scales,
                              int32_t n, int32_t id, adapter_segment **segments, adapter_part *to,
                              quire_error *err) {
    for (int32_t i = 0; i < n; i++) {
        if (parts[i]->parts[id] != NULL) {
            TRY(blend_part(parts[i]->parts[id], scales[i], segments, to, err));
        }
    }
    const int64_t most = b->limits.max_adapters > 0 ? b->limits.max_rank : ADAPTER_MAX_RANK;
    return to->rank <= most
               ? QUIRE_OK
               : err_set(err, QUIRE_UNSUPPORTED, -1,
                         "the adapters' ranks add up to %d; at most %lld is allowed (--max-lora-rank)",
                         to->rank, (long long)most);
}

quire_err cpu_adapter_blend(backend *base, const adapter *const *parts, const float *scales, int32_t n,
                            adapter **out, quire_error *err) {
    const cpu_backend *b = (const cpu_backend *)base;
    size_t n_parts, n_segments, bytes;
    adapter_memory m;
    adapter_part *to;
    adapter_segment *segments;
    adapter *a;
    count_parts(b, parts, n, &n_parts, &n_segments);
    if (!count_arrays(b, n_parts, n_segments, &bytes)) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "too many adapters are blended");
    }
    TRY(adapter_new(b, bytes, n_parts, n_segments, &m, &to, &segments, &a, err));
    for (int32_t id = 0; id < b->n_objects; id++) {
        bool some = false;
        for (int32_t i = 0; i < n; i++) {
            some = some || parts[i]->parts[id] != NULL;
        }
        if (!some) {
            continue;
        }
        a->parts[id] = to;
        const quire_err e = blend_object(b, parts, scales, n, id, &segments, to++, err);
        if (e != QUIRE_OK) {
            cpu_adapter_free(base, a);
            return e;
        }
    }
    *out = a;
    return QUIRE_OK;
}
