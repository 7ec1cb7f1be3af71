/* A name index: finds an entry of an array by its name in O(log n), and finds duplicates
 * when it is built. The names are borrowed. */
#ifndef FILE_NAMES_H
#define FILE_NAMES_H

#include <stdint.h>

#include "base/str.h"

typedef struct name_ref {
    str name;
    int32_t i; /* index in the named array */
} name_ref;

/* Sorts refs by name, equal names by i. Returns the later index of a name that occurs
 * twice, or -1. */
int32_t names_sort(name_ref *refs, int32_t n);
/* The index of name, or -1. refs must be sorted by names_sort. */
int32_t names_find(const name_ref *refs, int32_t n, str name);

#endif
