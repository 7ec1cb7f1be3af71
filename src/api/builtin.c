#include "api/builtin.h"

/* The assembler places the file; QUIRE_BUILTIN_PATH comes from the build. */
__asm__(".section .rodata, \"a\"\n"
        ".balign 64\n"
        ".global quire_builtin_begin\n"
        "quire_builtin_begin:\n"
        ".incbin \"" QUIRE_BUILTIN_PATH "\"\n"
        ".global quire_builtin_end\n"
        "quire_builtin_end:\n"
        ".byte 0\n"
        ".previous\n");

extern const unsigned char quire_builtin_begin[];
extern const unsigned char quire_builtin_end[];

const void *builtin_model(size_t *n_bytes) {
    *n_bytes = (size_t)(quire_builtin_end - quire_builtin_begin);
    return quire_builtin_begin;
}
