/* Frees, shrinks and measures an nfa. */
#include "grammar/nfa.h"

#define EACH_VEC(a, X)                                                                                       \
    X((a)->nodes)                                                                                            \
    X((a)->targets)                                                                                          \
    X((a)->bytes)                                                                                            \
    X((a)->classes)                                                                                          \
    X((a)->ranges)                                                                                           \
    X((a)->dfas)                                                                                             \
    X((a)->dstates)                                                                                          \
    X((a)->dedges)                                                                                           \
    X((a)->counts)                                                                                           \
    X((a)->texts)                                                                                            \
    X((a)->text_sets)                                                                                        \
    X((a)->repeats)                                                                                          \
    X((a)->objects)                                                                                          \
    X((a)->arrays)                                                                                           \
    X((a)->slots) X((a)->parts) X((a)->mark_sets) X((a)->mark_ids) X((a)->rules) X((a)->heights)

enum { ALIGN = 8 }; /* of each vector in the block */

static size_t aligned(size_t n_bytes) {
    return (n_bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static void free_vectors(nfa *a) {
#define FREE(vec) mem_free((vec).p);
    EACH_VEC(a, FREE)
#undef FREE
}

void nfa_deinit(nfa *a) {
    if (a->block != NULL) {
        mem_free(a->block);
    } else {
        free_vectors(a);
    }
    *a = (nfa){0};
}

/* Copies n_bytes of the vector at p to `to`, and sets its address and capacity to the
 * copy's; an empty one has none. */
static void nfa_move(void *p, size_t *cap, size_t n, size_t n_bytes, char *to) {
    void *old;
    memcpy(&old, p, sizeof old);
    mem_copy(to, old, n_bytes);
    old = n > 0 ? to : NULL;
    memcpy(p, &old, sizeof old);
    *cap = n;
}

void nfa_shrink(nfa *a) {
    size_t n_bytes = 0;
#define ADD(vec) n_bytes += aligned((vec).n * sizeof *(vec).p);
    EACH_VEC(a, ADD)
#undef ADD
    char *block = a->block == NULL ? mem_new(1, n_bytes) : NULL, *at = block;
    if (block == NULL) {
        return;
    }
    nfa old = *a;
#define MOVE(vec)                                                                                            \
    nfa_move(&(vec).p, &(vec).cap, (vec).n, (vec).n * sizeof *(vec).p, at);                                  \
    at += aligned((vec).n * sizeof *(vec).p);
    EACH_VEC(a, MOVE)
#undef MOVE
    free_vectors(&old);
    a->block = block;
}

size_t nfa_size_bytes(const nfa *a) {
    size_t bytes = 0;
#define ADD(vec) bytes += aligned((vec).cap * sizeof *(vec).p);
    EACH_VEC(a, ADD)
#undef ADD
    return bytes;
}
