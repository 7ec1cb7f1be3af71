#include "model/model_adapter.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "file/show.h"
#include "model/adapter_experts.h"

#define PEFT_PREFIX "base_model.model."

/* ---- tensors by module ---- */

/* A tensor's place: its module, and what it is to it. */
typedef struct tensor_place {
    str module;
    int part; /* adapter_part; -1: it is not read */
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

/* False: a name that no adapter has. */
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

/* Refuses values that are not numbers, and types other than floats. */
static quire_err adapter_check_values(const adapter_opening *o, const tensor_view *t) {
    const uint8_t *p = t->data;
    const size_t n = t->n_bytes / (t->type == DTYPE_F32 ? 4 : 2);
    uint32_t largest = 0; /* exponents: all bits set are infinity and NaN */
    if (t->type != DTYPE_F32 && t->type != DTYPE_F16 && t->type != DTYPE_BF16) {
        char what[160];
        (void)snprintf(
            what, sizeof what,
            "has type %s: of adapters Quire reads F32, F16 and BF16; save or convert it in one of them",
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
               ? adapter_refuse(o, QUIRE_BAD_FILE, t,
                                "has values that are infinite or no numbers: its training failed, "
                                "or the file is damaged")
               : QUIRE_OK;
}

static quire_err adapter_bind_module(adapter_opening *o, const adapter_module *module) {
    return adapter_experts_is(o, module) ? adapter_experts_bind(o, module) : adapter_module_bind(o, module);
}

/* Gives the tensor to its module; a module's tensors come one after the other. */
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
        return adapter_refuse(o, QUIRE_BAD_FILE, t, "is there a second time under another name");
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
                       "%s: tensor %s cannot be read (%s): of adapters Quire reads F32, F16 and BF16",
                       o->f->path, show_name(str_of(d->names.p + u->name_at)).text, u->why);
    }
    for (int32_t i = 0; i < d->n; i++) {
        tensor_place place;
        if (!adapter_place(o->f, d->views[i].name, &place)) {
            return adapter_refuse(o, QUIRE_UNSUPPORTED, &d->views[i],
                                  o->f->facts.format == ADAPTER_GGUF
                                      ? "is neither a lora_a nor a lora_b: this is no LoRA adapter"
                                      : "is no part of a LoRA adapter that Quire reads");
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

/* A GGUF file says for which architecture it was made. */
static quire_err adapter_check_base(const adapter_opening *o) {
    const char *made_for = o->f->facts.architecture, *is = o->m->desc.architecture;
    if (made_for[0] == 0 || strcmp(made_for, is) == 0) {
        return QUIRE_OK;
    }
    return err_set(o->err, QUIRE_UNSUPPORTED, -1,
                   "%s: an adapter for models of architecture %s; this one is %s: load it with its own base",
                   o->f->path, show_name(str_of(made_for)).text, is);
}

static quire_err adapter_pack(adapter_opening *o, model_adapter *made) {
    const backend_ops *op = o->b->ops;
    if (op->adapter_load == NULL) {
        return err_set(o->err, QUIRE_UNSUPPORTED, -1, "%s: this backend computes no adapters", o->f->path);
    }
    TRY(adapter_check_base(o));
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
        log_line(LOG_INFO, "%s: %d modules of towers for images and sound are left out", o->f->path,
                 (int)o->n_of_towers);
    }
    return QUIRE_OK;
}

quire_err model_adapter_open(const model *m, backend *b, const char *path, const adapter_limits *limits,
                             model_adapter *out, quire_error *err) {
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
    if (a->weights != NULL) {
        b->ops->adapter_free(b, a->weights);
    }
    mem_free(a->invocation);
    mem_free(a->invocation_text);
    *a = (model_adapter){0};
}
