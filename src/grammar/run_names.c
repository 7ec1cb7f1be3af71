/* Names of open members, which may not repeat in their object.
 *
 * States of the machine do not include names, so that masks serve all texts. A state of
 * the run (numbered from RUN_NAMED) adds to it what the text has named: the names of open
 * members in each enclosing object, and the part of a name that is being read. All of
 * that is stored in the machine's cells, so equal values have the same number, and counts
 * against its budget:
 *
 *   name     (byte, the name before it): its characters in UTF-8, whatever their spelling
 *   set      2 * (set, set), by the lowest bit of the names' numbers, then the next one;
 *            2 * name + 1 for a single name; 0: empty
 *   objects  (set, (depth of the object, objects around it)), and the number in the set
 *
 * A byte may not follow if it ends a repeated name, or leads to repeated names only.
 * Names are not tracked where some configuration reads no such name. Where names may run
 * out of continuations (not machine_is_roomy), neither are those of over MOST_BYTES, nor
 * any after NFA_FEW_NAMES of them: the search for a way out would take too long. Words
 * can always be continued, since words of over NFA_MOST_WORD bytes are not tracked. */
#include "grammar/grammar_run.h"

#include "base/utf8.h"

enum { PAIR = NFA_FAIL_NODE, NAME = NFA_RETURN_NODE }; /* markers: nodes that no stack has */
enum { MOST_BYTES = 128 };

/* How far an escape is read: value >> PHASE_SHIFT, its digits below. HEX, LOW: no digit
 * so far; each digit adds one. */
enum {
    PHASE_SHIFT = 26,
    PLAIN = 0,
    ESCAPE,
    HEX,
    HEX_END = HEX + 4,
    LOW_ESCAPE,
    LOW_U,
    LOW,
    LOW_END = LOW + 4
};

typedef struct named {
    uint32_t state, objects, name, value;
    bool is_new; /* no earlier name begins like this one, so it has no number */
} named;

static const machine_cell *cell(const run_core *r, uint32_t i) {
    return (const machine_cell *)r->m.cells.p + i;
}

static uint32_t run_names_pair(run_core *r, uint32_t data, uint32_t below, uint32_t beside) {
    return machine_number(&r->m, (machine_cell){PAIR, data, below, beside});
}

static const machine_state *run_names_place(const run_core *r, const named *n) {
    return machine_state_at(&r->m, n->state);
}

/* Counts work. False: the operation fails. */
static bool run_names_spend(run_core *r, uint32_t n) {
    if (!work_add(&r->m.meter, n)) {
        machine_fail(&r->m, MACHINE_LATER);
    }
    return r->m.why == MACHINE_FINE;
}

/* ---- states of the run ---- */

uint32_t run_base(const run_core *r, uint32_t s) {
    return s >= RUN_NAMED ? cell(r, s - RUN_NAMED)->data : s;
}

static named run_names_unpack(const run_core *r, uint32_t s) {
    if (s < RUN_NAMED) {
        return (named){.state = s};
    }
    const machine_cell *state = cell(r, s - RUN_NAMED), *name = cell(r, state->below),
                       *value = cell(r, name->below);
    return (named){.state = state->data, .name = name->data, .value = value->data, .objects = value->below};
}

/* The state of the run for n; MACHINE_FULL: the budget is used up. */
static uint32_t run_names_pack(run_core *r, const named *n) {
    if (n->objects == 0 && n->name == 0 && n->value == 0) {
        return n->state;
    }
    uint32_t state = run_names_pair(
        r, n->state, run_names_pair(r, n->name, run_names_pair(r, n->value, n->objects, 0), 0), 0);
    return r->m.failed ? MACHINE_FULL : RUN_NAMED + state;
}

/* ---- names ---- */

static bool set_has(const run_core *r, uint32_t set, uint32_t name) {
    for (uint32_t bits = name; set != 0 && (set & 1) == 0; bits >>= 1) {
        const machine_cell *c = cell(r, set / 2);
        set = (bits & 1) != 0 ? c->below : c->data;
    }
    return set == name * 2 + 1;
}

