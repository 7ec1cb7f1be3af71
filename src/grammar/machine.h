/* The machine of a compiled grammar: sets of configurations, built as bytes come and
 * numbered, so that equal sets are one state. Private to this room; the caller holds the
 * run's lock.
 *
 * A configuration is a node, how far it is read, and a stack. Stacks are lists whose
 * cells are shared: equal stacks have one number. A state is a sorted set of
 * configurations; its row remembers the state after each class of bytes. So the machine
 * is the deterministic automaton of the grammar, of which only the visited part exists.
 * Everything is in reserved areas that only grow. */
#ifndef GRAMMAR_MACHINE_H
#define GRAMMAR_MACHINE_H

#include "base/turn.h"
#include "grammar/area.h"
#include "grammar/nfa.h"

#define MACHINE_UNKNOWN 0u /* in a row: not built yet */
#define MACHINE_DEAD    1u
#define MACHINE_FULL    2u /* returned by machine_next: it failed, for the reason in machine.why */
#define MACHINE_FIRST   3u /* the state before any byte */

#define MACHINE_MAX_CONFIGS 16384  /* configurations of a state */
#define MACHINE_MAX_WORK    200000 /* configurations that one byte after a state may take to look at */
/* and all bytes that the mask after a state needs, without those that were computed
 * before */
#define MACHINE_MAX_SPENT 4000000

/* Why an operation failed. The first two: it may be tried again. */
typedef enum machine_why {
    MACHINE_FINE,
    MACHINE_CRAMPED,   /* after machine_grow */
    MACHINE_LATER,     /* the room of the step, or the slice of a thread outside, is used up */
    MACHINE_SPENT,     /* past MACHINE_MAX_SPENT */
    MACHINE_AMBIGUOUS, /* past MACHINE_MAX_CONFIGS or MACHINE_MAX_WORK */
    MACHINE_NO_BUDGET, /* of states */
    MACHINE_NO_SHARE   /* of the account */
} machine_why;

typedef struct machine_config {
    uint32_t node;
    uint32_t at;    /* bytes or characters read, state of the dfa, or both of these (nfa_text) */
    uint32_t value; /* where a character is read partly: machine_chars.c */
    uint32_t stack; /* top cell; 0: empty */
} machine_config;

typedef struct machine_cell {
    uint32_t node, data, below;
    uint32_t depth; /* objects and arrays in the stack up to here */
} machine_cell;

/* What an object or array holds so far. */
typedef struct machine_tally {
    uint32_t count; /* members or items, up to where more makes no difference */
    /* of an object in the schema's order: the next part; of an array: those that count
     * towards `contains` */
    uint32_t other;
    uint32_t first, n; /* words of seen parts */
} machine_tally;

typedef struct machine_state {
    uint32_t first, n; /* configurations */
    uint32_t row;      /* in rows, plus 1; 0: none yet */
    uint32_t mask;     /* of mask.c: the place of the mask, plus 1; 0: not built */
    uint32_t spent;    /* work of the transitions that were made for its mask */
    bool final, over;
    uint16_t only;        /* of mask.c: the only byte that may follow */
    uint32_t most, least; /* objects and arrays around a configuration */
    /* how many are around the name that is being read, of an open member that comes once;
     * 0: none is */
    uint32_t name;
    bool is_roomy, is_word; /* every prefix of that name leads to other names; it has no quotes */
    uint8_t end;            /* the byte that ends it; 0: unknown */
    uint8_t names;          /* of run_names.c: which tokens have names in them */
} machine_state;

typedef struct machine_table { /* open addressing over numbers of elements, plus 1 */
    area slots;
    uint32_t n_slots;
} machine_table;

typedef struct machine {
    const nfa *a;
    area_budget budget;
    area configs, cells, tallies, words, states, rows;
    uint32_t n_configs, n_cells, n_tallies, n_words, n_states, n_rows;
    machine_table cell_table, tally_table, state_table;
    /* one transition */
    area next, work, visited;
    uint32_t n_next, n_work, n_visited, n_slots, stamp;
    bool failed, crowded; /* crowded: visited had too few slots */
    uint32_t looked;      /* configurations visited */
    /* one operation, from machine_begin to machine_end */
    work_meter meter; /* of configurations */
    /* of them, those of finished transitions; after slice it is MACHINE_LATER if there is
     * no room */
    uint64_t slice, made;
    uint32_t account; /* the state whose mask it makes; 0: none */
    machine_why why;
    area *cramped; /* which area is to have so many bytes */
    size_t wanted;
} machine;

