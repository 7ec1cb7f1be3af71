#include "model/adapter_change.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "core/quant.h"
#include "file/show.h"

/* An entry of the table, with the name that a module has for it. */
typedef struct module_entry {
    const adapter_opening *o;
    const adapter_module *module;
    const weight_entry *entry;
    bool whole;     /* the module's tensors are those of the whole entry, not of its part */
    head_rows rows; /* order of rows in the other format; the same as ours except for queries and keys */
} module_entry;

void *adapter_memory(adapter_opening *o, size_t n, size_t size) {
    void *block = mem_new(n, size);
    if (block == NULL ||
        mem_grow(&o->memory, &o->cap_memory, o->n_memory + 1, sizeof *o->memory) != QUIRE_OK) {
        mem_free(block);
        (void)err_set(o->err, QUIRE_NO_MEMORY, -1, "%s: no memory to load the adapter", o->f->path);
        return NULL;
    }
    o->memory[o->n_memory++] = block;
    return block;
}

quire_err adapter_refuse(const adapter_opening *o, quire_err code, const tensor_view *t, const char *what) {
    return err_set(o->err, code, -1, "%s: tensor %s %s", o->f->path, show_name(str_of(t->name)).text, what);
}

quire_err adapter_change_add(adapter_opening *o, int32_t entry, const adapter_change *c,
                             const tensor_view *t) {
    assert(o != NULL && entry >= 0);
    if (o->taken[entry]) {
        return adapter_refuse(o, QUIRE_BAD_FILE, t,
                              "changes a weight that another tensor changes under another name");
    }
    TRY(err_set(o->err, mem_grow(&o->changes, &o->cap, o->n + 1, sizeof *o->changes), -1,
                "%s: no memory to load the adapter", o->f->path));
    o->taken[entry] = true;
    o->changes[o->n++] = *c;
    return QUIRE_OK;
}

/* ---- finding the weights ---- */

/* Prefixes of the text model in checkpoints (find_weight.h). */
static const char *const text_roots[] = {"model.",
                                         "language_model.model.",
                                         "model.language_model.",
                                         "model.text_model.",
                                         "language_model.",
                                         "bert.",
                                         "roberta.",
                                         "transformer.",
                                         ""};

int32_t adapter_find_weight(const adapter_opening *o, str name, int32_t *first) {
    assert(o != NULL);
    const bool of_gguf = o->f->facts.format == ADAPTER_GGUF;
    char text[LOADER_NAME_BYTES + 16];
    int32_t n = weight_table_find(&o->m->weights, of_gguf, name, first);
    for (size_t i = 0; !of_gguf && n == 0 && i < sizeof text_roots / sizeof *text_roots; i++) {
        const size_t cut = strlen(text_roots[i]);
        if (str_begins(name, text_roots[i]) && name.n - cut < LOADER_NAME_BYTES) {
            const int length = snprintf(text, sizeof text, "model.%.*s", (int)(name.n - cut), name.p + cut);
            n = weight_table_find(&o->m->weights, of_gguf, (str){text, (size_t)length}, first);
        }
    }
    return n;
}

static const tensor_view *module_any(const adapter_module *module) {
    const tensor_view *t = NULL;
    for (int i = 0; i < N_ADAPTER_PARTS && t == NULL; i++) {
        t = module->parts[i];
    }
    return t;
}

/* Whether a module is missing only because the base is a text-only model: the module is
 * part of an image or audio tower, or connects one to the text. */
static bool module_is_of_tower(str name) {
    static const char *const towers[] = {"visual",         "vision_tower", "vision_model",
                                         "vision_encoder", "audio_tower",  "multi_modal_projector",
                                         "mm_projector",   "embed_vision", "embed_audio"};
    bool is = false;
    for (size_t i = 0; i < sizeof towers / sizeof *towers && !is; i++) {
        const size_t n = strlen(towers[i]);
        for (size_t at = 0; at + n < name.n && !is; at++) {
            is = (at == 0 || name.p[at - 1] == '.') && memcmp(name.p + at, towers[i], n) == 0 &&
                 name.p[at + n] == '.';
        }
    }
    return is;
}