/* The set with one more name. */
static uint32_t set_add(run_core *r, uint32_t set, uint32_t name, uint32_t bit) {
    if (set == 0 || set == name * 2 + 1) {
        return name * 2 + 1;
    }
    machine_cell c = {0};
    if ((set & 1) == 0) {
        c = *cell(r, set / 2);
    } else {
        *((set >> 1 >> bit & 1) != 0 ? &c.below : &c.data) = set;
    }
    uint32_t *side = (name >> bit & 1) != 0 ? &c.below : &c.data;
    *side = set_add(r, *side, name, bit + 1);
    return run_names_pair(r, c.data, c.below, 0) * 2;
}

/* The names of the object at this depth; NULL: none. */
static const machine_cell *names_at(const run_core *r, const named *n, uint32_t depth) {
    bool is_it = n->objects != 0 && depth != 0 && cell(r, cell(r, n->objects)->below)->data == depth;
    return is_it ? cell(r, n->objects) : NULL;
}

static void run_names_add_name(run_core *r, named *n, uint32_t depth) {
    const machine_cell *names = names_at(r, n, depth);
    machine_cell had =
        names != NULL ? *names : (machine_cell){.below = run_names_pair(r, depth, n->objects, 0)};
    n->objects = run_names_pair(r, set_add(r, had.data, n->name, 0), had.below, had.depth + 1);
}

static bool is_short(const run_core *r, uint32_t name, uint32_t most) {
    uint32_t n = 0;
    for (; name != 0 && n <= most; n++) {
        name = cell(r, name)->below;
    }
    return n <= most;
}

/* Whether n's name is tracked, so that it may not repeat one of its object. */
static bool is_told_apart(const run_core *r, const named *n) {
    const machine_state *at = run_names_place(r, n);
    const machine_cell *names = names_at(r, n, at->name);
    if (at->is_word || !at->is_roomy) {
        bool is_few = at->is_word || names == NULL || names->depth <= NFA_FEW_NAMES;
        return at->least >= at->name && is_few &&
               is_short(r, n->name, at->is_word ? NFA_MOST_WORD : MOST_BYTES);
    }
    return at->least >= at->name;
}

/* Appends a byte. Without `adds`, a name that no earlier one begins with is only marked
 * as new. */
static void run_names_add_byte(run_core *r, named *n, uint8_t byte, bool adds) {
    const machine_cell c = {NAME, byte, n->name, 0};
    uint32_t longer = adds ? machine_number(&r->m, c) : n->is_new ? NFA_NONE : machine_find(&r->m, c);
    n->is_new = longer == NFA_NONE;
    n->name = n->is_new ? n->name : longer;
}

static void run_names_add_char(run_core *r, named *n, uint32_t c, bool adds) {
    char bytes[4];
    size_t len = utf8_encode((int32_t)c, bytes);
    for (size_t i = 0; i < len; i++) {
        run_names_add_byte(r, n, (uint8_t)bytes[i], adds);
    }
    n->value = 0;
}

static void add_digit(run_core *r, named *n, uint32_t phase, uint32_t bits, uint32_t digit, bool adds) {
    bits = phase >= LOW ? (bits & 0x3FF0000) | ((bits << 4 | digit) & 0xFFFF) : bits << 4 | digit;
    phase++;
    if (phase == HEX_END && bits >= 0xD800 && bits < 0xDC00) {
        n->value = (uint32_t)LOW_ESCAPE << PHASE_SHIFT | (bits - 0xD800) << 16;
    } else if (phase == HEX_END) {
        run_names_add_char(r, n, bits, adds);
    } else if (phase == LOW_END) {
        run_names_add_char(r, n, 0x10000 + (bits >> 16 << 10) + ((bits & 0xFFFF) - 0xDC00), adds);
    } else {
        n->value = phase << PHASE_SHIFT | bits;
    }
}

