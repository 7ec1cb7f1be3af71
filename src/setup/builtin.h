/* The built-in models are GGUF files inside the binary: "builtin", and "builtin-small" of a seventh of its size, which can draft for it. */
#ifndef SETUP_BUILTIN_H
#define SETUP_BUILTIN_H

#include <stddef.h>

/* The bytes of the model with that name, aligned to 64, and their number; static. NULL: there is none. */
const void *builtin_model(const char *name, size_t *n_bytes);

#endif
