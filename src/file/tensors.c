#include "file/tensors.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/size.h"
#include "file/show.h"

void tensor_dir_deinit(tensor_dir *d) {
    mem_free(d->views);
    mem_free(d->parts);
    mem_free(d->name_at);
    mem_free(d->unread);
    mem_free(d->by_name);
    strbuf_deinit(&d->names);
    *d = (tensor_dir){0};
}

/* Appends the prefix, name and a 0 to names. */
static quire_err tensors_add_name(tensor_dir *d, str name) {
    size_t was = d->names.n;
    quire_err e = d->prefix != NULL ? strbuf_add_str(&d->names, d->prefix) : QUIRE_OK;
    TRY_DONE(e, strbuf_add(&d->names, name.p, name.n));
    TRY_DONE(e, strbuf_add(&d->names, "", 1));
done:
    if (e != QUIRE_OK) {
        d->names.n = was;
    }
    return e;
}

quire_err tensor_dir_add(tensor_dir *d, str name, const tensor_view *view, int32_t part) {
    assert(d != NULL);
    size_t i = (size_t)d->n;
    if (d->n == INT32_MAX) {
        return QUIRE_NO_MEMORY;
    }
    TRY(mem_grow(&d->views, &d->cap_views, i + 1, sizeof *d->views));
    TRY(mem_grow(&d->parts, &d->cap_parts, i + 1, sizeof *d->parts));
    TRY(mem_grow(&d->name_at, &d->cap_name_at, i + 1, sizeof *d->name_at));
    size_t at = d->names.n;
    TRY(tensors_add_name(d, name));
    d->views[i] = *view;
    d->parts[i] = part;
    d->name_at[i] = at;
    d->n++;
    return QUIRE_OK;
}

quire_err tensor_dir_add_unread(tensor_dir *d, str name, const char *why) {
    assert(d != NULL);
    TRY(mem_grow(&d->unread, &d->cap_unread, d->n_unread + 1, sizeof *d->unread));
    size_t at = d->names.n;
    TRY(tensors_add_name(d, name));
    unread_tensor *u = &d->unread[d->n_unread++];
    u->name_at = at;
    snprintf(u->why, sizeof u->why, "%s", why);
    return QUIRE_OK;
}

quire_err tensor_dir_finish(tensor_dir *d, const char *file, quire_error *err) {
    assert(d != NULL);
    d->by_name = mem_new((size_t)d->n, sizeof *d->by_name);
    if (d->by_name == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "%s: no memory for %d tensors", file, (int)d->n);
    }
    for (int32_t i = 0; i < d->n; i++) {
        d->views[i].name = d->names.p + d->name_at[i];
        d->by_name[i] = (name_ref){str_of(d->views[i].name), i};
    }
    int32_t twice = names_sort(d->by_name, d->n);
    if (twice >= 0) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%s: there are two tensors %s: the file is damaged or wrongly converted", file,
                       show_name(str_of(d->views[twice].name)).text);
    }
    return QUIRE_OK;
}

int32_t tensor_dir_find(const tensor_dir *d, str name) {
    return names_find(d->by_name, d->n, name);
}

const char *tensor_dir_why_unread(const tensor_dir *d, str name) {
    assert(d != NULL);
    for (size_t i = 0; i < d->n_unread; i++) {
        if (str_is(name, d->names.p + d->unread[i].name_at)) {
            return d->unread[i].why;
        }
    }
    return NULL;
}

bool tensor_bytes(dtype t, const int64_t *dims, int32_t n_dims, size_t *n_bytes) {
    size_t block = (size_t)dtype_block_elements(t), n = 1;
    for (int32_t i = 0; i < n_dims; i++) {
        if (dims[i] < 1 || !size_mul(n, (size_t)dims[i], &n)) {
            return false;
        }
    }
    if ((n_dims > 0 ? (size_t)dims[n_dims - 1] : 1) % block != 0) {
        return false;
    }
    return size_mul(n / block, (size_t)dtype_block_bytes(t), n_bytes);
}

/* ---- an index of names ---- */

static int names_compare(str a, str b) {
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n > 0 ? memcmp(a.p, b.p, n) : 0;
    if (order != 0) {
        return order;
    }
    return (a.n > b.n) - (a.n < b.n);
}

static int compare_refs(const void *a, const void *b) {
    const name_ref *x = a, *y = b;
    int order = names_compare(x->name, y->name);
    return order != 0 ? order : (x->i > y->i) - (x->i < y->i);
}

int32_t names_sort(name_ref *refs, int32_t n) {
    if (n > 0) {
        qsort(refs, (size_t)n, sizeof *refs, compare_refs);
    }
    for (int32_t i = 1; i < n; i++) {
        if (str_eq(refs[i - 1].name, refs[i].name)) {
            return refs[i].i;
        }
    }
    return -1;
}

int32_t names_find(const name_ref *refs, int32_t n, str name) {
    assert(n >= 0);
    int32_t low = 0, high = n;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        int order = names_compare(refs[middle].name, name);
        if (order == 0) {
            return refs[middle].i;
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return -1;
}
