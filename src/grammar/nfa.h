/* The compiled form of every grammar: rules whose nodes read bytes, characters or
 * strings, and call each other (a recursive transition network: Woods 1970). Private to
 * this room.
 *
 * Compilers append to it; build_finish checks and prunes it; then it is immutable. A node
 * is a number; nodes NFA_FAIL_NODE and NFA_RETURN_NODE are in every nfa. Characters are
 * code points; the machine (machine.h) decodes them from UTF-8 or from the escapes of
 * JSON strings. */
#ifndef GRAMMAR_NFA_H
#define GRAMMAR_NFA_H

#include "base/mem.h"
#include "base/str.h"

typedef enum nfa_op {
    NFA_FAIL,    /* nothing follows */
    NFA_RETURN,  /* end of a rule or of a body: continues at the top of the stack */
    NFA_SPLIT,   /* any of targets[arg .. arg + n) */
    NFA_BYTES,   /* bytes[arg .. arg + n), then next */
    NFA_CLASS,   /* one character of classes[arg], spelt by mode, then next */
    NFA_STRING,  /* characters that dfas[arg] accepts, then next */
    NFA_COUNTED, /* counts[arg].min to .max characters of any kind, then next */
    NFA_TEXT,    /* texts[arg].min to .max characters that its dfa accepts, then next */
    NFA_SPACE,   /* at most GRAMMAR_SPACE_MAX bytes of JSON's white space, then next */
    NFA_CALL,    /* rules[arg], then next */
    NFA_REPEAT,  /* repeats[arg].body, which ends in RETURN, min to max times, then next */
    NFA_OBJECT,  /* members of objects[arg] with commas, then next */
    NFA_ARRAY,   /* items of arrays[arg] with commas, then next */
    /* after the name of an open member that satisfies the rules of arg
     * (machine_members.c), then next */
    NFA_NAMED,
    NFA_MARK /* a special token of mark_sets[arg], then next */
} nfa_op;

/* How characters are spelt. */
typedef enum nfa_mode {
    NFA_RAW,  /* UTF-8 */
    NFA_JSON, /* in a JSON string: as themselves, or by any escape */
    NFA_PLAIN /* as NFA_JSON, but printable ASCII only as itself if possible: names, patterns */
} nfa_mode;

#define NFA_KEPT 1u /* the text is a name that NAMED reads, so its characters are kept on the stack */
#define NFA_ONCE 2u /* it is the name of an open member, which comes once in its object (run_names.c) */
/* it is written without quotes; every beginning of one goes on to names of over
 * NFA_MOST_WORD bytes */
#define NFA_WORD 4u

#define NFA_MOST_WORD 60

#define NFA_FAIL_NODE   0u
#define NFA_RETURN_NODE 1u
#define NFA_NONE        UINT32_MAX /* no target; no upper bound */
#define NFA_MAX_CHAR    0x10FFFFu

/* A special token is NFA_MARK_BYTE, which no UTF-8 has, then its id in digits of 6 bits,
 * the highest first. */
#define NFA_MARK_BYTE   0xFFu
#define NFA_MARK_DIGITS 4
static inline uint8_t nfa_mark_digit(int32_t id, uint32_t i) {
    return (uint8_t)(0x80u | ((uint32_t)id >> (6 * (NFA_MARK_DIGITS - 1 - i)) & 0x3Fu));
}

typedef struct nfa_node {
    uint8_t op, mode;
    /* of CALL and REPEAT 1: it must read something, an empty one is followed elsewhere;
     * of STRING and COUNTED bits: NFA_KEPT, NFA_ONCE, NFA_WORD */
    uint16_t n;
    uint32_t arg, next;
} nfa_node;

typedef struct nfa_range {
    uint32_t lo, hi; /* both inside */
} nfa_range;

typedef struct nfa_class { /* ranges[first .. first + n), ascending, apart */
    uint32_t first, n;
} nfa_class;

