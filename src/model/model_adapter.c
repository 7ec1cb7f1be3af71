#include "model/model_adapter.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "file/show.h"
#include "model/adapter_change.h"

/* Adapters of experts whose weights are one parameter per layer (PEFT's
 * target_parameters).
 *
 * PEFT's A is [E rank, d1] and its B [d2, rank E]. For expert e of the parameter [E, d1,
 * d2] the addend is scale times the sum over k of A[e rank + k, i] B[j, k E + e]. From
 * PEFT 0.20 on, A belongs to the inputs and B to the outputs even if the parameter has
 * the outputs first. */

#define PEFT_PREFIX "base_model.model."
#define PEFT_INPUTS 20            /* first PEFT version (0.20) in which A always belongs to the inputs */
#define NESTED      ".base_layer" /* suffix of a second parameter of the same module */

/* A parameter of all experts, and the orientation of the adapter's matrices. */
typedef struct experts_param {
    const adapter_module *module;
    int32_t n_experts;
    int64_t n_rows, n_in; /* of one expert: outputs and inputs; outputs of gate and up together */
    int64_t rank;
    bool turned; /* the parameter is [E, n_rows, n_in], not [E, n_in, n_rows] */
    float scale;
} experts_param;

/* The experts' name. */
static str experts_name(const adapter_module *module) {
    str name = module->name;
    while (str_ends(name, NESTED)) {
        name.n -= strlen(NESTED);
    }
    return name;
}

/* Whether a module is a layer's experts. */
static bool adapter_experts_is(const adapter_opening *o, const adapter_module *module) {
    return o->f->facts.format == ADAPTER_PEFT && module->parts[PART_A] != NULL &&
           module->parts[PART_B] != NULL && str_ends(experts_name(module), ".experts");
}

/* Element [r, k] of a matrix with elements of `size` bytes. */
static const uint8_t *element(const tensor_view *t, int64_t r, int64_t k, size_t size) {
    return (const uint8_t *)t->data + (size_t)(r * t->dims[1] + k) * size;
}

/* Whether the matrices of a square parameter, whose dimensions do not tell, are
 * transposed. If the adapter has the other parameter of the same experts, its dimensions
 * decide; otherwise the version of PEFT does. */
static bool experts_are_turned(const adapter_opening *o, const adapter_module *m, int64_t n_in, bool is_down,
                               bool transposed) {
    const str name = experts_name(m);
    char full[2 * LOADER_NAME_BYTES];
    const int length = snprintf(full, sizeof full, PEFT_PREFIX "%.*s%s.lora_A.weight", (int)name.n, name.p,
                                str_eq(name, m->name) ? NESTED : "");
    const int32_t i = tensor_dir_find(&o->f->tensors, (str){full, (size_t)length});
    if (i >= 0 && o->f->tensors.views[i].n_dims == 2) {
        return (o->f->tensors.views[i].dims[1] == n_in) != is_down;
    }
    return !transposed && o->f->peft_minor < PEFT_INPUTS;
}

/* Whether the adapter's matrices fit a parameter of these dimensions. */
static bool experts_fit(const adapter_opening *o, const adapter_module *m, int32_t n_experts, int64_t n_rows,
                        int64_t n_in, bool is_down, bool transposed, experts_param *out) {
    const tensor_view *a = m->parts[PART_A], *b = m->parts[PART_B];
    const bool is_matrix = a->n_dims == 2 && b->n_dims == 2 && n_experts > 0 && a->dims[0] % n_experts == 0 &&
                           a->dims[0] == b->dims[1];
    const bool straight = is_matrix && a->dims[1] == n_in && b->dims[0] == n_rows,
               turned = is_matrix && a->dims[1] == n_rows && b->dims[0] == n_in;
    *out = (experts_param){.module = m, .n_experts = n_experts, .n_rows = n_rows, .n_in = n_in};
    out->rank = is_matrix ? a->dims[0] / n_experts : 0;
    out->turned = straight && turned ? experts_are_turned(o, m, n_in, is_down, transposed) : turned;
    return straight || turned;
}