static quire_err module_unknown(const adapter_opening *o, const adapter_module *module) {
    char what[512];
    const bool has_base = o->f->facts.base[0] != 0, is_gguf = o->f->facts.format == ADAPTER_GGUF;
    if (is_gguf != o->m->from_gguf) {
        return adapter_refuse(o, QUIRE_UNSUPPORTED, module_any(module),
                              is_gguf ? "matches no weight that is a single tensor in this safetensors base; "
                                        "load the adapter with its own base, as GGUF"
                                      : "matches no weight that is a single tensor in this GGUF base; load "
                                        "the adapter with its own base, as safetensors");
    }
    (void)snprintf(
        what, sizeof what,
        "matches no weight of this %s (%s) that adapters can change%s%s; load the adapter with its own base",
        o->m->desc.architecture, o->m->from_gguf ? "GGUF" : "safetensors",
        has_base ? ": it was made for " : "", has_base ? show_name(str_of(o->f->facts.base)).text : "");
    return adapter_refuse(o, QUIRE_UNSUPPORTED, module_any(module), what);
}

/* ---- shapes ---- */

static quire_err module_bad_shape(const adapter_opening *o, const tensor_view *t, int64_t d0, int64_t d1) {
    char has[LOADER_SHAPE_BYTES], wanted[LOADER_SHAPE_BYTES], what[320];
    const int64_t want[] = {d0, d1};
    (void)snprintf(what, sizeof what, "has shape %s; this base needs %s: load the adapter with its own base",
                   loader_shape(t->dims, t->n_dims, has), loader_shape(want, d1 > 0 ? 2 : 1, wanted));
    return adapter_refuse(o, QUIRE_BAD_FILE, t, what);
}

/* Views a tensor as [d0, d1]; a GGUF file's may lack dimensions of 1. */
static quire_err module_matrix(const adapter_opening *o, const tensor_view *t, int64_t d0, int64_t d1,
                               tensor_view *out) {
    const bool is_line = t->n_dims == 1 && d0 == 1 && t->dims[0] == d1;
    if (!is_line && (t->n_dims != 2 || t->dims[0] != d0 || t->dims[1] != d1)) {
        return module_bad_shape(o, t, d0, d1);
    }
    *out = *t;
    out->n_dims = 2;
    out->dims[0] = d0;
    out->dims[1] = d1;
    return QUIRE_OK;
}

/* Handles a table of tokens that has grown with the adapter. */
static quire_err module_new_rows(const adapter_opening *o, const tensor_view *t, int64_t has, int64_t base) {
    char what[320];
    (void)snprintf(what, sizeof what,
                   "has %s rows for the vocabulary, but this base has %s: adapters that add rows are not "
                   "supported; merge it into its base",
                   show_count((uint64_t)has).text, show_count((uint64_t)base).text);
    return adapter_refuse(o, QUIRE_UNSUPPORTED, t, what);
}

quire_err adapter_check_rank(adapter_opening *o, const tensor_view *t, int64_t rank) {
    char what[160];
    if (rank < 1 || rank > o->max_rank) {
        (void)snprintf(what, sizeof what, "has rank %s; the limit is %d: raise --max-lora-rank",
                       show_count((uint64_t)rank).text, (int)o->max_rank);
        return adapter_refuse(o, QUIRE_TOO_LARGE, t, what);
    }
    o->rank = rank > o->rank ? (int32_t)rank : o->rank;
    return QUIRE_OK;
}

/* ---- rows ---- */

/* Rows of the tensor of which the entry's matrix is all or a part. */
static int64_t entry_tensor_rows(const module_entry *e) {
    const weight_entry *w = e->entry;
    return e->whole || w->part.n_rows == 0 ? (w->turned ? w->n_in : w->n_out) : w->part.n_rows;
}

/* The number of rows that belong to the entry. */
static int64_t entry_rows(const module_entry *e) {
    return e->entry->turned ? e->entry->n_in : e->entry->n_out;
}

/* The row of the module's tensors that is row r of the entry's. In GGUF files the rows of
 * a head of Llama's queries and keys are permuted so that neighbours rotate together: row
 * 2 i + j of a head is row j E / 2 + i of the checkpoint's. For GLM-4V the permutation is
 * the inverse, among the rows that rotate. */
