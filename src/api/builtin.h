/* The built-in models: GGUF files inside the binary. "builtin", and its sibling of a seventh of its size, "builtin-small", which can draft
 * for it. */
#ifndef API_BUILTIN_H
#define API_BUILTIN_H

#include <stddef.h>

/* The bytes of the one of that name, aligned to 64, and how many; static. NULL: there is none. */
const void *builtin_model(const char *name, size_t *n_bytes);

#endif
