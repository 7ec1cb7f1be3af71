/* Index of names: finds an entry of an array by its name in O(log n), and finds duplicates when it is built. The names are borrowed. */
#ifndef FILE_NAMES_H
#define FILE_NAMES_H

#include <stdint.h>

#include "base/str.h"

typedef struct name_ref {
    str name;
    int32_t i; /* place in the array that is indexed */
} name_ref;

/* Sorts refs by name, equal names by i. Returns the later place of a name that occurs twice, or -1. */
int32_t names_sort(name_ref *refs, int32_t n);
/* The place of name, or -1. refs as names_sort left them. */
int32_t names_find(const name_ref *refs, int32_t n, str name);

#endif
