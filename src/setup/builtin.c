/* The built-in models, as bytes in the binary. */
#include <string.h>

#include "setup/engine_config.h"

/* Makes the assembler include the file at path, which the build defines. */
#define PLACE(name, path)                                                                                    \
    __asm__(".section .rodata, \"a\"\n"                                                                      \
            ".balign 64\n"                                                                                   \
            ".global " name "_begin\n"                                                                       \
            ".hidden " name "_begin\n" name "_begin:\n"                                                      \
            ".incbin \"" path "\"\n"                                                                         \
            ".global " name "_end\n"                                                                         \
            ".hidden " name "_end\n" name "_end:\n"                                                          \
            ".byte 0\n"                                                                                      \
            ".previous\n")

PLACE("quire_builtin", QUIRE_BUILTIN_PATH);
PLACE("quire_builtin_small", QUIRE_BUILTIN_SMALL_PATH);

extern const unsigned char quire_builtin_begin[], quire_builtin_end[], quire_builtin_small_begin[],
    quire_builtin_small_end[];

const void *options_builtin_model(const char *name, size_t *n_bytes) {
    if (strcmp(name, "builtin") == 0) {
        *n_bytes = (size_t)(quire_builtin_end - quire_builtin_begin);
        return quire_builtin_begin;
    }
    if (strcmp(name, "builtin-small") == 0) {
        *n_bytes = (size_t)(quire_builtin_small_end - quire_builtin_small_begin);
        return quire_builtin_small_begin;
    }
    return NULL;
}
