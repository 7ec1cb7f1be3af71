/* Numbers of a file as each architecture of the registry reads them: what the targets of config.json and of GGUF share. */
#ifndef TESTS_FUZZ_DESCRIBE_H
#define TESTS_FUZZ_DESCRIBE_H

#include "fuzz.h"
#include "model/arch.h"

/* Describes f by every row of the registry, whatever its architecture is: refused with a message, or a description that desc_check takes or
 * refuses so. prefix: of GGUF's keys. Returns how many rows took it; *n_rows: how many there are. */
static inline int describe_by_every_row(const model_file *f, const char *prefix, int *n_rows) {
    int n_taken = 0;
    *n_rows = 0;
    for (const arch *a; (a = arch_at((size_t)*n_rows)) != NULL; ++*n_rows) {
        quire_error err = {0};
        const config c = config_of(f, prefix, &err);
        model_desc d = {.bos = -1};
        quire_err e = a->describe(&c, &d);
        e = e ? e : desc_check(&d, &err);
        fuzz_check(e == QUIRE_OK || err.message[0] != 0);
        n_taken += e == QUIRE_OK;
    }
    return n_taken;
}

#endif
