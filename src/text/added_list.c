#include "text/added_list.h"

#include <stdlib.h>

#include "base/mem.h"
#include "text/tokenizer_config.h"

static int added_list_compare_texts(str a, str b) {
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n > 0 ? memcmp(a.p, b.p, n) : 0;
    return c != 0 ? c : (a.n > b.n) - (a.n < b.n);
}

static int compare_orders(const void *a, const void *b) {
    int64_t x = ((const added_entry *)a)->order, y = ((const added_entry *)b)->order;
    return (x > y) - (x < y);
}

/* Entries by their content, of equal ones the first before the others. */
static int compare_entries(const void *a, const void *b) {
    const added_entry *x = *(const added_entry *const *)a, *y = *(const added_entry *const *)b;
    int c = added_list_compare_texts(x->content, y->content);
    return c != 0 ? c : (x > y) - (x < y);
}

static quire_err added_list_add(added_list *l, const added_entry *e) {
    TRY(mem_grow(&l->entries, &l->cap, l->n + 1, sizeof *l->entries));
    l->entries[l->n++] = *e;
    return QUIRE_OK;
}

/* ---- the names of special tokens ---- */

typedef struct name_list {
    str *names; /* sorted, once all are added */
    size_t n, cap;
} name_list;

static int added_list_compare_names(const void *a, const void *b) {
    return added_list_compare_texts(*(const str *)a, *(const str *)b);
}

static quire_err added_list_add_name(name_list *l, str name) {
    if (name.n > 0) {
        TRY(mem_grow(&l->names, &l->cap, l->n + 1, sizeof *l->names));
        l->names[l->n++] = name;
    }
    return QUIRE_OK;
}

/* The texts that tokenizer_config.json names as special tokens. */
static quire_err read_names(json_value *config, name_list *l) {
    static const char *const keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};
    static const char *const lists[] = {"additional_special_tokens", "extra_special_tokens"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        TRY(added_list_add_name(l, config_special(config, keys[i])));
    }
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        json_value *list = json_get(config, lists[i]);
        for (size_t k = 0; json_is(list, JSON_KIND_ARRAY) && k < json_length(list); k++) {
            str s = json_str(json_at(list, k));
            TRY(added_list_add_name(l, s.n > 0 ? s : json_get_str(json_at(list, k), "content")));
        }
    }
    if (l->n > 0) {
        qsort(l->names, l->n, sizeof *l->names, added_list_compare_names);
    }
    return QUIRE_OK;
}

/* Marks the decoder's entries that are special by their names. */
static quire_err mark_special(added_list *l, json_value *config) {
    name_list names = {0};
    quire_err e = read_names(config, &names);
    for (size_t i = 0; e == QUIRE_OK && names.n > 0 && i < l->n; i++) {
        added_entry *a = &l->entries[i];
        bool is_named = a->by_config && bsearch(&a->content, names.names, names.n, sizeof *names.names,
                                                added_list_compare_names) != NULL;
        a->special = a->special || is_named;
    }
    mem_free(names.names);
    return e;
}

/* ---- both lists ---- */

static quire_err read_decoder(added_list *l, json_value *config) {
    for (json_member m = {0}; json_next(json_get(config, "added_tokens_decoder"), &m);) {
        added_entry e = {
            .flags = m.value, .content = json_get_str(m.value, "content"), .id = -1, .by_config = true};
        if (e.content.n > 0 && config_token_id(m.name, &e.order)) {
            e.special = json_get_bool(m.value, "special", false);
            TRY(added_list_add(l, &e));
        }
    }
    if (l->n > l->n_file) { /* else there may be no entries at all */
        qsort(l->entries + l->n_file, l->n - l->n_file, sizeof *l->entries, compare_orders);
    }
    return QUIRE_OK;
}

/* Drops each of the decoder's entries whose content is an earlier one's, which gets its
 * flags. */
static void added_list_merge(added_list *l, const added_entry **sorted) {
    size_t n = l->n_file;
    for (size_t i = 0; i < l->n; i++) {
        sorted[i] = &l->entries[i];
    }
    qsort(sorted, l->n, sizeof *sorted, compare_entries);
    for (size_t i = 0, first = 0; i < l->n; i++) {
        first = str_eq(sorted[i]->content, sorted[first]->content) ? first : i;
        added_entry *kept = &l->entries[sorted[first] - l->entries], *e = &l->entries[sorted[i] - l->entries];
        if (kept != e && e->order >= 0) {
            kept->flags = e->flags;
            kept->special = e->special;
            kept->by_config = true;
            e->flags = NULL;
        }
    }
    for (size_t i = l->n_file; i < l->n; i++) {
        if (l->entries[i].flags != NULL) {
            l->entries[n++] = l->entries[i];
        }
    }
    l->n = n;
}

/* Lists the decoder's own entries by their content. */
static quire_err sort_open(added_list *l, const added_entry **sorted) {
    size_t n = l->n - l->n_file;
    l->by_content = mem_new(n, sizeof *l->by_content);
    TRY(mem_check(l->by_content));
    for (size_t i = 0; i < n; i++) {
        sorted[i] = &l->entries[l->n_file + i];
    }
    qsort(sorted, n, sizeof *sorted, compare_entries);
    for (size_t i = 0; i < n; i++) {
        l->by_content[i] = (size_t)(sorted[i] - l->entries);
    }
    return QUIRE_OK;
}

quire_err added_list_read(added_list *l, json_value *added, json_value *config) {
    *l = (added_list){0};
    for (size_t i = 0; added != NULL && i < json_length(added); i++) {
        json_value *o = json_at(added, i);
        TRY(added_list_add(l, &(added_entry){.flags = o,
                                             .content = json_get_str(o, "content"),
                                             .id = json_get_int32(o, "id", -1),
                                             .order = -1,
                                             .special = json_get_bool(o, "special", false)}));
    }
    l->n_file = l->n;
    TRY(read_decoder(l, config));
    if (l->n == l->n_file) {
        return QUIRE_OK;
    }
    const added_entry **sorted = mem_new(l->n, sizeof *sorted);
    TRY(mem_check(sorted));
    added_list_merge(l, sorted);
    quire_err e = sort_open(l, sorted);
    mem_free(sorted);
    return e == QUIRE_OK ? mark_special(l, config) : e;
}

void added_list_deinit(added_list *l) {
    mem_free(l->entries);
    mem_free(l->by_content);
    *l = (added_list){0};
}

bool added_list_is_open(const added_list *l) {
    return l->n > l->n_file;
}

void added_list_note(added_list *l, str piece, int32_t id) {
    size_t low = 0, high = l->n - l->n_file;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        added_entry *e = &l->entries[l->by_content[middle]];
        int c = added_list_compare_texts(e->content, piece);
        if (c == 0) {
            e->id = id;
            return;
        }
        low = c < 0 ? middle + 1 : low;
        high = c < 0 ? high : middle;
    }
}

void added_list_number(added_list *l, int64_t n_vocab) {
    int64_t next = n_vocab;
    for (size_t i = 0; i < l->n; i++) {
        next = l->entries[i].id >= next ? (int64_t)l->entries[i].id + 1 : next;
    }
    for (size_t i = l->n_file; i < l->n; i++) {
        if (l->entries[i].id < 0 && next < INT32_MAX) {
            l->entries[i].id = (int32_t)next++;
        }
    }
}

int64_t added_list_max_id(const added_list *l) {
    int64_t max = -1;
    for (size_t i = 0; i < l->n; i++) {
        max = l->entries[i].id > max ? l->entries[i].id : max;
    }
    return max;
}
