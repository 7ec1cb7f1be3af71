#include "file/names.h"

#include <stdlib.h>

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