/* Opens a machine. account: charged for its memory; NULL: none. QUIRE_TOO_LARGE,
 * QUIRE_NO_MEMORY. */
quire_err machine_init(machine *m, const nfa *a, size_t max_bytes, area_account *account);
void machine_deinit(machine *m);
/* Begins an operation of the calling thread. Within a step it does what fits into the
 * room (base/turn.h); elsewhere it stops after the transitions of `slice`
 * configurations. */
void machine_begin(machine *m, uint64_t slice);
void machine_end(machine *m);
/* Notes why an operation fails. */
void machine_fail(machine *m, machine_why why);
/* What the operation's failure means for its caller: QUIRE_BUSY where it may be tried
 * again (after machine_grow), QUIRE_TOO_LARGE, QUIRE_NO_MEMORY. */
quire_err machine_error(const machine *m);
/* Grows the cramped area. Areas may move, so no pointer into the machine survives the
 * call. QUIRE_NO_MEMORY: unchanged. */
quire_err machine_grow(machine *m);
/* The state after a byte: MACHINE_DEAD where none is, MACHINE_FULL. */
uint32_t machine_next(machine *m, uint32_t state, uint8_t byte);
/* The state of a set of configurations, in any order; MACHINE_FULL. */
uint32_t machine_state_of(machine *m, const machine_config *set, uint32_t n);
/* The row of a state: the state after each class of bytes, MACHINE_UNKNOWN if it is not
 * computed yet. NULL: the budget is used up. */
const uint32_t *machine_row(machine *m, uint32_t state);

static inline machine_state *machine_state_at(const machine *m, uint32_t state) {
    return (machine_state *)m->states.p + state;
}
static inline const machine_config *machine_configs(const machine *m, uint32_t state) {
    return (const machine_config *)m->configs.p + machine_state_at(m, state)->first;
}

/* ---- for its parts ---- */

/* What a stack leaves for objects and arrays to be nested. */
static inline nfa_room machine_room(const machine *m, uint32_t stack) {
    return (nfa_room){m->a->heights.p, m->a->max_depth - ((const machine_cell *)m->cells.p)[stack].depth};
}

/* Adds a configuration to the transition under way. */
void machine_add(machine *m, machine_config c);
/* Adds what follows without reading: (node, at) with a stack. fresh: the stack's top was
 * pushed since the last byte. */
void machine_follow(machine *m, uint32_t node, uint32_t at, uint32_t stack, uint32_t fresh);
uint32_t machine_push(machine *m, uint32_t node, uint32_t data, uint32_t below);
/* The number of any cell; of one that is there, else NFA_NONE. */
uint32_t machine_number(machine *m, machine_cell c);
uint32_t machine_find(const machine *m, machine_cell c);
/* The number of a tally, whose words are given apart. */
uint32_t machine_tally_of(machine *m, machine_tally t, const uint64_t *words);
/* machine_chars.c: a byte for a node that reads characters. */
void machine_read_char(machine *m, const machine_config *c, uint8_t byte);
/* Whether c reads the name of an open member that comes once; and whether every prefix of
 * it leads to endless other names. */
static inline bool machine_is_name(const machine *m, const machine_config *c) {
    const nfa_node *node = &m->a->nodes.p[c->node];
    return (node->op == NFA_STRING || node->op == NFA_COUNTED) && (node->n & NFA_ONCE) != 0;
}
bool machine_is_roomy(const machine *m, const machine_config *c);
/* machine.c: a byte for a special token. */
void machine_read_mark(machine *m, const machine_config *c, uint8_t byte);
/* machine_members.c: an object or array after a part (or at its beginning), and after a
 * comma. */
void machine_object_next(machine *m, uint32_t node, uint32_t tally, uint32_t stack, uint32_t fresh);
void machine_object_part(machine *m, uint32_t node, uint32_t tally, uint32_t stack, uint32_t fresh);
/* After the name of an open member: stack's top cell holds the name. */
void machine_object_named(machine *m, uint32_t node, uint32_t stack);
void machine_array_next(machine *m, uint32_t node, uint32_t tally, uint32_t stack, uint32_t fresh);
void machine_array_part(machine *m, uint32_t node, uint32_t tally, uint32_t stack, uint32_t fresh);

#endif
