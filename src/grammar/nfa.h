/* The compiled form of every grammar: rules whose nodes read bytes, characters or
 * strings, and call one another (a recursive transition network: Woods 1970). Private to
 * this room.
 *
 * Compilers append to it; build_finish checks and prunes it; then it is immutable. A node
 * is a number; every nfa has NFA_FAIL_NODE and NFA_RETURN_NODE. Characters are code
 * points; the machine (machine.h) decodes them from UTF-8, or from escapes in JSON
 * strings. */
#ifndef GRAMMAR_NFA_H
#define GRAMMAR_NFA_H

#include "base/mem.h"
#include "base/str.h"

typedef enum nfa_op {
    NFA_FAIL,    /* nothing follows */
    NFA_RETURN,  /* the end of a rule or body: continues at the top of the stack */
    NFA_SPLIT,   /* continues at any of targets[arg .. arg + n) */
    NFA_BYTES,   /* bytes[arg .. arg + n), then next */
    NFA_CLASS,   /* a character in classes[arg], spelled as in mode, then next */
    NFA_STRING,  /* a text that dfas[arg] accepts, then next */
    NFA_COUNTED, /* counts[arg].min to .max characters of any kind, then next */
    NFA_TEXT,    /* a text of texts[arg].min to .max characters that its dfa accepts, then next */
    NFA_SPACE,   /* up to GRAMMAR_SPACE_MAX bytes of JSON white space, then next */
    NFA_CALL,    /* rules[arg], then next */
    NFA_REPEAT,  /* repeats[arg].body, which ends in RETURN, min to max times, then next */
    NFA_OBJECT,  /* the members of objects[arg], separated by commas, then next */
    NFA_ARRAY,   /* the items of arrays[arg], separated by commas, then next */
    /* the end of an open member's name; the member satisfies the rules in arg
     * (machine_members.c); then next */
    NFA_NAMED,
    NFA_MARK /* a special token in mark_sets[arg], then next */
} nfa_op;

/* How characters are spelled. */
typedef enum nfa_mode {
    NFA_RAW,  /* UTF-8 */
    NFA_JSON, /* in a JSON string: as themselves or by any escape */
    NFA_PLAIN /* like NFA_JSON, but printable ASCII as itself if possible: for names and patterns */
} nfa_mode;

#define NFA_KEPT 1u /* a name for a NAMED node: its characters are recorded on the stack */
#define NFA_ONCE 2u /* a name of an open member, which may not repeat in its object (run_names.c) */
/* a name without quotes, where every prefix leads to names of over NFA_MOST_WORD bytes */
#define NFA_WORD 4u

#define NFA_MOST_WORD 60

#define NFA_FAIL_NODE   0u
#define NFA_RETURN_NODE 1u
#define NFA_NONE        UINT32_MAX /* no target; unlimited */
#define NFA_MAX_CHAR    0x10FFFFu

/* A special token is spelled as NFA_MARK_BYTE, which UTF-8 never has, and its id in
 * digits of 6 bits, the highest first. */
#define NFA_MARK_BYTE   0xFFu
#define NFA_MARK_DIGITS 4
static inline uint8_t nfa_mark_digit(int32_t id, uint32_t i) {
    return (uint8_t)(0x80u | ((uint32_t)id >> (6 * (NFA_MARK_DIGITS - 1 - i)) & 0x3Fu));
}

typedef struct nfa_node {
    uint8_t op, mode;
    /* CALL, REPEAT: 1: it must read something, since the empty text is handled elsewhere;
     * STRING, COUNTED: bits NFA_KEPT, NFA_ONCE, NFA_WORD */
    uint16_t n;
    uint32_t arg, next;
} nfa_node;

typedef struct nfa_range {
    uint32_t lo, hi; /* both included */
} nfa_range;

typedef struct nfa_class { /* ranges[first .. first + n), ascending, disjoint */
    uint32_t first, n;
} nfa_class;

/* A state of a dfa over characters. A dfa's states are dstates[first ..), a state's edges
 * ascend, and `other` is the target for characters without an edge. An accepting state
 * can be reached from every state. */
