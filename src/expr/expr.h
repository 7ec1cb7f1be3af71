/* Expressions for attention: compiles the text of a mask, or of a change of scores, into
 * an attention program (core/attn_program.h).
 *
 * The language is C's expressions over the names b, h, q_idx, kv_idx, n_heads, n_kv, for
 * scores also score, and over arrays and functions; docs/attention.md describes it.
 * FlexAttention (He et al. 2024, arXiv:2412.05496) has the same two kinds of function.
 *
 * Text is untrusted: its length, depth and number of parts are limited, and a compiled
 * program accesses only its own memory. */
#ifndef EXPR_H
#define EXPR_H

#include "base/str.h"
#include "core/attn_program.h"

#define EXPR_MAX_LENGTH 4096 /* bytes of text */
#define EXPR_MAX_DEPTH  64   /* nesting of parentheses, brackets, unary signs and branches of conditions */
#define EXPR_MAX_NODES  512  /* numbers, names and operators */

typedef enum expr_kind { EXPR_MASK, EXPR_SCORE } expr_kind;

/* Compiles text into *out. The program reads the data of `arrays`, which must outlive it;
 * the rest is copied. QUIRE_INVALID: err has the reason and the column, *out is
 * undefined. QUIRE_NO_MEMORY. */
quire_err expr_compile(expr_kind kind, str text, const attn_array *arrays, int32_t n_arrays,
                       attn_program *out, quire_error *err);

#define EXPR_MAX_ARRAY_BYTES (64 << 20) /* sum over all arrays */

/* The texts of a request's mask and change of scores, and the arrays that they name. */
typedef struct expr_mods {
    str mask, score;          /* empty: none */
    const attn_array *arrays; /* elements included */
    int32_t n_arrays;
} expr_mods;

/* Compiles both texts and copies the arrays. *out has one reference; NULL if both texts
 * are empty. QUIRE_INVALID: err names the text or array and the fault; err->param is
 * "mask_mod", "score_mod" or "arrays". QUIRE_NO_MEMORY. */
quire_err expr_compile_mods(const expr_mods *from, attn_mods **out, quire_error *err);

#endif
