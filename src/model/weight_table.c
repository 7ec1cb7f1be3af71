#include "model/weight_table.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

void weight_table_deinit(weight_table *t) {
    assert(t != NULL);
    for (size_t i = 0; i < t->n; i++) {
        mem_free(t->entries[i].weight);
    }
    mem_free(t->entries);
    mem_free(t->refs);
    strbuf_deinit(&t->names);
    mem_free(t->by_name[0]);
    mem_free(t->by_name[1]);
    *t = (weight_table){0};
}

/* Adds a name, or each of its alternatives separated by '|', with the layer for %d;
 * second: number for a second %d. NULL: the format has no name for it. */
static quire_err weight_table_name(weight_table *t, const char *pattern, int32_t layer, int32_t second,
                                   weight_ref ref) {
    while (pattern != NULL && *pattern != 0) {
        const size_t n = strcspn(pattern, "|");
        int32_t number = layer;
        ref.at = t->names.n;
        for (size_t i = 0; i < n; i++) {
            const bool hole = i + 1 < n && pattern[i] == '%' && pattern[i + 1] == 'd';
            TRY(hole ? strbuf_addf(&t->names, "%d", (int)number) : strbuf_add_char(&t->names, pattern[i]));
            number = hole ? second : number;
            i += hole ? 1 : 0;
        }
        TRY(strbuf_add(&t->names, "", 1));
        TRY(mem_grow(&t->refs, &t->cap_refs, t->n_refs + 1, sizeof *t->refs));
        t->refs[t->n_refs++] = ref;
        pattern += n + (pattern[n] == '|');
    }
    return QUIRE_OK;
}

/* Adds an entry under all alternatives of its name in both formats. Both are assumed to
 * lay out the parts of a tensor alike, except that if one format stacks experts that are
 * separate tensors in the other, each of those is whole. from_gguf: the entry's part is
 * of a GGUF tensor. QUIRE_NO_MEMORY: t may only be deinitialised. */
static quire_err weight_table_add(weight_table *t, const weight_entry *entry, weight_name name, int32_t layer,
                                  bool from_gguf) {
    assert(entry != NULL);
    const bool is_slab = entry->part.n_slabs > 0, is_list = weight_name_is_list(name);
    /* a stack of one format is a list of tensors in the other, or is cut otherwise; a
     * list's own name in a stack does not say which it is */
    const bool is_one = !from_gguf && name.gguf != NULL && strstr(name.gguf, "_exps") != NULL;
    const bool in_other = is_slab ? from_gguf && is_list : !is_one;
    if (mem_grow(&t->entries, &t->cap, t->n + 1, sizeof *t->entries) != QUIRE_OK) {
        mem_free(entry->weight);
        return QUIRE_NO_MEMORY;
    }
    const weight_ref ref = {.entry = (int32_t)t->n, .of_gguf = true};
    t->entries[t->n++] = *entry;
    if (from_gguf || in_other) {
        TRY(weight_table_name(t, name.gguf, layer, 0, ref));
    }
    const weight_ref other = {.entry = ref.entry, .whole = from_gguf && is_slab};
    return !from_gguf || in_other ? weight_table_name(t, name.hf, layer, entry->part.slab, other) : QUIRE_OK;
}

quire_err loader_note(loader *l, weight_entry entry, const weight_part *part, weight_name name,
                      int32_t layer) {
    assert(l != NULL);
    if (l->weights == NULL) {
        return QUIRE_OK;
    }
    if (part != NULL) {
        entry.part = *part;
        entry.part.suffix = NULL;
    }
    const bool from_gguf = model_file_format(l->file) == MODEL_GGUF;
    return weight_table_add(l->weights, &entry, name, layer, from_gguf) == QUIRE_OK
               ? QUIRE_OK
               : err_set(l->err, QUIRE_NO_MEMORY, -1, "out of memory while loading");
}

quire_err weight_table_finish(weight_table *t) {
    for (int f = 0; f < 2; f++) {
        t->by_name[f] = mem_new(t->n_refs, sizeof *t->by_name[f]);
        TRY(mem_check(t->by_name[f]));
        for (size_t i = 0; i < t->n_refs; i++) {
            if (t->refs[i].of_gguf == (f == 1)) {
                t->by_name[f][t->n_names[f]++] = (name_ref){str_of(t->names.p + t->refs[i].at), (int32_t)i};
            }
        }
        (void)names_sort(t->by_name[f], t->n_names[f]); /* a name of several parts occurs several times */
    }
    return QUIRE_OK;
}

/* Like strcmp. */
static int weight_table_order(str a, str b) {
    const int order = memcmp(a.p, b.p, a.n < b.n ? a.n : b.n);
    return order != 0 ? order : (a.n > b.n) - (a.n < b.n);
}

int32_t weight_table_find(const weight_table *t, bool of_gguf, str name, int32_t *first) {
    assert(t != NULL);
    const name_ref *refs = t->by_name[of_gguf];
    int32_t low = 0, high = t->n_names[of_gguf], n = 0;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (weight_table_order(refs[middle].name, name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    while (low + n < t->n_names[of_gguf] && str_eq(refs[low + n].name, name)) {
        n++;
    }
    *first = low;
    return n;
}