/* A deterministic automaton over characters; its states are dstates[first ..), edges of a
 * state ascending; `other` is the target of all characters without an edge. Every state
 * reaches an accepting one. */
typedef struct nfa_dstate {
    uint32_t first, other;
    uint32_t n : 28;
    /* what leads here is not a character of the text that is counted: a backslash of
     * Python's */
    bool silent : 1;
    bool accepts : 1;
    /* any characters are allowed that JSON strings don't escape: no text of them leads to
     * a dead end */
    bool roomy : 1;
    bool free : 1; /* the same of all characters */
} nfa_dstate;
typedef struct nfa_dedge {
    uint64_t lo : 21, hi : 21, to : 22; /* to: 0 where no character of the range may follow */
} nfa_dedge;
#define NFA_MAX_DSTATES (1u << 22)
#define NFA_MAX_DEDGES  ((1u << 28) - 1) /* of a state */
static inline nfa_dedge nfa_dedge_of(uint32_t lo, uint32_t hi, uint32_t to) {
    return (nfa_dedge){lo & 0x1FFFFFu, hi & 0x1FFFFFu, to & (NFA_MAX_DSTATES - 1)};
}
static inline uint32_t nfa_dedge_to(const nfa_dedge *e) {
    return e->to != 0 ? (uint32_t)e->to : NFA_NONE;
}

typedef struct nfa_count {
    uint32_t min, max;
} nfa_count;

/* A text is read up to (characters, state) as characters * n + state, which a number must
 * hold. Which states can still be completed within the length is looked up: set i has the
 * states from which i characters more may end the text, in text_sets[sets + i * words
 * ..), one bit a state; after the last of n_sets they come again from set `loop` on. */
typedef struct nfa_text {
    uint32_t first, n; /* the dfa's states */
    uint32_t min, max;
    uint32_t sets, n_sets, loop;
    /* so many characters more complete the text from every state, where it has min;
     * NFA_NONE: unknown */
    uint32_t far;
    uint32_t rich; /* so does every number from this one on, min or not; NFA_NONE: unknown */
} nfa_text;

static inline uint32_t nfa_text_words(const nfa_text *t) {
    return (t->n + 63) / 64;
}

typedef struct nfa_repeat {
    uint32_t body, min, max;
} nfa_repeat;

/* One way for a member or an item: entry reads it and ends in RETURN. */
typedef struct nfa_part {
    uint32_t entry;
    uint16_t name;  /* of a listed member: the number of its name */
    uint8_t rules;  /* those of its object that a member satisfies, or of its array to which an item counts */
    bool required;  /* of a member */
    bool remembers; /* of an open member: its name is recorded (NFA_NAMED) */
    uint32_t most;  /* of an open member: names that it may have; NFA_NONE: over NFA_FEW_NAMES */
} nfa_part;

#define NFA_MAX_MEMBERS 4096 /* names of one object */
#define NFA_MAX_RULES   4
#define NFA_FEW_NAMES   1000 /* more names of open members than that are not counted */
#define NFA_MAX_KEPT    48   /* names that are remembered */
/* Members: n_names listed ones once each, by any of the parts[first .. first + n) of
 * their name, which stand together; then n_open other parts any number of times. Each bit
 * of `rules` must be satisfied by some member. */
typedef struct nfa_object {
    uint32_t first, n, n_names, n_open, min, max;
    uint32_t comma; /* reads a comma and ends in RETURN */
    uint8_t rules;
    /* names of open members are distinguished up to `min`; that is at most NFA_MAX_KEPT -
     * NFA_MAX_RULES */
    bool distinct;
    bool comma_may_miss;
    bool any_order;
    bool few; /* names of open members may run out: each comes once */
} nfa_object;

/* The parts that an item may be: parts[first .. first + n). */
typedef struct nfa_slot {
    uint32_t first, n;
} nfa_slot;

