/* Constraints for tests. A choice among token sequences is a trie, whose states are
 * nodes. Nested brackets with plain tokens between them have a stack, counters and a
 * token to repeat as their state, so that a lost, mixed up or shared state changes what
 * may follow. */
#ifndef TESTS_SAMPLE_CONSTRAINTS_H
#define TESTS_SAMPLE_CONSTRAINTS_H

#include "base/turn.h"
#include <string.h>

#include "base/mem.h"
#include "sample/constraint.h"

/* ---- choice ---- */

enum { CHOICE_MAX_NODES = 512 };

typedef struct choice_node {
    int32_t token, first, next; /* token, index of the first child, index of the next sibling; 0: none */
    bool is_end;
} choice_node;

typedef struct choice_constraint {
    constraint head;
    choice_node nodes[CHOICE_MAX_NODES];
    int32_t n_nodes;
    quire_err mask_error; /* result of every call of mask */
    atomic_int n_masks;   /* number of calls of mask */
} choice_constraint;

static inline int32_t choice_child(const choice_constraint *c, int32_t at, int32_t token) {
    int32_t i = c->nodes[at].first;
    while (i != 0 && c->nodes[i].token != token) {
        i = c->nodes[i].next;
    }
    return i;
}

static inline void choice_init(const constraint *c, void *state) {
    (void)c;
    *(int32_t *)state = 0;
}

static inline quire_err choice_mask(const constraint *head, const void *state, uint64_t *bits) {
    choice_constraint *c = (choice_constraint *)(uintptr_t)head;
    memset(bits, 0, (size_t)constraint_words(head->n_vocab) * sizeof *bits);
    for (int32_t i = c->nodes[*(const int32_t *)state].first; i != 0; i = c->nodes[i].next) {
        bits[c->nodes[i].token / 64] |= (uint64_t)1 << (c->nodes[i].token % 64);
    }
    atomic_fetch_add(&c->n_masks, 1);
    return c->mask_error;
}

static inline quire_err choice_accept(const constraint *head, void *state, int32_t token) {
    int32_t child = choice_child((const choice_constraint *)head, *(int32_t *)state, token);
    if (child == 0) {
        return QUIRE_INVALID;
    }
    *(int32_t *)state = child;
    return QUIRE_OK;
}

static inline int32_t choice_forced(const constraint *head, const void *state, int32_t *ids, int32_t most) {
    const choice_constraint *c = (const choice_constraint *)head;
    int32_t at = *(const int32_t *)state, n = 0;
    while (n < most && !c->nodes[at].is_end && c->nodes[at].first != 0 &&
           c->nodes[c->nodes[at].first].next == 0) {
        at = c->nodes[at].first;
        ids[n++] = c->nodes[at].token;
    }
    return n;
}

/* Guesses the sequence that was added last. */
static inline int32_t choice_guess(const constraint *head, const void *state, const guess_bounds *bounds,
                                   int32_t *ids, int32_t *parents) {
    const choice_constraint *c = (const choice_constraint *)head;
    int32_t n = 0;
    for (int32_t at = c->nodes[*(const int32_t *)state].first; n < bounds->nodes && at != 0;
         at = c->nodes[at].first) {
        parents[n] = n - 1;
        ids[n++] = c->nodes[at].token;
    }
    return n;
}

static inline bool choice_is_final(const constraint *head, const void *state) {
    return ((const choice_constraint *)head)->nodes[*(const int32_t *)state].is_end;
}

static inline void choice_close(constraint *c) {
    mem_free(c);
}

/* Makes a choice without sequences. guesses: it also guesses tokens. */
static inline choice_constraint *choice_new(int32_t n_vocab, bool guesses) {
    static const constraint_ops plain = {choice_init, choice_mask,     choice_accept, choice_forced,
                                         NULL,        choice_is_final, choice_close,  NULL};
    static const constraint_ops guessing = {choice_init,  choice_mask,     choice_accept, choice_forced,
                                            choice_guess, choice_is_final, choice_close,  NULL};
    choice_constraint *c = mem_new(1, sizeof *c);
    constraint_init(&c->head, guesses ? &guessing : &plain, n_vocab, sizeof(int32_t));
    c->n_nodes = 1;
    return c;
}

/* Adds the sequence tokens[0..n) to the choice. */
static inline void choice_add(choice_constraint *c, const int32_t *tokens, int32_t n) {
    int32_t at = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t child = choice_child(c, at, tokens[i]);
        if (child == 0) {
            child = c->n_nodes++;
            c->nodes[child] = (choice_node){.token = tokens[i], .next = c->nodes[at].first};
            c->nodes[at].first = child;
        }
        at = child;
    }
    c->nodes[at].is_end = true;
}

/* ---- brackets ---- */

/* Id modulo 8 is a token's kind: 0 and 1 open a bracket, 2 and 3 close the same one, the
 * rest are plain. At most BRACKETS_DEPTH brackets are open, and BRACKETS_PLAIN plain
 * tokens follow each other. A plain token with remainder 7 is followed by BRACKETS_ECHO
 * tokens whose id is one less. The output may end if no bracket is open. */
