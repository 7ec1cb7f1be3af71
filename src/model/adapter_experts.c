#include "model/adapter_experts.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define NESTED ".base_layer" /* of a second parameter of the same module */

/* A parameter of all experts, and how the adapter's matrices lie to it. */
typedef struct experts_param {
    const adapter_module *module;
    int32_t n_experts;
    int64_t n_rows, n_in; /* of an expert: outputs and inputs, of gate and up together */
    int64_t rank;
    bool turned; /* the parameter is [E, n_rows, n_in], not [E, n_in, n_rows] */
    float scale;
} experts_param;

/* The name of the experts. */
static str experts_name(const adapter_module *module) {
    str name = module->name;
    while (str_ends(name, NESTED)) {
        name.n -= strlen(NESTED);
    }
    return name;
}

bool adapter_experts_is(const adapter_opening *o, const adapter_module *module) {
    return o->f->facts.format == ADAPTER_PEFT && module->parts[PART_A] != NULL &&
           module->parts[PART_B] != NULL && str_ends(experts_name(module), ".experts");
}

/* Element [r, k] of a matrix whose elements have `size` bytes. */
static const uint8_t *element(const tensor_view *t, int64_t r, int64_t k, size_t size) {
    return (const uint8_t *)t->data + (size_t)(r * t->dims[1] + k) * size;
}

/* Whether the adapter's matrices fit a parameter of these dimensions. */
static bool experts_fit(const adapter_module *m, int32_t n_experts, int64_t n_rows, int64_t n_in,
                        bool transposed, experts_param *out) {
    const tensor_view *a = m->parts[PART_A], *b = m->parts[PART_B];
    const bool is_matrix = a->n_dims == 2 && b->n_dims == 2 && n_experts > 0 && a->dims[0] % n_experts == 0 &&
                           a->dims[0] == b->dims[1];
    const bool straight = is_matrix && a->dims[1] == n_in && b->dims[0] == n_rows,
               turned = is_matrix && a->dims[1] == n_rows && b->dims[0] == n_in;
    *out = (experts_param){.module = m, .n_experts = n_experts, .n_rows = n_rows, .n_in = n_in};
    out->rank = is_matrix ? a->dims[0] / n_experts : 0;
    out->turned = turned && !(straight && transposed);
    return straight || turned;
}

/* The change of one expert's product, whose row r is row first + r / block * step + r %
 * block of the parameter's. */
static quire_err experts_add(adapter_opening *o, const experts_param *p, const weight_ref *ref,
                             int32_t expert, const weight_part *at) {
    const weight_entry *w = &o->m->weights.entries[ref->entry];
    const tensor_view *a = p->module->parts[PART_A], *b = p->module->parts[PART_B];
    const size_t size_a = (size_t)dtype_block_bytes(a->type), size_b = (size_t)dtype_block_bytes(b->type);
    tensor_view own_a = *a, own_b = *b;
    own_a.type = p->turned ? b->type : a->type;
    own_b.type = p->turned ? a->type : b->type;
    const size_t size_in = p->turned ? size_b : size_a, size_out = p->turned ? size_a : size_b;
    own_a.dims[0] = own_b.dims[1] = p->rank;
    own_a.dims[1] = p->n_in;
    own_b.dims[0] = w->n_out;
    own_a.n_bytes = (size_t)(p->rank * p->n_in) * size_in;
    own_b.n_bytes = (size_t)(w->n_out * p->rank) * size_out;
    uint8_t *rows_a = adapter_memory(o, own_a.n_bytes, 1), *rows_b = adapter_memory(o, own_b.n_bytes, 1);
    if (mem_check(rows_a) || mem_check(rows_b)) {
        TRY(QUIRE_NO_MEMORY);
    }
    for (int64_t k = 0; k < p->rank; k++) {
        const int64_t of_a = expert * p->rank + k, of_b = k * p->n_experts + expert;
        for (int64_t i = 0; i < p->n_in; i++) {
            memcpy(rows_a + (size_t)(k * p->n_in + i) * size_in,
                   p->turned ? element(b, i, of_b, size_b) : element(a, of_a, i, size_a), size_in);
        }
        for (int64_t r = 0; r < w->n_out; r++) {
            const int64_t row = at->first + r / at->block * at->step + r % at->block;
            memcpy(rows_b + (size_t)(r * p->rank + k) * size_out,
                   p->turned ? element(a, of_a, row, size_a) : element(b, row, of_b, size_b), size_out);
        }
    }
    own_a.data = rows_a;
    own_b.data = rows_b;
    adapter_change c = {.w = w->w, .scale = p->scale};
    TRY(adapter_keep(o, &own_a, &c.a));
    TRY(adapter_keep(o, &own_b, &c.b));
    return adapter_change_add(o, ref->entry, &c, a);
}

