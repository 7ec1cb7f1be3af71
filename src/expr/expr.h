/* Expressions for attention: compiles the text of a mask or of a change of scores into an
 * attention program (core/attn_program.h).
 *
 * The language is C's expressions over the names b, h, q_idx, kv_idx, n_heads, n_kv, of
 * scores also score, over arrays and functions; docs/attention.md describes it.
 * FlexAttention (He et al. 2024, arXiv:2412.05496) has the same two kinds of function.
 *
 * Text is hostile: length, depth and the number of parts are limited, and a compiled
 * program cannot touch memory but its own. */
#ifndef EXPR_H
#define EXPR_H

#include "base/str.h"
#include "core/attn_program.h"

#define EXPR_MAX_LENGTH 4096 /* bytes of text */
#define EXPR_MAX_DEPTH  64   /* nesting of parentheses, brackets, signs and arms of conditions */
#define EXPR_MAX_NODES  512  /* numbers, names and operators */

typedef enum expr_kind { EXPR_MASK, EXPR_SCORE } expr_kind;

/* Compiles text into *out. The program reads the arrays' data, which must outlive it; out
 * keeps the rest of what it needs. QUIRE_INVALID: err says what and at which column, *out
 * is undefined. QUIRE_NO_MEMORY. */
quire_err expr_compile(expr_kind kind, str text, const attn_array *arrays, int32_t n_arrays,
                       attn_program *out, quire_error *err);

#define EXPR_MAX_ARRAY_BYTES (64 << 20) /* of all arrays together */

/* A request's mask and change of scores, from their texts and arrays. */
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