/* Adds the change of one expert's product. Its row r is row first + r / block * step + r
 * % block of the parameter. */
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

/* Checks the rank and computes the scale, matching the config's patterns with the
 * parameter's name. */
static quire_err experts_begin(adapter_opening *o, const char *end, experts_param *p) {
    const str name = experts_name(p->module);
    char full[LOADER_NAME_BYTES];
    const int length = snprintf(full, sizeof full, "%.*s%s", (int)name.n, name.p, end);
    TRY(adapter_check_rank(o, p->module->parts[PART_A], p->rank));
    return adapter_file_scale(o->f, (str){full, (size_t)length}, p->rank, &p->scale, o->err);
}

/* Binds experts stored in one tensor. *bound: the adapter is for them. */
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
        !experts_fit(o, m, w->part.n_slabs, w->part.n_rows, w->n_in, str_ends(str_of(end), "down_proj"),
                     w->part.transposed, &p)) {
        return QUIRE_OK;
    }
    TRY(experts_begin(o, end, &p));
    for (int32_t i = 0; i < n; i++) {
        const weight_ref *ref = &t->refs[refs[i].i];
        const weight_part *part = &t->entries[ref->entry].part;
        TRY(experts_add(o, &p, ref, part->slab, part));
    }
    *bound = true;
    return QUIRE_OK;
}

/* The ref of one expert's product in a file with a tensor per expert; NULL: none. */
static const weight_ref *experts_one(const adapter_opening *o, str name, int32_t expert, const char *what) {
    char full[LOADER_NAME_BYTES];
    int32_t first;
    const int length = snprintf(full, sizeof full, "%.*s.%d.%s", (int)name.n, name.p, (int)expert, what);
    const int32_t n = adapter_find_weight(o, (str){full, (size_t)length}, &first);
    return n == 1 ? &o->m->weights.refs[o->m->weights.by_name[0][first].i] : NULL;
}

/* Binds experts with separate tensors, which PEFT saw as one parameter: gate above up,
 * and down. */
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
    const bool is_down = experts_fit(o, m, n, width, f, true, false, &p);
    if (!is_down && !experts_fit(o, m, n, 2 * f, width, false, false, &p)) {
        return QUIRE_OK;
    }
    TRY(experts_begin(o, is_down ? ".down_proj" : ".gate_up_proj", &p));
    for (int32_t e = 0; e < n; e++) {
        for (int i = is_down ? 2 : 0; i < (is_down ? 3 : 2); i++) {
            const weight_ref *ref = experts_one(o, name, e, w[i]);
            const int64_t rows = is_down ? width : f;
            if (ref == NULL) {
                return adapter_refuse(o, QUIRE_UNSUPPORTED, m->parts[PART_A],
                                      "belongs to experts that this base stores in another form");
            }
            TRY(experts_add(o, &p, ref, e,
                            &(weight_part){.first = i == 1 ? f : 0, .block = rows, .step = rows}));
        }
    }
    *bound = true;
    return QUIRE_OK;
}

/* The name of the experts in checkpoints from before transformers 5; "": unchanged. */
static str experts_old_name(adapter_opening *o, str name) {
    static const char now[] = ".mlp.experts", old[] = ".block_sparse_moe.experts";
    char *out = str_ends(name, now) ? adapter_memory(o, name.n + sizeof old, 1) : NULL;
    if (out == NULL) {
        return (str){"", 0};
    }
    const size_t n = name.n - strlen(now);
    memcpy(out, name.p, n);
    memcpy(out + n, old, sizeof old);
    return str_of(out);
}