enum { BRACKETS_DEPTH = 6, BRACKETS_PLAIN = 4, BRACKETS_ECHO = 3 };

typedef struct brackets_state {
    int32_t depth, n_plain, n_echo, echo, n_tokens;
    uint8_t stack[BRACKETS_DEPTH];
} brackets_state;

static inline void brackets_init(const constraint *c, void *state) {
    (void)c;
    memset(state, 0, sizeof(brackets_state));
}

static inline bool brackets_allow(const brackets_state *s, int32_t token) {
    int32_t kind = token % 8;
    if (s->n_echo > 0) {
        return token == s->echo;
    }
    return kind < 2   ? s->depth < BRACKETS_DEPTH
           : kind < 4 ? s->depth > 0 && s->stack[s->depth - 1] == kind - 2
                      : s->n_plain < BRACKETS_PLAIN;
}

static inline quire_err brackets_mask(const constraint *c, const void *state, uint64_t *bits) {
    memset(bits, 0, (size_t)constraint_words(c->n_vocab) * sizeof *bits);
    for (int32_t t = 0; t < c->n_vocab; t++) {
        bits[t / 64] |= (uint64_t)brackets_allow(state, t) << (t % 64);
    }
    return QUIRE_OK;
}

static inline quire_err brackets_accept(const constraint *c, void *state, int32_t token) {
    brackets_state *s = state;
    int32_t kind = token % 8;
    (void)c;
    if (!brackets_allow(s, token)) {
        return QUIRE_INVALID;
    }
    s->n_tokens++;
    if (s->n_echo > 0) {
        s->n_echo--;
        return QUIRE_OK;
    }
    s->n_plain = kind < 4 ? 0 : s->n_plain + 1;
    if (kind < 2) {
        s->stack[s->depth++] = (uint8_t)kind;
    } else if (kind < 4) {
        s->depth--;
    } else if (kind == 7) {
        s->n_echo = BRACKETS_ECHO;
        s->echo = token - 1;
    }
    return QUIRE_OK;
}

static inline int32_t brackets_forced(const constraint *c, const void *state, int32_t *ids, int32_t most) {
    const brackets_state *s = state;
    (void)c;
    int32_t n = s->n_echo < most ? s->n_echo : most;
    for (int32_t i = 0; i < n; i++) {
        ids[i] = s->echo;
    }
    return n;
}

static inline bool brackets_is_final(const constraint *c, const void *state) {
    const brackets_state *s = state;
    (void)c;
    return s->depth == 0 && s->n_echo == 0 && s->n_tokens > 0;
}

static inline void brackets_close(constraint *c) {
    mem_free(c);
}

static inline constraint *brackets_new(int32_t n_vocab) {
    static const constraint_ops ops = {.init = brackets_init,
                                       .mask = brackets_mask,
                                       .accept = brackets_accept,
                                       .forced = brackets_forced,
                                       .is_final = brackets_is_final,
                                       .close = brackets_close};
    constraint *c = mem_new(1, sizeof *c);
    constraint_init(c, &ops, n_vocab, sizeof(brackets_state));
    return c;
}

/* ---- brackets that are slow ---- */

/* As brackets, but some calls in a step, pseudo-randomly chosen, are QUIRE_BUSY. */
static atomic_uint slow_calls;

static inline bool is_slow_now(void) {
    return work_room_current != NULL && (atomic_fetch_add(&slow_calls, 1) * 2654435761u >> 28) < 10;
}

static inline quire_err slow_brackets_mask(const constraint *c, const void *state, uint64_t *bits) {
    return is_slow_now() ? QUIRE_BUSY : brackets_mask(c, state, bits);
}

static inline quire_err slow_brackets_accept(const constraint *c, void *state, int32_t token) {
    return is_slow_now() ? QUIRE_BUSY : brackets_accept(c, state, token);
}

static inline constraint *slow_brackets_new(int32_t n_vocab) {
    static const constraint_ops ops = {.init = brackets_init,
                                       .mask = slow_brackets_mask,
                                       .accept = slow_brackets_accept,
                                       .forced = brackets_forced,
                                       .is_final = brackets_is_final,
                                       .close = brackets_close};
    constraint *c = mem_new(1, sizeof *c);
    constraint_init(c, &ops, n_vocab, sizeof(brackets_state));
    return c;
}

/* Returns the length of the longest prefix of tokens[0..n) that c accepts. */
static inline int32_t constraint_obeyed(const constraint *c, const int32_t *tokens, int32_t n,
                                        bool *is_final) {
    _Alignas(MEM_ALIGN) uint8_t state[CONSTRAINT_MAX_STATE_BYTES];
    int32_t i = 0;
    c->ops->init(c, state);
    while (i < n && c->ops->accept(c, state, tokens[i]) == QUIRE_OK) {
        i++;
    }
    *is_final = c->ops->is_final(c, state);
    return i;
}

#endif