static int64_t entry_source(const module_entry *e, int64_t r) {
    const weight_part *p = &e->entry->part;
    if (!e->whole && p->n_rows > 0) {
        r = p->first + r / p->block * p->step + r % p->block;
    }
    if (e->rows == HEAD_ROWS_ALIKE) {
        return r;
    }
    const model_desc *d = &e->o->m->desc;
    const int64_t width = d->caches[0].d_key, at = r % width,
                  n = e->rows == HEAD_ROWS_IN_TURN ? width : d->ropes[0].n_dims;
    const bool is_turn = e->o->m->from_gguf == (e->rows == HEAD_ROWS_IN_TURN);
    return at >= n ? r : r - at + (is_turn ? at % 2 * (n / 2) + at / 2 : at % (n / 2) * 2 + at / (n / 2));
}

static bool entry_is_straight(const module_entry *e) {
    return e->rows == HEAD_ROWS_ALIKE && (e->whole || e->entry->part.n_rows == 0);
}

/* Collects the entry's rows of a matrix of the module, [tensor rows, width]. */
static quire_err entry_gather(adapter_opening *o, const module_entry *e, const tensor_view *t, int64_t width,
                              tensor_view *out) {
    const int64_t n = entry_rows(e);
    TRY(module_matrix(o, t, entry_tensor_rows(e), width, out));
    if (entry_is_straight(e)) {
        return QUIRE_OK;
    }
    const size_t row = (size_t)width * (size_t)dtype_block_bytes(t->type);
    uint8_t *rows = adapter_memory(o, (size_t)n, row);
    TRY(mem_check(rows));
    for (int64_t r = 0; r < n; r++) {
        memcpy(rows + (size_t)r * row, (const uint8_t *)t->data + (size_t)entry_source(e, r) * row, row);
    }
    out->dims[0] = n;
    out->data = rows;
    out->n_bytes = (size_t)n * row;
    return QUIRE_OK;
}

/* Collects the entry's elements of a vector of the module, as f32. */
static quire_err entry_gather_floats(adapter_opening *o, const module_entry *e, const tensor_view *t,
                                     float **out) {
    const int64_t n_all = entry_tensor_rows(e), n = entry_rows(e);
    int64_t count = 1;
    for (int32_t i = 0; i < t->n_dims; i++) {
        count = t->dims[i] == n_all || t->dims[i] == 1 ? count * t->dims[i] : -1;
        count = count < 0 || count > n_all ? -1 : count;
    }
    if (count != n_all) {
        return module_bad_shape(o, t, n_all, 0);
    }
    float *all = adapter_memory(o, (size_t)n_all, sizeof *all),
          *rows = adapter_memory(o, (size_t)n, sizeof *rows);
    TRY(mem_check(all));
    TRY(mem_check(rows));
    TRY(quant_dequantise(t->type, t->data, (size_t)n_all, all));
    for (int64_t r = 0; r < n; r++) {
        rows[r] = all[entry_source(e, r)];
    }
    *out = rows;
    return QUIRE_OK;
}

/* Transposes a matrix into memory of the opening. */
static quire_err module_turn(adapter_opening *o, const tensor_view *t, tensor_view *out) {
    const size_t size = (size_t)dtype_block_bytes(t->type);
    const int64_t n_rows = t->dims[0], n = t->dims[1];
    uint8_t *turned = adapter_memory(o, t->n_bytes, 1);
    TRY(mem_check(turned));
    for (int64_t r = 0; r < n_rows; r++) {
        for (int64_t i = 0; i < n; i++) {
            memcpy(turned + (size_t)(i * n_rows + r) * size,
                   (const uint8_t *)t->data + (size_t)(r * n + i) * size, size);
        }
    }
    *out = *t;
    out->dims[0] = n;
    out->dims[1] = n_rows;
    out->data = turned;
    return QUIRE_OK;
}

quire_err adapter_keep(adapter_opening *o, const tensor_view *t, const tensor_view **out) {
    tensor_view *kept = adapter_memory(o, 1, sizeof *kept);
    TRY(mem_check(kept));
    *kept = *t;
    *out = kept;
    return QUIRE_OK;
}

