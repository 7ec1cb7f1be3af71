/* The machine of a compiled grammar: sets of configurations, built as bytes are read, and
 * numbered so that equal sets are one state. Private to this room; the caller holds the
 * run's lock.
 *
 * A configuration is a node, how far it has read, and a stack. Stacks are lists with
 * shared cells: equal stacks have the same number. A state is a sorted set of
 * configurations; its row caches the next state for each class of bytes. So the machine
 * is the grammar's deterministic automaton, of which only visited states exist.
 * Everything is in areas that only grow. */
#ifndef GRAMMAR_MACHINE_H
#define GRAMMAR_MACHINE_H

#include "base/turn.h"
#include "grammar/area.h"
#include "grammar/nfa.h"

#define MACHINE_UNKNOWN 0u /* in a row: not computed yet */
#define MACHINE_DEAD    1u
#define MACHINE_FULL    2u /* returned by machine_next: it failed, see machine.why */
#define MACHINE_FIRST   3u /* the state before the first byte */

#define MACHINE_MAX_CONFIGS 16384  /* most configurations of a state */
#define MACHINE_MAX_WORK    200000 /* most configurations visited for one byte */
/* most configurations visited for the mask of a state, not counting transitions that were
 * known */
#define MACHINE_MAX_SPENT 4000000

/* Why an operation failed. After MACHINE_CRAMPED or MACHINE_LATER it may be retried. */
typedef enum machine_why {
    MACHINE_FINE,
    MACHINE_CRAMPED,   /* retry after machine_grow */
    MACHINE_LATER,     /* the step's work_room or, outside a step, `slice` is used up */
    MACHINE_SPENT,     /* over MACHINE_MAX_SPENT */
    MACHINE_AMBIGUOUS, /* over MACHINE_MAX_CONFIGS or MACHINE_MAX_WORK */
    MACHINE_NO_BUDGET, /* the budget for states is used up */
    MACHINE_NO_SHARE   /* the account has no more memory */
} machine_why;

typedef struct machine_config {
    uint32_t node;
    uint32_t at;    /* bytes or characters read, state of the dfa, or both (nfa_text) */
    uint32_t value; /* the part of a character that was read: machine_chars.c */
    uint32_t stack; /* its top cell; 0: empty */
} machine_config;

typedef struct machine_cell {
    uint32_t node, data, below;
    uint32_t depth; /* number of objects and arrays in the stack up to here */
} machine_cell;

/* What an open object or array contains so far. */
typedef struct machine_tally {
    uint32_t count; /* members or items, up to where more make no difference */
    /* object in schema order: the next part; array: items that count towards
     * `contains` */
    uint32_t other;
    uint32_t first, n; /* words that record the parts seen */
} machine_tally;

typedef struct machine_state {
    uint32_t first, n; /* its configurations */
    uint32_t row;      /* index in rows, plus 1; 0: none yet */
    uint32_t mask;     /* mask.c: place of the mask, plus 1; 0: not built */
    uint32_t spent;    /* work for transitions that its mask needed */
    bool final, over;
    uint16_t only;        /* mask.c: the only byte that may follow */
    uint32_t most, least; /* most and least number of objects and arrays around a configuration */
    /* number of objects and arrays around the name being read, if it is an open member's
     * and may not repeat; 0: none is */
    uint32_t name;
    bool is_roomy, is_word; /* every prefix of that name leads to other names; it has no quotes */
    uint8_t end;            /* the byte that ends that name; 0: unknown */
    uint8_t names;          /* run_names.c: which tokens contain names */
} machine_state;

typedef struct machine_table { /* open addressing; slots have an element's number plus 1 */
    area slots;
    uint32_t n_slots;
} machine_table;

typedef struct machine {
    const nfa *a;
    area_budget budget;
    area configs, cells, tallies, words, states, rows;
    uint32_t n_configs, n_cells, n_tallies, n_words, n_states, n_rows;
    machine_table cell_table, tally_table, state_table;
    /* of one transition: */
    area next, work, visited;
    uint32_t n_next, n_work, n_visited, n_slots, stamp;
    bool failed, crowded; /* crowded: visited has too few slots */
    uint32_t looked;      /* configurations visited */
    /* of one operation, from machine_begin to machine_end: */
    work_meter meter; /* counts configurations */
    /* configurations of finished transitions; without a work_room, the operation stops
     * with MACHINE_LATER at `slice` of them */
    uint64_t slice, made;
    uint32_t account; /* the state whose mask is being built; 0: none */
    machine_why why;
    area *cramped; /* the area that needs `wanted` bytes */
    size_t wanted;
} machine;