#define NFA_MAX_ITEM_RULES 3
/* of several rules together: the product of one more than what each counts to */
#define NFA_MAX_COUNTS 256
/* Items: item i is of slots[first + i], or of slots[first + n] for all i >= n. With
 * `unique` each part of that last slot is allowed once (and n is 0). Of each rule `min`
 * to `max` items count, and only up to max, or min if there is no max; several counts are
 * one number, the first rule's digit the lowest. */
typedef struct nfa_array {
    uint32_t first, n, min, max;
    uint32_t comma;
    bool comma_may_miss;
    uint32_t n_rules;
    nfa_count rules[NFA_MAX_ITEM_RULES]; /* without any: 0 to NFA_NONE */
    bool unique;
} nfa_array;

/* Special tokens: mark_ids[first .. first + n), ascending, or all but these. */
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
    NFA_VEC(uint32_t) dfas;      /* first state of each */
    NFA_VEC(nfa_dstate) dstates; /* 0 is of none */
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
    NFA_VEC(nfa_rule) rules; /* rule 0 is the answer */
    /* nfa_room's, where objects and arrays are nested at most max_depth deep; else
     * none */
    NFA_VEC(uint8_t) heights;
    /* which all vectors lie in once the grammar is complete; NULL: each in one of its
     * own */
    void *block;
    uint32_t max_depth;
    /* some nodes are NFA_ONCE; of them NFA_WORD, or names that do not go on to any
     * others */
    bool has_names, has_words, has_tight;
    uint8_t byte_class[256]; /* bytes that no node distinguishes have the same */
    uint32_t n_byte_classes;
} nfa;

/* Appends one element to vec and returns its address, or NULL: the build failed
 * (build.h). */
#define NFA_PUSH(b, vec)                                                                                     \
    (build_grow((b), &(vec).p, &(vec).cap, (vec).n, sizeof *(vec).p) ? &(vec).p[(vec).n++] : NULL)

/* Frees a vector that NFA_PUSH has filled; what it was charged is returned to the build's
 * budget. */
#define NFA_FREE(b, vec) build_free((b), (vec).p, (vec).cap * sizeof *(vec).p)

/* How deep objects and arrays may still be nested at a place. */
typedef struct nfa_room {
    /* of nodes: how many levels each needs at least up to the end of its rule; NULL: any
     * number is left */
    const uint8_t *heights;
    uint32_t levels;
} nfa_room;

#define NFA_ENDLESS 255u /* a height: the node cannot be completed */

static inline bool nfa_fits(nfa_room room, uint32_t node) {
    return node != NFA_FAIL_NODE && (room.heights == NULL || room.heights[node] <= room.levels);
}

/* How many members more an object needs at least for its required names and rules, of
 * which some are satisfied: NFA_NONE where they cannot be. Names from `next` on are
 * allowed, except those in `seen` (bits; NULL: none occurred). room: inside the
 * object. */
uint32_t nfa_members_needed(const nfa *a, const nfa_object *o, nfa_room room, uint32_t satisfied,
                            uint32_t next, const uint64_t *seen);

/* Whether a text can be completed from a state of its dfa (from 0 on) where it has
 * `count` characters. */
bool nfa_text_can_end(const nfa *a, const nfa_text *t, uint32_t state, uint32_t count);

/* Whether an array of `count` items, with these counts of its rules, can be completed.
 * room: inside the array. */
bool nfa_items_can_end(const nfa *a, const nfa_array *r, nfa_room room, uint32_t count, uint32_t counts);
/* Counts an item of these rules; false: it is one too many. */
bool nfa_count_item(const nfa_array *r, uint32_t rules, uint32_t *counts);
bool nfa_counts_suffice(const nfa_array *r, uint32_t counts);

void nfa_deinit(nfa *a);
/* Moves all vectors into one block of their size; no more can be added. Where memory is
 * out, they stay as they are. */
void nfa_shrink(nfa *a);
size_t nfa_size_bytes(const nfa *a);

#endif