/* ---- products ---- */

/* Computes the factors of a DoRA, magnitude / ||W + scale B A||, per output row. */
static quire_err entry_factors(adapter_opening *o, const module_entry *e, adapter_change *c,
                               const tensor_view *magnitude) {
    const weight_entry *w = e->entry;
    const size_t n_in = (size_t)w->n_in, rank = (size_t)c->a->dims[0];
    float *g, *row = adapter_memory(o, n_in, sizeof *row), *a = adapter_memory(o, rank * n_in, sizeof *a),
              *b = adapter_memory(o, rank, sizeof *b);
    if (w->turned) {
        return adapter_refuse(o, QUIRE_UNSUPPORTED, magnitude,
                              "belongs to a DoRA adapter of latent attention, which is not supported; merge "
                              "the adapter into its base");
    }
    if (mem_check(row) || mem_check(a) || mem_check(b)) {
        TRY(QUIRE_NO_MEMORY);
    }
    TRY(entry_gather_floats(o, e, magnitude, &g));
    TRY(quant_dequantise(c->a->type, c->a->data, rank * n_in, a));
    const size_t row_bytes = rank * (size_t)dtype_block_bytes(c->b->type);
    for (int64_t r = 0; r < w->n_out; r++) {
        double sum = 0.0;
        o->b->ops->linear_row(o->b, w->w, (int32_t)r, row);
        TRY(quant_dequantise(c->b->type, (const uint8_t *)c->b->data + (size_t)r * row_bytes, rank, b));
        for (size_t k = 0; k < rank; k++) {
            const float by = c->scale * b[k];
            for (size_t i = 0; i < n_in; i++) {
                row[i] += by * a[k * n_in + i];
            }
        }
        for (size_t i = 0; i < n_in; i++) {
            sum += (double)row[i] * (double)row[i];
        }
        g[r] = sum > 0.0 ? (float)((double)g[r] / sqrt(sum)) : 0.0f;
    }
    c->factors = g;
    return QUIRE_OK;
}

/* The entry's expert in t, viewed in *one; t itself if it is not a stack of experts. */
static const tensor_view *entry_slab(const module_entry *e, const tensor_view *t, tensor_view *one) {
    const weight_part *p = &e->entry->part;
    if (e->whole || p->n_slabs == 0 || t->n_dims != 3 || t->dims[0] != p->n_slabs) {
        return t;
    }
    *one = *t;
    one->n_dims = 2;
    one->dims[0] = t->dims[1];
    one->dims[1] = t->dims[2];
    one->dims[2] = 1;
    one->n_bytes = t->n_bytes / (size_t)p->n_slabs;
    one->data = (const uint8_t *)t->data + (size_t)p->slab * one->n_bytes;
    return one;
}

/* Sets A and B and, for DoRA, the factors. */
static quire_err entry_add_product(adapter_opening *o, const module_entry *e, adapter_change *c) {
    const adapter_module *m = e->module;
    tensor_view slabs[2];
    const tensor_view *a = entry_slab(e, m->parts[PART_A], &slabs[0]),
                      *b = entry_slab(e, m->parts[PART_B], &slabs[1]), *magnitude = m->parts[PART_MAGNITUDE];
    const int64_t n_in = e->entry->turned ? e->entry->n_out : e->entry->n_in;
    const int64_t rank = a->n_dims == 1 && a->dims[0] == n_in ? 1 : a->dims[0];
    tensor_view rows_a, rows_b, other;
    TRY(adapter_check_rank(o, a, rank));
    TRY(module_matrix(o, a, rank, n_in, &rows_a));
    TRY(entry_gather(o, e, b, rank, &rows_b));
    TRY(adapter_file_scale(o->f, m->name, rank, &c->scale, o->err));
    if (e->entry->turned) { /* (B A)^T = A^T B^T */
        TRY(module_turn(o, &rows_b, &other));
        TRY(module_turn(o, &rows_a, &rows_b));
        rows_a = other;
    }
    TRY(adapter_keep(o, &rows_a, &c->a));
    TRY(adapter_keep(o, &rows_b, &c->b));
    return magnitude != NULL ? entry_factors(o, e, c, magnitude) : QUIRE_OK;
}

