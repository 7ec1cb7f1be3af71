/* Frees, shrinks and measures an nfa. */
#include "grammar/nfa.h"

#define EACH_VEC(a, X)                                                                                                                     \
    X((a)->nodes)                                                                                                                          \
    X((a)->targets)                                                                                                                        \
    X((a)->bytes)                                                                                                                          \
    X((a)->classes)                                                                                                                        \
    X((a)->ranges)                                                                                                                         \
    X((a)->dfas)                                                                                                                           \
    X((a)->dstates) X((a)->dedges) X((a)->counts) X((a)->texts) X((a)->repeats) X((a)->objects) X((a)->arrays) X((a)->slots) X((a)->parts) \
        X((a)->mark_sets) X((a)->mark_ids) X((a)->rules) X((a)->heights)

void nfa_deinit(nfa *a) {
#define FREE(vec) mem_free((vec).p);
    EACH_VEC(a, FREE)
#undef FREE
    *a = (nfa){0};
}

/* Moves n elements of a vector to a block of their size; where memory is out, the old one stays. */
static void shrink(void *p, size_t *cap, size_t n, size_t size) {
    void *old, *fit = n < *cap ? mem_new(n, size) : NULL;
    if (fit != NULL) {
        memcpy(&old, p, sizeof old);
        mem_copy(fit, old, n * size);
        memcpy(p, &fit, sizeof fit);
        mem_free(old);
        *cap = n;
    }
}

void nfa_shrink(nfa *a) {
#define SHRINK(vec) shrink(&(vec).p, &(vec).cap, (vec).n, sizeof *(vec).p);
    EACH_VEC(a, SHRINK)
#undef SHRINK
}

size_t nfa_size_bytes(const nfa *a) {
    size_t bytes = 0;
#define ADD(vec) bytes += (vec).cap * sizeof *(vec).p;
    EACH_VEC(a, ADD)
#undef ADD
    return bytes;
}
