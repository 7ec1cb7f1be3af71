/* Patterns of a PEFT config's rank_pattern and alpha_pattern: regular expressions for the
 * names of modules. A key matches a name where `(.*\.)?(KEY)$` does, as Python's re has
 * it.
 *
 * A list is filled by one thread and immutable after that. */
#ifndef FILE_ADAPTER_PATTERN_H
#define FILE_ADAPTER_PATTERN_H

#include "base/str.h"

typedef struct adapter_pattern {
    char *plain; /* a key of letters and dots alone, where '.' stands for any character; or NULL */
    void *code;  /* a compiled expression; or NULL */
    double value;
} adapter_pattern;

/* Zero-initialised is empty. */
typedef struct adapter_patterns {
    adapter_pattern *list;
    size_t n, cap, n_compiled;
} adapter_patterns;

void adapter_patterns_deinit(adapter_patterns *p);
/* Adds a key behind the others. QUIRE_BAD_FILE for one that is no expression,
 * QUIRE_TOO_LARGE for one that is too long, or one too many; where: of the message. */
quire_err adapter_patterns_add(adapter_patterns *p, str key, double value, const char *where,
                               quire_error *err);
/* The value of the first pattern that matches the name; false: none does. A match that
 * takes too many steps is none. Any thread. */
bool adapter_patterns_find(const adapter_patterns *p, str name, double *value);

#endif
