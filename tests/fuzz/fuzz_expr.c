/* Expressions of any kind: refused with a message, or a program that gives what the tree
 * gives, at every point. The first byte chooses the kind and where the queries stand. */
#include "../expr/expr_case.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const int32_t doc[CASE_N_KV] = {0, 0, 0, 1, 1, 1, 1, 2, 3, 3, 4, 4, 4, -5, 7},
                         tree[3 * 4] = {1, 0, 0, 1, 1, 1, 0, 1, 0, 1, 1, 1};
    static const float slope[CASE_N_HEADS] = {0.5f, 0.25f, 0.125f, 1.0f, -1.0f, 2.0f, 0.0f, 3.0f};
    static const attn_array arrays[] = {
        {.name = "doc", .n_dims = 1, .dims = {CASE_N_KV}, .data = doc},
        {.name = "tree", .n_dims = 2, .dims = {3, 4}, .data = tree},
        {.name = "slope", .is_float = true, .n_dims = 1, .dims = {CASE_N_HEADS}, .data = slope}};
    static case_result result;
    static attn_program program;
    if (size == 0) {
        return 0;
    }
    expr_kind kind = (data[0] & 1) != 0 ? EXPR_SCORE : EXPR_MASK;
    str text = {(const char *)data + 1, size - 1};
    quire_error err = {0};
    quire_err e = expr_compile(kind, text, arrays, 3, &program, &err);
    fuzz_check(e == QUIRE_OK || (e == QUIRE_INVALID && err.message[0] != 0));
    fuzz_check(e == QUIRE_OK || err.position <= (int64_t)size);
    fuzz_check(case_compare(kind, text, arrays, 3, attn_run_plain, data[0] / 16, &result) ==
               (e == QUIRE_OK ? 1 : -1));
    return 0;
}