/* Reads a byte of a name, which the machine has accepted. Escapes are JSON's and
 * Python's; words have no backslash. */
static void run_names_read_byte(run_core *r, named *n, uint8_t byte, bool adds) {
    static const char letters[] = "\"'\\bfnrt/", meanings[] = "\"'\\\b\f\n\r\t/";
    uint32_t phase = n->value >> PHASE_SHIFT, bits = n->value & ((1u << PHASE_SHIFT) - 1);
    if (phase == PLAIN && byte != '\\') {
        run_names_add_byte(r, n, byte, adds);
    } else if (phase == PLAIN || phase == LOW_ESCAPE || phase == LOW_U) {
        n->value = (phase + 1) << PHASE_SHIFT | bits;
    } else if (phase != ESCAPE) {
        add_digit(r, n, phase, bits, (uint32_t)hex_digit((char)byte), adds);
    } else if (byte == 'u') {
        n->value = (uint32_t)HEX << PHASE_SHIFT;
    } else {
        const char *at = strchr(letters, byte);
        run_names_add_char(r, n, (uint8_t)(at != NULL && byte != 0 ? meanings[at - letters] : byte), adds);
    }
}

/* ---- a byte ---- */

/* Whether this byte, after which no name is read, ends the name; else the name was only
 * the beginning of a listed one. */
static bool ends_name(const run_core *r, const named *n, uint8_t byte) {
    return n->value == 0 && byte == run_names_place(r, n)->end;
}

/* Advances n by a byte. MACHINE_DEAD: it may not follow, or ends a repeated name;
 * MACHINE_FULL. n is undefined then. */
static uint32_t run_names_move(run_core *r, named *n, uint8_t byte, bool adds) {
    uint32_t to = machine_next(&r->m, n->state, byte);
    if (to < MACHINE_FIRST) {
        return to;
    }
    const machine_state *at = machine_state_at(&r->m, to);
    uint32_t depth = run_names_place(r, n)->name;
    if (depth != 0 && at->name == depth) {
        run_names_read_byte(r, n, byte, adds);
    } else if (depth != 0 && ends_name(r, n, byte) && at->least >= depth && is_told_apart(r, n)) {
        const machine_cell *names = names_at(r, n, depth);
        if (!n->is_new && names != NULL && set_has(r, names->data, n->name)) {
            return MACHINE_DEAD;
        }
        if (adds) {
            run_names_add_name(r, n, depth);
        }
    }
    if (at->name != depth) {
        n->name = n->value = 0;
        n->is_new = false;
    }
    while (n->objects != 0 && cell(r, cell(r, n->objects)->below)->data > at->most) {
        n->objects = cell(r, cell(r, n->objects)->below)->below;
    }
    n->state = to;
    return r->m.failed ? MACHINE_FULL : to;
}

/* Whether the search may skip a byte because the character has another spelling. All
 * characters have one, but control characters, quotes and backslashes. */
static bool is_respelt(uint32_t phase, uint8_t byte) {
    return phase == ESCAPE    ? byte == '/'
           : phase == HEX     ? byte != '0'
           : phase == HEX + 1 ? byte != '0'
           : phase == HEX + 2 ? byte != '0' && byte != '1'
           : phase > HEX + 2  ? byte >= 'A' && byte <= 'F'
                              : false;
}

/* Whether some continuation of n, which at most `left` characters of repeated names
 * begin, ends a new name. inside: n is in a character that has several spellings. A
 * failure counts as true. */
static bool run_names_may_end(run_core *r, const named *n, uint32_t left, bool inside) {
    const uint32_t depth = run_names_place(r, n)->name;
    for (uint32_t byte = 0; byte < 256; byte++) {
        named to = *n;
        if (!inside && is_respelt(n->value >> PHASE_SHIFT, (uint8_t)byte)) {
            continue;
        }
        uint32_t s = run_names_move(r, &to, (uint8_t)byte, false);
        if (s == MACHINE_FULL || (s != MACHINE_DEAD && !run_names_spend(r, 1))) {
            return true;
        }
        if (s == MACHINE_DEAD) {
            continue;
        }
        const machine_state *at = run_names_place(r, &to);
        uint32_t rest = left - (to.name != n->name);
        if (at->name != depth || at->is_roomy || to.is_new || rest == 0 ||
            run_names_may_end(r, &to, rest, inside && to.name == n->name)) {
            return true;
        }
    }
    return false;
}