/* Adds the changes of all experts. Errors as in model_adapter_open. */
static quire_err adapter_experts_bind(adapter_opening *o, const adapter_module *module) {
    static const char *const ends[] = {".gate_up_proj", ".down_proj", ".up_proj", ".gate_proj"};
    const str names[] = {experts_name(module), experts_old_name(o, experts_name(module))};
    bool bound = false;
    for (size_t k = 0; k < 2 && !bound && names[k].n > 0 && names[k].n < LOADER_NAME_BYTES - 32; k++) {
        for (size_t i = 0; i < sizeof ends / sizeof *ends && !bound; i++) {
            TRY(experts_bind_stack(o, module, names[k], ends[i], &bound));
        }
        if (!bound) {
            TRY(experts_bind_list(o, module, names[k], &bound));
        }
    }
    return bound ? QUIRE_OK
                 : adapter_refuse(
                       o, QUIRE_UNSUPPORTED, module->parts[PART_A],
                       "fits no weights of the experts of this base: load the adapter with its own base");
}

/* ---- tensors by module ---- */

/* A tensor's module and its role there. */
typedef struct tensor_place {
    str module;
    int part; /* an adapter_part; -1: not read */
} tensor_place;

/* Endings of PEFT's names. The base's own table, which PEFT saves beside a changed one,
 * is not read. */
static const struct {
    const char *end;
    int part;
} peft_ends[] = {{".lora_A.weight", PART_A},
                 {".lora_B.weight", PART_B},
                 {".lora_embedding_A", PART_ROWS_A},
                 {".lora_embedding_B", PART_ROWS_B},
                 {".lora_magnitude_vector", PART_MAGNITUDE},
                 {".lora_magnitude_vector.weight", PART_MAGNITUDE},
                 {".base_layer.bias", PART_BIAS},
                 {".base_layer.weight", -1},
                 {".modules_to_save.bias", PART_BIAS},
                 {".modules_to_save.weight", PART_WHOLE},
                 {".bias", PART_BIAS},
                 {".weight", PART_WHOLE}};

static const struct {
    const char *end;
    int part;
} gguf_ends[] = {
    {".weight.lora_a", PART_A}, {".weight.lora_b", PART_B}, {".lora_a", PART_A}, {".lora_b", PART_B}};

/* Finds a tensor's module and role. False: not a name of an adapter. */
static bool adapter_place(const adapter_file *f, const char *name, tensor_place *out) {
    const str s = str_of(name);
    const bool is_gguf = f->facts.format == ADAPTER_GGUF;
    const size_t n = is_gguf ? sizeof gguf_ends / sizeof *gguf_ends : sizeof peft_ends / sizeof *peft_ends;
    for (size_t i = 0; i < n; i++) {
        const char *end = is_gguf ? gguf_ends[i].end : peft_ends[i].end;
        if (str_ends(s, end)) {
            const size_t skip = !is_gguf && str_begins(s, PEFT_PREFIX) ? strlen(PEFT_PREFIX) : 0,
                         cut = strlen(end);
            out->module = (str){s.p + skip, s.n > skip + cut ? s.n - skip - cut : 0};
            out->part = is_gguf ? gguf_ends[i].part : peft_ends[i].part;
            return out->module.n > 0;
        }
    }
    return false;
}