typedef struct nfa_dstate {
    uint32_t first, other;
    uint32_t n : 28;
    /* the character before it does not count for lengths: a backslash in Python */
    bool silent : 1;
    bool accepts : 1;
    /* any text of characters that JSON does not escape may follow: none leads to a dead
     * end */
    bool roomy : 1;
    bool free : 1; /* any text of any characters may follow */
} nfa_dstate;
typedef struct nfa_dedge {
    uint64_t lo : 21, hi : 21, to : 22; /* to: 0 if no character of the range may follow */
} nfa_dedge;
#define NFA_MAX_DSTATES (1u << 22)
#define NFA_MAX_DEDGES  ((1u << 28) - 1) /* edges of a state */
static inline nfa_dedge nfa_dedge_of(uint32_t lo, uint32_t hi, uint32_t to) {
    return (nfa_dedge){lo & 0x1FFFFFu, hi & 0x1FFFFFu, to & (NFA_MAX_DSTATES - 1)};
}
static inline uint32_t nfa_dedge_to(const nfa_dedge *e) {
    return e->to != 0 ? (uint32_t)e->to : NFA_NONE;
}

typedef struct nfa_count {
    uint32_t min, max;
} nfa_count;

/* A text of limited length. The position (characters, state) is kept as characters * n +
 * state, so the product must fit. text_sets[sets + i * words ..) is a set of states, one
 * bit each: those from which exactly i more characters can end the text. After the last
 * of n_sets, sets repeat from `loop` on. */
typedef struct nfa_text {
    uint32_t first, n; /* states of its dfa */
    uint32_t min, max;
    uint32_t sets, n_sets, loop;
    /* this many more characters can complete a text from every state, if it then has min;
     * NFA_NONE: unknown */
    uint32_t far;
    uint32_t rich; /* any number of characters from here on can, even below min; NFA_NONE: unknown */
} nfa_text;

static inline uint32_t nfa_text_words(const nfa_text *t) {
    return (t->n + 63) / 64;
}

typedef struct nfa_repeat {
    uint32_t body, min, max;
} nfa_repeat;

/* An alternative for a member or an item: `entry` reads it and ends in RETURN. */
typedef struct nfa_part {
    uint32_t entry;
    uint16_t name;  /* listed member: number of its name */
    uint8_t rules;  /* rules of its object that a member satisfies; rules of its array that count an item */
    bool required;  /* member */
    bool remembers; /* open member: its name is recorded (NFA_NAMED) */
    uint32_t most;  /* open member: number of possible names; NFA_NONE: over NFA_FEW_NAMES */
} nfa_part;

#define NFA_MAX_MEMBERS 4096 /* most names in an object */
#define NFA_MAX_RULES   4
#define NFA_FEW_NAMES   1000 /* most names of open members that are counted */
#define NFA_MAX_KEPT    48   /* most names that are remembered */
/* The members of an object: n_names listed ones, once each, by any of the parts in
 * parts[first .. first + n) for that name, which are adjacent; and n_open other parts,
 * repeated. Each bit of `rules` must be satisfied by some member. */
typedef struct nfa_object {
    uint32_t first, n, n_names, n_open, min, max;
    uint32_t comma; /* node that reads a comma and ends in RETURN */
    uint8_t rules;
    /* names of open members are told apart up to `min`, which is at most NFA_MAX_KEPT -
     * NFA_MAX_RULES */
    bool distinct;
    bool comma_may_miss;
    bool any_order;
    bool few; /* open members may run out of names, since none may repeat */
} nfa_object;

/* The alternatives for an item: parts[first .. first + n). */
typedef struct nfa_slot {
    uint32_t first, n;
} nfa_slot;

#define NFA_MAX_ITEM_RULES 3
/* limit on the counts of several rules, combined: the product of each maximum plus one */
#define NFA_MAX_COUNTS 256
/* The items of an array: item i has slots[first + i], or slots[first + n] for i >= n.
 * With `unique`, n is 0 and each part of that slot may occur once. Each rule requires
 * `min` to `max` of its items. Items are counted up to max, or to min if there is no max;
 * the counts form one number, the first rule in the lowest digit. */
typedef struct nfa_array {
    uint32_t first, n, min, max;
    uint32_t comma;
    bool comma_may_miss;
    uint32_t n_rules;
    nfa_count rules[NFA_MAX_ITEM_RULES]; /* if there are none: 0 to NFA_NONE */
    bool unique;
} nfa_array;

/* A set of special tokens: mark_ids[first .. first + n), ascending, or all others. */
typedef struct nfa_mark_set {
    uint32_t first, n;
    bool negated;
} nfa_mark_set;

typedef struct nfa_rule {
    uint32_t start;
    bool nullable;
} nfa_rule;

