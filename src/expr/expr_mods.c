/* Compiles a request's mask and change of scores, and copies their arrays. */
#include "expr/expr.h"

#include <assert.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/size.h"

/* Prefixes the message with the name of the part at fault and sets param to it. */
static quire_err fail_in(quire_error *err, quire_err code, const char *part) {
    if (err != NULL && code == QUIRE_INVALID) {
        err_prefix(err, code, part);
        (void)snprintf(err->param, sizeof err->param, "%s", part);
    }
    return code;
}

/* Computes the size in bytes of an array's elements. */
static quire_err count_bytes(const attn_array *a, size_t *out, quire_error *err) {
    size_t n = 4;
    bool fits = a->n_dims >= 1 && a->n_dims <= ATTN_ARRAY_DIMS;
    for (int32_t i = 0; fits && i < a->n_dims; i++) {
        fits = a->dims[i] >= 1 && size_mul(n, (size_t)a->dims[i], &n) && n <= EXPR_MAX_ARRAY_BYTES;
    }
    if (!fits) {
        return err_set(
            err, QUIRE_INVALID, -1,
            "'%s' must have 1 to %d dimensions of at least 1, and all arrays together at most %d MiB",
            a->name, ATTN_ARRAY_DIMS, EXPR_MAX_ARRAY_BYTES >> 20);
    }
    *out = n;
    return QUIRE_OK;
}

static quire_err check_arrays(const expr_mods *from, size_t *n_bytes, quire_error *err) {
    *n_bytes = 0;
    if (from->n_arrays > ATTN_PROGRAM_ARRAYS) {
        return err_set(err, QUIRE_INVALID, -1, "%d arrays are given; at most %d are allowed",
                       (int)from->n_arrays, ATTN_PROGRAM_ARRAYS);
    }
    for (int32_t i = 0; i < from->n_arrays; i++) {
        size_t n = 0;
        for (int32_t k = 0; k < i; k++) {
            if (strcmp(from->arrays[i].name, from->arrays[k].name) == 0) {
                return err_set(err, QUIRE_INVALID, -1, "'%s' is given twice", from->arrays[i].name);
            }
        }
        TRY(count_bytes(&from->arrays[i], &n, err));
        *n_bytes += n;
        if (*n_bytes > EXPR_MAX_ARRAY_BYTES) {
            return err_set(err, QUIRE_INVALID, -1, "the arrays together take more than %d MiB",
                           EXPR_MAX_ARRAY_BYTES >> 20);
        }
    }
    return QUIRE_OK;
}

static void expr_mods_add_text(sha256_sum *s, str text) {
    uint64_t n = text.n;
    sha256_add(s, &n, sizeof n);
    sha256_add(s, text.p, text.n);
}

/* Digests everything on which attention's results depend. */
static void expr_mods_digest(const expr_mods *from, uint8_t out[SHA256_BYTES]) {
    sha256_sum s;
    sha256_begin(&s);
    expr_mods_add_text(&s, from->mask);
    expr_mods_add_text(&s, from->score);
    for (int32_t i = 0; i < from->n_arrays; i++) {
        const attn_array *a = &from->arrays[i];
        size_t n = 0;
        (void)count_bytes(a, &n, NULL);
        expr_mods_add_text(&s, str_of(a->name));
        sha256_add(&s, &a->is_float, sizeof a->is_float);
        sha256_add(&s, &a->n_dims, sizeof a->n_dims);
        sha256_add(&s, a->dims, sizeof *a->dims * (size_t)a->n_dims);
        sha256_add(&s, a->data, n);
    }
    sha256_end(&s, out);
}

/* Copies all elements to mods->data, one array after the other, and sets own[] to arrays
 * that refer to the copies. */
static void copy_arrays(const expr_mods *from, attn_mods *mods, attn_array *own) {
    uint8_t *to = mods->data;
    for (int32_t i = 0; i < from->n_arrays; i++) {
        size_t n = 0;
        (void)count_bytes(&from->arrays[i], &n, NULL);
        own[i] = from->arrays[i];
        own[i].data = to;
        memcpy(to, from->arrays[i].data, n);
        to += n;
    }
}

static quire_err expr_mods_compile(expr_kind kind, str text, const attn_array *arrays, int32_t n_arrays,
                                   attn_program **out, quire_error *err) {
    if (text.n == 0) {
        return QUIRE_OK;
    }
    *out = mem_new(1, sizeof **out);
    TRY(mem_check_for(*out, "an attention program", err));
    return fail_in(err, expr_compile(kind, text, arrays, n_arrays, *out, err),
                   kind == EXPR_MASK ? "mask_mod" : "score_mod");
}

static quire_err expr_mods_fill(const expr_mods *from, size_t n_bytes, attn_mods *mods, quire_error *err) {
    attn_array own[ATTN_PROGRAM_ARRAYS];
    mods->data = n_bytes > 0 ? mem_new(n_bytes, 1) : NULL;
    if (n_bytes > 0) {
        TRY(mem_check_for(mods->data, "the arrays of attention", err));
    }
    copy_arrays(from, mods, own);
    TRY(expr_mods_compile(EXPR_MASK, from->mask, own, from->n_arrays, &mods->mask, err));
    TRY(expr_mods_compile(EXPR_SCORE, from->score, own, from->n_arrays, &mods->score, err));
    mods->uses_b = (mods->mask != NULL && mods->mask->uses_b) || (mods->score != NULL && mods->score->uses_b);
    expr_mods_digest(from, mods->digest);
    return QUIRE_OK;
}

quire_err expr_compile_mods(const expr_mods *from, attn_mods **out, quire_error *err) {
    assert(from->n_arrays >= 0);
    size_t n_bytes;
    *out = NULL;
    TRY(fail_in(err, check_arrays(from, &n_bytes, err), "arrays"));
    if (from->mask.n == 0 && from->score.n == 0) {
        return QUIRE_OK;
    }
    attn_mods *mods = attn_mods_new();
    TRY(mem_check_for(mods, "an attention program", err));
    quire_err e = expr_mods_fill(from, n_bytes, mods, err);
    if (e != QUIRE_OK) {
        attn_mods_drop(mods);
        return e;
    }
    *out = mods;
    return QUIRE_OK;
}