/* Like run_names_move, but also MACHINE_DEAD if only repeated names could follow. */
static uint32_t run_names_step(run_core *r, named *n, uint8_t byte, bool adds) {
    uint32_t to = run_names_move(r, n, byte, adds);
    if (to < MACHINE_FIRST || run_names_place(r, n)->name == 0 || run_names_place(r, n)->is_roomy ||
        n->is_new) {
        return to;
    }
    if (names_at(r, n, run_names_place(r, n)->name) == NULL || !is_told_apart(r, n)) {
        return to;
    }
    bool lives = run_names_may_end(r, n, MOST_BYTES + 1, n->value != 0);
    return r->m.why != MACHINE_FINE ? MACHINE_FULL : lives ? to : MACHINE_DEAD;
}

uint32_t run_go(run_core *r, uint32_t s, str text, size_t *n) {
    uint32_t to = s;
    if (!r->m.a->has_names) {
        return run_walk(r, s, text, n);
    }
    named at = run_names_unpack(r, s);
    r->m.failed = false;
    for (*n = 0; *n < text.n && (to = run_names_step(r, &at, (uint8_t)text.p[*n], true)) >= MACHINE_FIRST;
         ++*n) {
    }
    return to < MACHINE_FIRST ? to : run_names_pack(r, &at);
}

/* ---- masks ---- */

#define TOKENS_A_UNIT 16 /* tokens removed in the time that it takes to visit a configuration */

static bool run_names_take_out(run_core *r, const vocab_trie *t, const trie_under *u, uint64_t *bits) {
    for (uint32_t i = 0; i < u->n; i++) {
        int32_t token = t->tokens[u->first + i];
        bits[token / 64] &= ~((uint64_t)1 << (token % 64));
    }
    return run_names_spend(r, u->n / TOKENS_A_UNIT);
}

/* Whether the byte leads to a name that no earlier one begins with. */
static bool leads_off(const run_core *r, const named *n, uint32_t to, uint8_t byte) {
    uint32_t depth = run_names_place(r, n)->name;
    bool is_char = depth != 0 && machine_state_at(&r->m, to)->name == depth && n->value == 0 && byte != '\\';
    return is_char && machine_find(&r->m, (machine_cell){NAME, byte, n->name, 0}) == NFA_NONE;
}

/* Removes the tokens among nodes first..end that would repeat a name after n. Without
 * `adds`: only those whose first name repeats, following such names. False: it fails. */
static bool forbid(run_core *r, const vocab_trie *t, uint32_t first, uint32_t end, const named *n, bool adds,
                   uint64_t *bits) {
    const uint32_t depth = run_names_place(r, n)->name;
    for (uint32_t i = first; i < end; i++) {
        const trie_node *node = &t->nodes[i];
        named to = *n;
        uint32_t next = machine_next(&r->m, n->state, node->byte);
        if (next == MACHINE_FULL || !run_names_spend(r, 1)) {
            return false;
        }
        if (next == MACHINE_DEAD || (!adds && leads_off(r, n, next, node->byte))) {
            continue;
        }
        next = run_names_step(r, &to, node->byte, adds && node->n > 0);
        if (next == MACHINE_FULL || (next == MACHINE_DEAD && !run_names_take_out(r, t, &t->under[i], bits))) {
            return false;
        }
        if (next == MACHINE_DEAD) {
            continue;
        }
        bool ended = depth != 0 && run_names_place(r, &to)->name != depth && ends_name(r, n, node->byte);
        if ((adds || (!to.is_new && !ended)) && node->n > 0 &&
            !forbid(r, t, node->child, node->child + node->n, &to, adds, bits)) {
            return false;
        }
    }
    return true;
}