#define NFA_VEC(type)                                                                                        \
    struct {                                                                                                 \
        type *p;                                                                                             \
        size_t cap;                                                                                          \
        uint32_t n;                                                                                          \
    }

typedef struct nfa {
    NFA_VEC(nfa_node) nodes;
    NFA_VEC(uint32_t) targets;
    NFA_VEC(uint8_t) bytes;
    NFA_VEC(nfa_class) classes;
    NFA_VEC(nfa_range) ranges;
    NFA_VEC(uint32_t) dfas;      /* first state of each dfa */
    NFA_VEC(nfa_dstate) dstates; /* number 0 belongs to no dfa */
    NFA_VEC(nfa_dedge) dedges;
    NFA_VEC(nfa_count) counts;
    NFA_VEC(nfa_text) texts;
    NFA_VEC(uint64_t) text_sets;
    NFA_VEC(nfa_repeat) repeats;
    NFA_VEC(nfa_object) objects;
    NFA_VEC(nfa_array) arrays;
    NFA_VEC(nfa_slot) slots;
    NFA_VEC(nfa_part) parts;
    NFA_VEC(nfa_mark_set) mark_sets;
    NFA_VEC(int32_t) mark_ids;
    NFA_VEC(nfa_rule) rules; /* rule 0 matches the whole answer */
    /* for nfa_room, if max_depth limits the nesting of objects and arrays; else empty */
    NFA_VEC(uint8_t) heights;
    /* the block that holds all vectors once the grammar is complete; NULL: separate
     * ones */
    void *block;
    uint32_t max_depth;
    /* has NFA_ONCE nodes; NFA_WORD among them; names that may run out of continuations */
    bool has_names, has_words, has_tight;
    uint8_t byte_class[256]; /* class of each byte: bytes that no node tells apart have the same one */
    uint32_t n_byte_classes;
} nfa;

/* Appends an element to vec and returns its address; NULL if the build failed
 * (build.h). */
#define NFA_PUSH(b, vec)                                                                                     \
    (build_grow((b), &(vec).p, &(vec).cap, (vec).n, sizeof *(vec).p) ? &(vec).p[(vec).n++] : NULL)

/* Appends a copy of an element; false if the build failed. */
#define NFA_ADD(b, vec, ...)                                                                                 \
    (build_grow((b), &(vec).p, &(vec).cap, (vec).n, sizeof *(vec).p)                                         \
         ? ((vec).p[(vec).n++] = __VA_ARGS__, true)                                                          \
         : false)

/* Frees a vector filled by NFA_PUSH, and returns its bytes to the build's budget. */
#define NFA_FREE(b, vec) build_free((b), (vec).p, (vec).cap * sizeof *(vec).p)

/* How deep objects and arrays may still be nested. */
typedef struct nfa_room {
    /* levels that each node needs to reach the end of its rule; NULL: nesting is
     * unlimited */
    const uint8_t *heights;
    uint32_t levels;
} nfa_room;

#define NFA_ENDLESS 255u /* a height: the node can never be completed */

static inline bool nfa_fits(nfa_room room, uint32_t node) {
    return node != NFA_FAIL_NODE && (room.heights == NULL || room.heights[node] <= room.levels);
}

/* The least number of further members that an object needs for its required names and
 * rules; NFA_NONE: impossible. `satisfied` rules are done. Names from `next` on may come,
 * except those in `seen` (bits; NULL: none). room: inside the object. */
uint32_t nfa_members_needed(const nfa *a, const nfa_object *o, nfa_room room, uint32_t satisfied,
                            uint32_t next, const uint64_t *seen);

/* Whether a text with `count` characters can be completed from this state of its dfa
 * (from 0). */
bool nfa_text_can_end(const nfa *a, const nfa_text *t, uint32_t state, uint32_t count);

/* Whether an array with `count` items and these counts for its rules can be completed.
 * room: inside the array. */
bool nfa_items_can_end(const nfa *a, const nfa_array *r, nfa_room room, uint32_t count, uint32_t counts);
/* Counts an item for these rules. False if it is one too many. */
bool nfa_count_item(const nfa_array *r, uint32_t rules, uint32_t *counts);
bool nfa_counts_suffice(const nfa_array *r, uint32_t counts);

void nfa_deinit(nfa *a);
/* Moves all vectors into one block of the exact size; nothing can be added afterwards.
 * Out of memory, they stay where they are. */
void nfa_shrink(nfa *a);
size_t nfa_size_bytes(const nfa *a);

#endif