/* Refuses types other than floats, and values that are not finite. */
static quire_err adapter_check_values(const adapter_opening *o, const tensor_view *t) {
    const uint8_t *p = t->data;
    const size_t n = t->n_bytes / (t->type == DTYPE_F32 ? 4 : 2);
    uint32_t largest = 0; /* exponent with all bits set: infinity or NaN */
    if (t->type != DTYPE_F32 && t->type != DTYPE_F16 && t->type != DTYPE_BF16) {
        char what[160];
        (void)snprintf(what, sizeof what,
                       "has type %s: Quire reads adapters in F32, F16 and BF16; convert it to one of them",
                       dtype_name(t->type));
        return adapter_refuse(o, QUIRE_UNSUPPORTED, t, what);
    }
    const uint32_t mask = t->type == DTYPE_F32 ? 0x7f800000u : t->type == DTYPE_F16 ? 0x7c00u : 0x7f80u;
    for (size_t i = 0; i < n; i++) {
        uint32_t word;
        uint16_t half;
        if (t->type == DTYPE_F32) {
            memcpy(&word, p + 4 * i, sizeof word);
        } else {
            memcpy(&half, p + 2 * i, sizeof half);
            word = half;
        }
        const uint32_t exponent = word & mask;
        largest = exponent > largest ? exponent : largest;
    }
    return largest == mask
               ? adapter_refuse(
                     o, QUIRE_BAD_FILE, t,
                     "has values that are infinite or NaN: its training failed, or the file is damaged")
               : QUIRE_OK;
}

static quire_err adapter_bind_module(adapter_opening *o, const adapter_module *module) {
    return adapter_experts_is(o, module) ? adapter_experts_bind(o, module) : adapter_module_bind(o, module);
}

/* Adds the tensor to its module; the tensors of a module are adjacent. */
static quire_err adapter_collect(adapter_opening *o, const tensor_view *t, adapter_module *module) {
    tensor_place place;
    (void)adapter_place(o->f, t->name, &place);
    if (module->name.p != NULL && !str_eq(module->name, place.module)) {
        TRY(adapter_bind_module(o, module));
        *module = (adapter_module){0};
    }
    module->name = place.module;
    if (place.part < 0) {
        return QUIRE_OK;
    }
    TRY(adapter_check_values(o, t));
    if (module->parts[place.part] != NULL) {
        return adapter_refuse(o, QUIRE_BAD_FILE, t, "occurs twice, under two names");
    }
    module->parts[place.part] = t;
    return QUIRE_OK;
}

/* Sorts the tensors by module; refs: [tensors]. */
static quire_err adapter_sort(const adapter_opening *o, name_ref *refs) {
    const tensor_dir *d = &o->f->tensors;
    if (d->n_unread > 0) {
        const unread_tensor *u = &d->unread[0];
        return err_set(o->err, QUIRE_UNSUPPORTED, -1,
                       "%s: tensor %s cannot be read (%s): Quire reads adapters in F32, F16 and BF16",
                       o->f->path, show_name(str_of(d->names.p + u->name_at)).text, u->why);
    }
    for (int32_t i = 0; i < d->n; i++) {
        tensor_place place;
        if (!adapter_place(o->f, d->views[i].name, &place)) {
            return adapter_refuse(o, QUIRE_UNSUPPORTED, &d->views[i],
                                  o->f->facts.format == ADAPTER_GGUF
                                      ? "is neither a lora_a nor a lora_b: this is not a LoRA adapter"
                                      : "is not a part of LoRA adapters that Quire reads");
        }
        refs[i] = (name_ref){place.module, i};
    }
    (void)names_sort(refs, d->n);
    return QUIRE_OK;
}

static quire_err adapter_bind(adapter_opening *o) {
    const tensor_dir *d = &o->f->tensors;
    name_ref *refs = adapter_memory(o, (size_t)d->n, sizeof *refs);
    adapter_module module = {0};
    if (refs == NULL) {
        return QUIRE_NO_MEMORY;
    }
    TRY(adapter_sort(o, refs));
    for (int32_t i = 0; i < d->n; i++) {
        TRY(adapter_collect(o, &d->views[refs[i].i], &module));
    }
    if (module.name.p != NULL) {
        TRY(adapter_bind_module(o, &module));
    }
    return o->n > 0 ? QUIRE_OK
                    : err_set(o->err, QUIRE_BAD_FILE, -1, "%s: the adapter changes nothing; save it again",
                              o->f->path);
}

/* ---- opening ---- */