/* Opens a machine. account: charged for its memory; NULL: none. QUIRE_TOO_LARGE,
 * QUIRE_NO_MEMORY. */
quire_err machine_init(machine *m, const nfa *a, size_t max_bytes, area_account *account);
void machine_deinit(machine *m);
/* Begins an operation of the calling thread. Within a step, it stops when the
 * work_room (base/turn.h) is used up; outside, after `slice` configurations. */
void machine_begin(machine *m, uint64_t slice);
void machine_end(machine *m);
/* Records why an operation fails. */
void machine_fail(machine *m, machine_why why);
/* The error for the operation's caller: QUIRE_BUSY if it may be retried (after
 * machine_grow), QUIRE_TOO_LARGE, QUIRE_NO_MEMORY. */
quire_err machine_error(const machine *m);
/* Enlarges the area that was too small. Areas may move, so pointers into the machine
 * become invalid. QUIRE_NO_MEMORY: nothing changed. */
quire_err machine_grow(machine *m);
/* The state after a byte; MACHINE_DEAD if it may not follow, MACHINE_FULL on failure. */
uint32_t machine_next(machine *m, uint32_t state, uint8_t byte);
/* The state for a set of configurations in any order; MACHINE_FULL on failure. */
uint32_t machine_state_of(machine *m, const machine_config *set, uint32_t n);
/* The row of a state: the next state for each class of bytes, or MACHINE_UNKNOWN. NULL:
 * the budget is used up. */
const uint32_t *machine_row(machine *m, uint32_t state);

static inline machine_state *machine_state_at(const machine *m, uint32_t state) {
    return (machine_state *)m->states.p + state;
}
static inline const machine_config *machine_configs(const machine *m, uint32_t state) {
    return (const machine_config *)m->configs.p + machine_state_at(m, state)->first;
}

/* ---- for machine_chars.c and machine_members.c ---- */

/* The levels of nesting that are left above this stack. */
static inline nfa_room machine_room(const machine *m, uint32_t stack) {
    return (nfa_room){m->a->heights.p, m->a->max_depth - ((const machine_cell *)m->cells.p)[stack].depth};
}

/* Adds a configuration to the current transition. */
void machine_add(machine *m, machine_config c);
/* Adds what follows (node, at) with this stack without reading a byte. fresh: the top of
 * the stack was pushed since the last byte. */
void machine_follow(machine *m, uint32_t node, uint32_t at, uint32_t stack, uint32_t fresh);
uint32_t machine_push(machine *m, uint32_t node, uint32_t data, uint32_t below);
/* The number of a cell; machine_find: NFA_NONE if there is no such cell yet. */
uint32_t machine_number(machine *m, machine_cell c);
uint32_t machine_find(const machine *m, machine_cell c);
/* The number of a tally with these words. */
uint32_t machine_tally_of(machine *m, machine_tally t, const uint64_t *words);
/* machine_chars.c: reads a byte at a node for characters. */
void machine_read_char(machine *m, const machine_config *c, uint8_t byte);
/* Whether c reads the name of an open member that may not repeat; and whether every
 * prefix of it leads to infinitely many other names. */
static inline bool machine_is_name(const machine *m, const machine_config *c) {
    const nfa_node *node = &m->a->nodes.p[c->node];
    return (node->op == NFA_STRING || node->op == NFA_COUNTED) && (node->n & NFA_ONCE) != 0;
}
bool machine_is_roomy(const machine *m, const machine_config *c);
/* machine.c: reads a byte at a node for a special token. */
void machine_read_mark(machine *m, const machine_config *c, uint8_t byte);
/* machine_members.c: what follows in an object or array after a part (or at its start),
 * and after a comma. */
void machine_object_next(machine *m, uint32_t node, uint32_t tally, uint32_t stack, uint32_t fresh);
void machine_object_part(machine *m, uint32_t node, uint32_t tally, uint32_t stack, uint32_t fresh);
/* Continues after the name of an open member, which is in the stack's top cell. */
void machine_object_named(machine *m, uint32_t node, uint32_t stack);
void machine_array_next(machine *m, uint32_t node, uint32_t tally, uint32_t stack, uint32_t fresh);
void machine_array_part(machine *m, uint32_t node, uint32_t tally, uint32_t stack, uint32_t fresh);

#endif