/* Sets weights that replace the base's. */
static quire_err entry_replace(adapter_opening *o, const module_entry *e, adapter_change *c) {
    const tensor_view *t = e->module->parts[PART_WHOLE];
    const weight_entry *w = e->entry;
    linear_spec *spec = adapter_memory(o, 1, sizeof *spec);
    tensor_view rows, turned;
    TRY(mem_check(spec));
    const int64_t n_all = entry_tensor_rows(e), n_in = w->turned ? w->n_out : w->n_in;
    if (t->n_dims == 2 && t->dims[0] > n_all && t->dims[1] == n_in && w->n_out == o->m->desc.n_vocab) {
        return module_new_rows(o, t, t->dims[0], n_all);
    }
    if (w->part.transposed && t->n_dims == 2) {
        TRY(module_turn(o, t, &turned));
        t = &turned;
    }
    TRY(entry_gather(o, e, t, n_in, &rows));
    if (w->turned) {
        TRY(module_turn(o, &rows, &turned));
        rows = turned;
    }
    spec->exact = w->exact;
    TRY(adapter_keep(o, &rows, &spec->weight));
    c->instead = spec;
    return QUIRE_OK;
}

static quire_err entry_change_product(adapter_opening *o, const module_entry *e, adapter_change *c) {
    const tensor_view *const *parts = e->module->parts;
    c->w = e->entry->w;
    float *bias;
    if (parts[PART_WHOLE] != NULL) {
        TRY(entry_replace(o, e, c));
    }
    if (parts[PART_A] != NULL) {
        TRY(entry_add_product(o, e, c));
    }
    if (parts[PART_BIAS] != NULL && e->entry->turned) {
        return adapter_refuse(o, QUIRE_UNSUPPORTED, parts[PART_BIAS],
                              "is a bias of latent attention, which is not supported");
    }
    if (parts[PART_BIAS] != NULL) {
        TRY(entry_gather_floats(o, e, parts[PART_BIAS], &bias));
        c->bias = bias;
    }
    return QUIRE_OK;
}

/* ---- norms, rows ---- */

static quire_err entry_change_norm(adapter_opening *o, const module_entry *e, adapter_change *c) {
    const weight_entry *w = e->entry;
    const tensor_view *weight = e->module->parts[PART_WHOLE], *bias = e->module->parts[PART_BIAS];
    norm_spec *spec = adapter_memory(o, 1, sizeof *spec);
    tensor_view flat = {.name = module_any(e->module)->name,
                        .type = DTYPE_F32,
                        .n_dims = 1,
                        .dims = {w->n_out, 1, 1, 1},
                        .data = w->weight,
                        .n_bytes = (size_t)w->n_out * sizeof *w->weight};
    float *values;
    TRY(mem_check(spec));
    *spec = w->norm;
    const bool is_cross = (o->f->facts.format == ADAPTER_GGUF) != o->m->from_gguf;
    if (is_cross && o->m->desc.norm.add_one) {
        return adapter_refuse(o, QUIRE_UNSUPPORTED, module_any(e->module),
                              "is a norm, which GGUF files of this architecture store in another form; load "
                              "the adapter with a safetensors base");
    }
    if (w->weight != NULL && (weight == NULL) != (bias == NULL) && weight != NULL) {
        return adapter_refuse(o, QUIRE_BAD_FILE, weight,
                              "is a norm whose bias, which this base has, is missing");
    }
    if (weight != NULL) {
        TRY(entry_gather_floats(o, e, weight, &values));
        for (int64_t i = 0; i < w->n_out && w->scale != 0.0f; i++) {
            values[i] *= w->scale;
        }
        flat.data = values;
    } else if (w->weight == NULL) {
        return adapter_refuse(o, QUIRE_UNSUPPORTED, bias,
                              "is the bias of a norm that has no bias in this base");
    }
    TRY(adapter_keep(o, &flat, &spec->weight));
    if (bias != NULL) {
        TRY(entry_gather_floats(o, e, bias, &values));
        flat.data = values;
        TRY(adapter_keep(o, &flat, &spec->bias));
    }
    c->nm = w->nm;
    c->norm = spec;
    return QUIRE_OK;
}