/* What tokens contain after a state of the machine, besides the rest of the name being
 * read: a complete name, or so much of one that none may be left; and the same after the
 * end of a name. KNOWN: computed already. */
enum { HOLDS_NAME = 1, HOLDS_NEXT = 2, KNOWN = 4 };

/* Finds which of HOLDS_* the tokens among nodes first..end have. is_new: before the
 * token, state s is not in the name; ended: a name ended in the token. */
static unsigned find_names(run_core *r, const vocab_trie *t, uint32_t first, uint32_t end, uint32_t s,
                           bool is_new, bool ended) {
    const uint32_t depth = machine_state_at(&r->m, s)->name;
    unsigned found = 0;
    for (uint32_t i = first; i < end && run_names_spend(r, 1); i++) {
        const trie_node *node = &t->nodes[i];
        uint32_t to = machine_next(&r->m, s, node->byte);
        if (to < MACHINE_FIRST) {
            continue;
        }
        const machine_state *at = machine_state_at(&r->m, to);
        bool leaves = depth != 0 && at->name != depth,
             ends = leaves && node->byte == machine_state_at(&r->m, s)->end;
        found |= is_new && depth != 0 && (ends || !at->is_roomy) ? (ended ? HOLDS_NEXT : HOLDS_NAME) : 0u;
        found |= find_names(r, t, node->child, node->child + node->n, to, is_new || leaves, ended || ends);
    }
    return found;
}

/* The tokens with quotes that may have `what`; those with words are in vocab.words. */
static const vocab_trie *trie_of(const run_core *r, unsigned what) {
    const grammar_vocab *v = r->v;
    return what == HOLDS_NAME  ? (r->m.a->has_tight ? &v->begins : &v->quotes)
           : r->m.a->has_tight ? &v->quotes
                               : &v->thrice;
}

static bool run_names_holds(run_core *r, uint32_t s, unsigned what) {
    const vocab_trie *quotes = trie_of(r, what), *words = &r->v->words;
    machine_state *at = machine_state_at(&r->m, s);
    if ((at->names & what * KNOWN) == 0) {
        unsigned found = find_names(r, quotes, 0, quotes->n_roots, s, at->name == 0, false);
        found |= r->m.a->has_words ? find_names(r, words, 0, words->n_roots, s, at->name == 0, false) : 0u;
        at->names |= r->m.why != MACHINE_FINE ? 0 : (uint8_t)((found & what) | what * KNOWN);
    }
    return (at->names & what) != 0;
}

static bool forbid_in(run_core *r, const named *n, unsigned what, uint64_t *bits) {
    const vocab_trie *quotes = trie_of(r, what), *words = &r->v->words;
    return forbid(r, quotes, 0, quotes->n_roots, n, what == HOLDS_NEXT, bits) &&
           (!r->m.a->has_words || forbid(r, words, 0, words->n_roots, n, what == HOLDS_NEXT, bits));
}

bool run_forbid_names(run_core *r, uint32_t s, uint64_t *bits) {
    const vocab_trie *all = &r->v->all;
    if (!r->m.a->has_names) {
        return true;
    }
    const named n = run_names_unpack(r, s);
    bool ok = true;
    r->m.failed = false;
    if (names_at(r, &n, run_names_place(r, &n)->name) != NULL) {
        ok = forbid(r, all, 0, all->n_roots, &n, false, bits);
    } else if (n.objects != 0 && run_names_holds(r, n.state, HOLDS_NAME)) {
        ok = forbid_in(r, &n, HOLDS_NAME, bits);
    }
    if (ok && run_names_holds(r, n.state, HOLDS_NEXT)) {
        ok = forbid_in(r, &n, HOLDS_NEXT, bits);
    }
    return ok && r->m.why == MACHINE_FINE && !r->m.failed;
}
