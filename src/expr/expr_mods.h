/* A request's mask and change of scores from their texts and arrays
 * (core/attn_program.h). */
#ifndef EXPR_MODS_H
#define EXPR_MODS_H

#include "core/attn_program.h"
#include "expr/expr.h"

#define EXPR_MAX_ARRAY_BYTES (64 << 20) /* of all arrays together */

typedef struct expr_mods {
    str mask, score;          /* empty: none */
    const attn_array *arrays; /* with their data */
    int32_t n_arrays;
} expr_mods;

/* Compiles both and copies the arrays, with one reference to *out; NULL if both texts are
 * empty. QUIRE_INVALID: err names the text or array and the fault; err->param is
 * "mask_mod", "score_mod" or "arrays". QUIRE_NO_MEMORY. */
quire_err expr_compile_mods(const expr_mods *from, attn_mods **out, quire_error *err);

#endif