/* Checks the architecture for which a GGUF file says it was made. */
static quire_err adapter_check_base(const adapter_opening *o) {
    const char *made_for = o->f->facts.architecture, *is = o->m->desc.architecture;
    if (made_for[0] == 0 || strcmp(made_for, is) == 0) {
        return QUIRE_OK;
    }
    return err_set(
        o->err, QUIRE_UNSUPPORTED, -1,
        "%s: the adapter is for models of architecture %s, but this model is %s: load it with its own base",
        o->f->path, show_name(str_of(made_for)).text, is);
}

/* Refuses an invocation text with ids outside the vocabulary, which could never activate
 * it. */
static quire_err adapter_check_invocation(const adapter_opening *o) {
    const char *member =
        o->f->facts.format == ADAPTER_PEFT ? "alora_invocation_tokens" : "adapter.alora.invocation_tokens";
    for (int32_t i = 0; i < o->f->n_invocation; i++) {
        if (o->f->invocation[i] >= o->m->desc.n_vocab) {
            return err_set(o->err, QUIRE_BAD_FILE, -1, "%s: %s[%d] is %d; the model's vocabulary has %d ids",
                           o->f->path, member, (int)i, (int)o->f->invocation[i], (int)o->m->desc.n_vocab);
        }
    }
    return QUIRE_OK;
}

static quire_err adapter_pack(adapter_opening *o, model_adapter *made) {
    const backend_ops *op = o->b->ops;
    if (op->adapter_load == NULL) {
        return err_set(o->err, QUIRE_UNSUPPORTED, -1, "%s: this backend computes no adapters", o->f->path);
    }
    TRY(adapter_check_base(o));
    TRY(adapter_check_invocation(o));
    o->taken = adapter_memory(o, o->m->weights.n, sizeof *o->taken);
    if (o->taken == NULL) {
        return QUIRE_NO_MEMORY;
    }
    TRY(adapter_bind(o));
    if (o->n > INT32_MAX) {
        return err_set(o->err, QUIRE_TOO_LARGE, -1, "%s: too many tensors", o->f->path);
    }
    const quire_err e = op->adapter_load(o->b, o->changes, (int32_t)o->n, &made->weights, o->err);
    if (e != QUIRE_OK) {
        return o->err != NULL && strstr(o->err->message, o->f->path) == NULL
                   ? err_prefix(o->err, e, o->f->path)
                   : e;
    }
    made->n_bytes = op->adapter_bytes(made->weights);
    if (o->n_of_towers > 0) {
        log_line(LOG_INFO, "%s: %d modules of image and sound towers are left out", o->f->path,
                 (int)o->n_of_towers);
    }
    return QUIRE_OK;
}

quire_err model_adapter_open(const model *m, backend *b, const char *path, const adapter_limits *limits,
                             model_adapter *out, quire_error *err) {
    assert(limits != NULL);
    adapter_file *f;
    TRY(adapter_file_open(path, limits->max_bytes, &f, err));
    adapter_opening o = {.m = m, .b = b, .f = f, .max_rank = limits->max_rank, .err = err};
    model_adapter made = {.facts = f->facts, .n_invocation = f->n_invocation};
    quire_err e = adapter_pack(&o, &made);
    if (e == QUIRE_OK) {
        made.rank = o.rank;
        memcpy(made.digest, f->digest, sizeof made.digest);
        made.invocation = f->invocation;
        made.invocation_text = f->invocation_text;
        f->invocation = NULL;
        f->invocation_text = NULL;
        *out = made;
    }
    for (size_t i = 0; i < o.n_memory; i++) {
        mem_free(o.memory[i]);
    }
    mem_free(o.memory);
    mem_free(o.changes);
    adapter_file_close(f);
    return e;
}

void model_adapter_close(backend *b, model_adapter *a) {
    assert(a != NULL);
    if (a->weights != NULL) {
        b->ops->adapter_free(b, a->weights);
    }
    mem_free(a->invocation);
    mem_free(a->invocation_text);
    *a = (model_adapter){0};
}