static quire_err entry_change_rows(adapter_opening *o, const module_entry *e, adapter_change *c) {
    const weight_entry *w = e->entry;
    const adapter_module *m = e->module;
    const tensor_view *a = m->parts[PART_ROWS_A], *b = m->parts[PART_ROWS_B], *whole = m->parts[PART_WHOLE];
    tensor_view rows;
    if (o->f->ties && o->m->desc.tied_embeddings && w->n_out == o->m->desc.n_vocab) {
        return adapter_refuse(o, QUIRE_UNSUPPORTED, module_any(m),
                              "also changes the head of tied embeddings (ensure_weight_tying), which is not "
                              "supported; merge the adapter into its base");
    }
    c->rows = w->rows;
    if (whole != NULL) {
        if (whole->n_dims == 2 && whole->dims[0] > w->n_out && whole->dims[1] == w->n_in) {
            return module_new_rows(o, whole, whole->dims[0], w->n_out);
        }
        TRY(module_matrix(o, whole, w->n_out, w->n_in, &rows));
        TRY(adapter_keep(o, &rows, &c->weight));
    }
    if (a == NULL) {
        return QUIRE_OK;
    }
    const int64_t rank = b->n_dims == 2 ? b->dims[1] : 0;
    TRY(adapter_check_rank(o, b, rank));
    if (a->n_dims == 2 && a->dims[1] > w->n_out && a->dims[0] == rank) {
        return module_new_rows(o, a, a->dims[1], w->n_out);
    }
    const bool turns = o->f->facts.format == ADAPTER_GGUF && a->n_dims == 2 && a->dims[0] == w->n_out;
    if (turns) {
        TRY(module_turn(o, a, &rows));
    }
    TRY(module_matrix(o, turns ? &rows : a, rank, w->n_out, &rows));
    TRY(adapter_keep(o, &rows, &c->a));
    TRY(module_matrix(o, b, w->n_in, rank, &rows));
    TRY(adapter_keep(o, &rows, &c->b));
    return adapter_file_scale(o->f, m->name, rank, &c->scale, o->err);
}

/* ---- a module ---- */

/* Refuses incomplete pairs, and tensors that the module does not use. */
static quire_err module_check(const adapter_opening *o, const adapter_module *m) {
    const tensor_view *const *p = m->parts;
    const bool is_dora = o->f->facts.has_dora;
    const tensor_view *lone = (p[PART_A] == NULL) != (p[PART_B] == NULL)
                                  ? (p[PART_A] != NULL ? p[PART_A] : p[PART_B])
                              : (p[PART_ROWS_A] == NULL) != (p[PART_ROWS_B] == NULL)
                                  ? (p[PART_ROWS_A] != NULL ? p[PART_ROWS_A] : p[PART_ROWS_B])
                                  : NULL;
    if (lone != NULL) {
        return adapter_refuse(o, QUIRE_BAD_FILE, lone,
                              "has no partner: A or B is missing; save the adapter again");
    }
    if (is_dora && p[PART_ROWS_A] != NULL) {
        return adapter_refuse(o, QUIRE_UNSUPPORTED, p[PART_ROWS_A],
                              "belongs to a DoRA adapter of embeddings, which is not supported; merge the "
                              "adapter into its base");
    }
    if (p[PART_MAGNITUDE] != NULL && p[PART_A] == NULL) {
        return adapter_refuse(o, QUIRE_UNSUPPORTED, p[PART_MAGNITUDE],
                              "is a magnitude without its A and B; save the adapter again, or merge it");
    }
    if (is_dora && p[PART_A] != NULL && p[PART_MAGNITUDE] == NULL) {
        return adapter_refuse(
            o, QUIRE_BAD_FILE, p[PART_A],
            "has no lora_magnitude_vector, but the config says use_dora; save the adapter again");
    }
    return QUIRE_OK;
}

/* Whether the module's tensors change this entry. */
static bool entry_is_meant(const weight_entry *w, const adapter_module *m) {
    const tensor_view *const *p = m->parts;
    if (p[PART_A] != NULL) {
        return w->w != NULL;
    }
    return p[PART_ROWS_A] != NULL ? w->rows != NULL : true;
}