static quire_err experts_begin(adapter_opening *o, str name, experts_param *p) {
    TRY(adapter_check_rank(o, p->module->parts[PART_A], p->rank));
    return adapter_file_scale(o->f, name, p->rank, &p->scale, o->err);
}

/* Experts in one tensor. *bound: the adapter is of that one. */
static quire_err experts_bind_stack(adapter_opening *o, const adapter_module *m, str name, const char *end,
                                    bool *bound) {
    const weight_table *t = &o->m->weights;
    char full[LOADER_NAME_BYTES];
    int32_t first;
    experts_param p;
    const int length = snprintf(full, sizeof full, "%.*s%s", (int)name.n, name.p, end);
    const int32_t n = adapter_find_weight(o, (str){full, (size_t)length}, &first);
    const name_ref *refs = t->by_name[0] + first;
    const weight_entry *w = n > 0 ? &t->entries[t->refs[refs[0].i].entry] : NULL;
    if (w == NULL || w->w == NULL || w->part.n_slabs == 0 ||
        !experts_fit(m, w->part.n_slabs, w->part.n_rows, w->n_in, w->part.transposed, &p)) {
        return QUIRE_OK;
    }
    TRY(experts_begin(o, name, &p));
    for (int32_t i = 0; i < n; i++) {
        const weight_ref *ref = &t->refs[refs[i].i];
        const weight_part *part = &t->entries[ref->entry].part;
        TRY(experts_add(o, &p, ref, part->slab, part));
    }
    *bound = true;
    return QUIRE_OK;
}

/* The ref of one expert's product in a file that has a tensor for each; NULL: none. */
static const weight_ref *experts_one(const adapter_opening *o, str name, int32_t expert, const char *what) {
    char full[LOADER_NAME_BYTES];
    int32_t first;
    const int length = snprintf(full, sizeof full, "%.*s.%d.%s", (int)name.n, name.p, (int)expert, what);
    const int32_t n = adapter_find_weight(o, (str){full, (size_t)length}, &first);
    return n == 1 ? &o->m->weights.refs[o->m->weights.by_name[0][first].i] : NULL;
}

/* Experts in tensors of their own, which PEFT saw as one parameter: gate above up, and
 * down. */
static quire_err experts_bind_list(adapter_opening *o, const adapter_module *m, str name, bool *bound) {
    static const char *const names[2][3] = {{"gate_proj", "up_proj", "down_proj"}, {"w1", "w3", "w2"}};
    const weight_entry *entries = o->m->weights.entries;
    const char *const *w = experts_one(o, name, 0, names[0][2]) != NULL ? names[0] : names[1];
    int32_t n = 0;
    experts_param p;
    while (n < ROUTE_MAX_EXPERTS && experts_one(o, name, n, w[2]) != NULL) {
        n++;
    }
    const weight_ref *down = experts_one(o, name, 0, w[2]);
    if (down == NULL) {
        return QUIRE_OK;
    }
    const int64_t width = entries[down->entry].n_out, f = entries[down->entry].n_in;
    const bool is_down = experts_fit(m, n, width, f, false, &p);
    if (!is_down && !experts_fit(m, n, 2 * f, width, false, &p)) {
        return QUIRE_OK;
    }
    TRY(experts_begin(o, name, &p));
    for (int32_t e = 0; e < n; e++) {
        for (int i = is_down ? 2 : 0; i < (is_down ? 3 : 2); i++) {
            const weight_ref *ref = experts_one(o, name, e, w[i]);
            const int64_t rows = is_down ? width : f;
            if (ref == NULL) {
                return adapter_refuse(o, QUIRE_UNSUPPORTED, m->parts[PART_A],
                                      "is of experts that this base has otherwise");
            }
            TRY(experts_add(o, &p, ref, e,
                            &(weight_part){.first = i == 1 ? f : 0, .block = rows, .step = rows}));
        }
    }
    *bound = true;
    return QUIRE_OK;
}

quire_err adapter_experts_bind(adapter_opening *o, const adapter_module *module) {
    static const char *const ends[] = {".gate_up_proj", ".down_proj", ".up_proj", ".gate_proj"};
    const str name = experts_name(module);
    bool bound = false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends && !bound && name.n < LOADER_NAME_BYTES - 32; i++) {
        TRY(experts_bind_stack(o, module, name, ends[i], &bound));
    }
    if (!bound && name.n < LOADER_NAME_BYTES - 32) {
        TRY(experts_bind_list(o, module, name, &bound));
    }
    return bound ? QUIRE_OK
                 : adapter_refuse(
                       o, QUIRE_UNSUPPORTED, module->parts[PART_A],
                       "fits no weights of the experts of this base: load the adapter with its own base");
}
