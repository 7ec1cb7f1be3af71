/* The built-in model: a GGUF file inside the binary. */
#ifndef API_BUILTIN_H
#define API_BUILTIN_H

#include <stddef.h>

/* Its bytes, aligned to 64, and how many; static. */
const void *builtin_model(size_t *n_bytes);

#endif