/* Whether the name is of queries or keys, whose rows may rotate in pairs. */
static bool name_rotates(str name) {
    return str_ends(name, ".attn_q") || str_ends(name, ".attn_k") || str_ends(name, ".q_proj") ||
           str_ends(name, ".k_proj");
}

/* Refuses a weight whose layout differs between the formats: linear attention; queries,
 * keys and values that a checkpoint stores group by group; and Falcon-H1, whose GGUF
 * files include its factors in the weights. Without rotation the order of queries and
 * keys cannot be told from what the model computes, so it is unknown. */
static quire_err entry_check_formats(const module_entry *e) {
    static const char *const of_delta[] = {".ssm_",   ".attn_qkv",     ".attn_gate",
                                           ".attn_q", ".linear_attn.", ".attn_k",
                                           ".attn_v", ".self_attn.",   ".attn_output"};
    const str name = e->module->name;
    const model_desc *d = &e->o->m->desc;
    bool differs = (d->attend.order == QKV_GROUPED && e->entry->part.n_rows > 0) ||
                   strcmp(d->architecture, "falcon-h1") == 0 || (d->n_ropes == 0 && name_rotates(name));
    for (size_t i = 0; i < sizeof of_delta / sizeof *of_delta && d->delta.n_heads > 0; i++) {
        differs = differs || str_contains(name, str_of(of_delta[i]));
    }
    return differs ? adapter_refuse(e->o, QUIRE_UNSUPPORTED, module_any(e->module),
                                    e->o->m->from_gguf ? "has its rows in a different order in GGUF files; "
                                                         "load the adapter with a safetensors base"
                                                       : "has its rows in a different order in safetensors; "
                                                         "load the adapter with a GGUF base")
                   : QUIRE_OK;
}

static quire_err entry_bind(adapter_opening *o, const adapter_module *module, const weight_ref *ref) {
    const bool is_cross = (o->f->facts.format == ADAPTER_GGUF) != o->m->from_gguf;
    const weight_entry *w = &o->m->weights.entries[ref->entry];
    module_entry e = {.o = o, .module = module, .entry = w, .whole = ref->whole};
    adapter_change c = {.scale = 1.0f};
    e.rows = is_cross && name_rotates(module->name) ? o->m->rows : HEAD_ROWS_ALIKE;
    if (is_cross) {
        TRY(entry_check_formats(&e));
    }
    if (w->w != NULL) {
        TRY(entry_change_product(o, &e, &c));
    } else {
        TRY(w->nm != NULL ? entry_change_norm(o, &e, &c) : entry_change_rows(o, &e, &c));
    }
    return adapter_change_add(o, ref->entry, &c, module_any(module));
}

quire_err adapter_module_bind(adapter_opening *o, const adapter_module *given) {
    assert(o != NULL && given != NULL);
    const weight_table *t = &o->m->weights;
    const bool is_gguf = o->f->facts.format == ADAPTER_GGUF;
    adapter_module module = *given;
    int32_t first, n_bound = 0;
    if (module_any(&module) == NULL) {
        return QUIRE_OK;
    }
    if (is_gguf && str_is(module.name, "token_embd")) { /* a table of rows, whose A is stored transposed */
        module.parts[PART_ROWS_A] = module.parts[PART_A];
        module.parts[PART_ROWS_B] = module.parts[PART_B];
        module.parts[PART_A] = module.parts[PART_B] = NULL;
    }
    TRY(module_check(o, &module));
    const int32_t n = adapter_find_weight(o, module.name, &first);
    for (int32_t i = 0; i < n; i++) {
        const weight_ref *ref = &t->refs[t->by_name[is_gguf][first + i].i];
        if (entry_is_meant(&t->entries[ref->entry], &module)) {
            TRY(entry_bind(o, &module, ref));
            n_bound++;
        }
    }
    if (n_bound == 0 && module_is_of_tower(module.name)) {
        o->n_of_towers++;
        return QUIRE_OK;
    }
    return n_bound > 0 ? QUIRE_OK : module_unknown(o, &module);
}
