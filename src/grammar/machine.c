/* States of the machine: transitions, and the numbering of equal stacks, tallies and
 * sets. */
#include "grammar/machine.h"

#include <assert.h>

#include "grammar/grammar.h"

#define MAX_WORK    65536
#define FEW_VISITED 512   /* slots for visits in a small transition, at most half used */
#define N_VISITED   65536 /* slots in the largest transition */
#define FIRST_SLOTS 256
#define FIRST_BYTES ((size_t)256 << 10) /* bytes of an area at first */

typedef struct machine_work {
    uint32_t node, at, stack, fresh;
} machine_work;

typedef struct machine_seen {
    machine_work key;
    uint32_t stamp;
} machine_seen;

/* ---- tables ---- */

static uint32_t machine_mix(uint32_t h, uint32_t v) {
    h = (h ^ v) * 0x9E3779B1u;
    return h ^ (h >> 15);
}

static uint32_t hash_words(const void *p, size_t n_bytes, uint32_t h) {
    const uint32_t *w = p;
    for (size_t i = 0; i < n_bytes / sizeof *w; i++) {
        h = machine_mix(h, w[i]);
    }
    return h;
}

static uint32_t cell_hash(const machine *m, uint32_t i) {
    return hash_words((const machine_cell *)m->cells.p + i, sizeof(machine_cell), 1);
}
static uint32_t tally_hash(const machine *m, uint32_t i) {
    const machine_tally *t = (const machine_tally *)m->tallies.p + i;
    return hash_words((const uint64_t *)m->words.p + t->first, t->n * sizeof(uint64_t),
                      machine_mix(machine_mix(2, t->count), t->other));
}
static uint32_t state_hash(const machine *m, uint32_t i) {
    const machine_state *s = machine_state_at(m, i);
    return hash_words((const machine_config *)m->configs.p + s->first, s->n * sizeof(machine_config), 3);
}

void machine_fail(machine *m, machine_why why) {
    m->failed = true;
    m->why = m->why == MACHINE_FINE ? why : m->why;
}

/* Like area_use, by the machine's budget. False: it failed. */
static bool machine_use(machine *m, area *a, area_budget *budget, size_t bytes) {
    static const machine_why reasons[] = {MACHINE_FINE, MACHINE_CRAMPED, MACHINE_NO_BUDGET, MACHINE_NO_SHARE};
    area_result r = area_use(a, budget, bytes);
    if (r == AREA_USED) {
        return true;
    }
    if (r == AREA_PAST_RESERVE && m->why == MACHINE_FINE) {
        m->cramped = a;
        m->wanted = bytes;
    }
    machine_fail(m, reasons[r]);
    return false;
}

static bool grammar_machine_use(machine *m, area *a, size_t bytes) {
    return machine_use(m, a, &m->budget, bytes) && !m->failed;
}

/* Counts visits of configurations. False: there is no time left now, or there are too
 * many for one byte. */
static bool do_work(machine *m, uint32_t n) {
    if (!work_add(&m->meter, n)) {
        machine_fail(m, MACHINE_LATER);
    }
    return !m->failed;
}

/* Adds element i, the newest of n, to t; grows t if it is half full. */
static bool table_put(machine *m, machine_table *t, uint32_t i, uint32_t first,
                      uint32_t (*hash)(const machine *m, uint32_t i)) {
    uint32_t from = i;
    if ((i + 1) * 2 > t->n_slots) {
        uint32_t n = t->n_slots == 0 ? FIRST_SLOTS : t->n_slots * 2;
        if (!grammar_machine_use(m, &t->slots, n * sizeof(uint32_t)) || !do_work(m, i - first + 1)) {
            return false;
        }
        memset(t->slots.p, 0, n * sizeof(uint32_t));
        t->n_slots = n;
        from = first;
    }
    uint32_t *slots = t->slots.p;
    for (; from <= i; from++) {
        uint32_t at = hash(m, from) & (t->n_slots - 1);
        while (slots[at] != 0) {
            at = (at + 1) & (t->n_slots - 1);
        }
        slots[at] = from + 1;
    }
    return true;
}

#define TABLE_EACH(t, h, i)                                                                                  \
    for (uint32_t at_ = (h) & ((t).n_slots - 1), i = 0;                                                      \
         (t).n_slots > 0 && (i = ((const uint32_t *)(t).slots.p)[at_]) != 0;                                 \
         at_ = (at_ + 1) & ((t).n_slots - 1))

uint32_t machine_find(const machine *m, machine_cell c) {
    assert(m != NULL);
    TABLE_EACH(m->cell_table, hash_words(&c, sizeof c, 1), i) {
        if (memcmp((const machine_cell *)m->cells.p + i - 1, &c, sizeof c) == 0) {
            return i - 1;
        }
    }
    return NFA_NONE;
}

uint32_t machine_number(machine *m, machine_cell c) {
    uint32_t there = machine_find(m, c);
    if (there != NFA_NONE) {
        return there;
    }
    if (!grammar_machine_use(m, &m->cells, (m->n_cells + 1) * sizeof c)) {
        return 0;
    }
    ((machine_cell *)m->cells.p)[m->n_cells] = c;
    if (!table_put(m, &m->cell_table, m->n_cells, 1, cell_hash)) {
        return 0;
    }
    return m->n_cells++;
}

uint32_t machine_push(machine *m, uint32_t node, uint32_t data, uint32_t below) {
    assert(m != NULL);
    bool is_level = m->a->nodes.p[node].op == NFA_OBJECT || m->a->nodes.p[node].op == NFA_ARRAY;
    return machine_number(
        m, (machine_cell){node, data, below, ((const machine_cell *)m->cells.p)[below].depth + is_level});
}

uint32_t machine_tally_of(machine *m, machine_tally t, const uint64_t *words) {
    assert(m != NULL);
    uint32_t h = hash_words(words, t.n * sizeof *words, machine_mix(machine_mix(2, t.count), t.other));
    TABLE_EACH(m->tally_table, h, i) {
        const machine_tally *o = (const machine_tally *)m->tallies.p + i - 1;
        if (o->count == t.count && o->other == t.other && o->n == t.n &&
            (t.n == 0 || memcmp((const uint64_t *)m->words.p + o->first, words, t.n * sizeof *words) == 0)) {
            return i - 1;
        }
    }
    if (!grammar_machine_use(m, &m->tallies, (m->n_tallies + 1) * sizeof t) ||
        !grammar_machine_use(m, &m->words, (m->n_words + t.n) * sizeof *words)) {
        return 0;
    }
    t.first = m->n_words;
    mem_copy((uint64_t *)m->words.p + m->n_words, words, t.n * sizeof *words);
    ((machine_tally *)m->tallies.p)[m->n_tallies] = t;
    if (!table_put(m, &m->tally_table, m->n_tallies, 0, tally_hash)) {
        return 0;
    }
    m->n_words += t.n;
    return m->n_tallies++;
}

/* ---- one transition ---- */

/* Counts configurations in the current transition. */
static bool machine_look_at(machine *m, uint32_t n) {
    m->looked += n;
    if (m->looked > MACHINE_MAX_WORK) {
        machine_fail(m, MACHINE_AMBIGUOUS);
    }
    return !m->failed && do_work(m, n);
}

void machine_add(machine *m, machine_config c) {
    assert(m != NULL);
    if (m->n_next >= MACHINE_MAX_CONFIGS) {
        machine_fail(m, MACHINE_AMBIGUOUS);
    }
    if (!machine_look_at(m, 1) || !grammar_machine_use(m, &m->next, (m->n_next + 1) * sizeof c)) {
        return;
    }
    ((machine_config *)m->next.p)[m->n_next++] = c;
}

/* Whether w is new in this transition. */
static bool machine_visit(machine *m, const machine_work *w) {
    machine_seen *seen = m->visited.p;
    uint32_t last = m->n_slots - 1, at = hash_words(w, sizeof *w, 4) & last;
    while (seen[at].stamp == m->stamp) {
        if (memcmp(&seen[at].key, w, sizeof *w) == 0) {
            return false;
        }
        at = (at + 1) & last;
    }
    if (++m->n_visited > m->n_slots / 2) {
        m->failed = m->crowded = true; /* may succeed with more slots */
        return false;
    }
    seen[at] = (machine_seen){*w, m->stamp};
    return true;
}

void machine_follow(machine *m, uint32_t node, uint32_t at, uint32_t stack, uint32_t fresh) {
    machine_work w = {node, at, stack, fresh};
    if (m->failed || !nfa_fits(machine_room(m, stack), node) || !machine_look_at(m, 1) ||
        !machine_visit(m, &w)) {
        return;
    }
    if (m->n_work >= MAX_WORK) {
        machine_fail(m, MACHINE_AMBIGUOUS);
    }
    if (m->failed || !grammar_machine_use(m, &m->work, (m->n_work + 1) * sizeof w)) {
        return;
    }
    ((machine_work *)m->work.p)[m->n_work++] = w;
}

static void follow_repeat(machine *m, const nfa_node *node, uint32_t id, uint32_t count, uint32_t stack,
                          uint32_t fresh) {
    const nfa_repeat *r = &m->a->repeats.p[node->arg];
    if (count >= r->min && (count > 0 || node->n == 0)) {
        machine_follow(m, node->next, 0, stack, fresh);
    }
    if (count < r->max) {
        uint32_t cap = r->min > 0 ? r->min : 1, kept = r->max == NFA_NONE && count > cap ? cap : count;
        machine_follow(m, r->body, 0, machine_push(m, id, kept, stack), 1);
    }
}

/* The end of a rule or body. A frame pushed since the last byte has read nothing;
 * `nullable` covers that at the call. */
static void follow_return(machine *m, const machine_work *w) {
    if (w->fresh != 0) {
        return;
    }
    if (w->stack == 0) {
        machine_add(m, (machine_config){.node = NFA_RETURN_NODE});
        return;
    }
    machine_cell c = ((const machine_cell *)m->cells.p)[w->stack];
    const nfa_node *node = &m->a->nodes.p[c.node];
    switch ((nfa_op)node->op) {
    case NFA_REPEAT:
        follow_repeat(m, node, c.node, c.data + 1, c.below, 0);
        break;
    case NFA_OBJECT:
        (c.data & 1 ? machine_object_next : machine_object_part)(m, c.node, c.data >> 1, c.below, 0);
        break;
    case NFA_ARRAY:
        (c.data & 1 ? machine_array_next : machine_array_part)(m, c.node, c.data >> 1, c.below, 0);
        break;
    default:
        machine_follow(m, node->next, 0, c.below, 0);
    }
}

static void follow_call(machine *m, const machine_work *w, const nfa_node *node) {
    const nfa_rule *r = &m->a->rules.p[node->arg];
    if (node->next == NFA_RETURN_NODE) { /* a call at the end needs no frame */
        machine_follow(m, r->start, 0, w->stack, w->fresh);
    } else {
        machine_follow(m, r->start, 0, machine_push(m, w->node, 0, w->stack), 1);
    }
    if (r->nullable && node->n == 0) {
        machine_follow(m, node->next, 0, w->stack, w->fresh);
    }
}

static void follow_string(machine *m, const machine_work *w, const nfa_node *node) {
    uint32_t q = w->at != 0 ? w->at : m->a->dfas.p[node->arg], stack = w->stack;
    const nfa_dstate *d = &m->a->dstates.p[q];
    if ((node->n & NFA_KEPT) != 0 && w->at == 0) { /* a cell for the name, without characters so far */
        stack = machine_push(m, w->node, 0, stack);
    }
    /* a name continues up to what ends it */
    if (d->n > 0 || d->other != NFA_NONE || (node->n & NFA_ONCE) != 0) {
        machine_add(m, (machine_config){w->node, q, 0, stack});
    }
    if (d->accepts) {
        machine_follow(m, node->next, 0, stack, w->fresh);
    }
}

static void follow_text(machine *m, const machine_work *w, const nfa_node *node) {
    const nfa_text *t = &m->a->texts.p[node->arg];
    const nfa_dstate *d = &m->a->dstates.p[t->first + w->at % t->n];
    if ((w->at / t->n < t->max || d->silent) && (d->n > 0 || d->other != NFA_NONE)) {
        machine_add(m, (machine_config){w->node, w->at, 0, w->stack});
    }
    if (w->at / t->n >= t->min && d->accepts) {
        machine_follow(m, node->next, 0, w->stack, w->fresh);
    }
}

static void follow_one(machine *m, const machine_work *w) {
    const nfa *a = m->a;
    const nfa_node *node = &a->nodes.p[w->node];
    switch ((nfa_op)node->op) {
    case NFA_FAIL:
        break;
    case NFA_RETURN:
        follow_return(m, w);
        break;
    case NFA_SPLIT:
        for (uint32_t i = 0; i < node->n; i++) {
            machine_follow(m, a->targets.p[node->arg + i], 0, w->stack, w->fresh);
        }
        break;
    case NFA_CALL:
        follow_call(m, w, node);
        break;
    case NFA_REPEAT:
        follow_repeat(m, node, w->node, 0, w->stack, w->fresh);
        break;
    case NFA_OBJECT:
        machine_object_next(m, w->node, 0, w->stack, w->fresh);
        break;
    case NFA_NAMED:
        machine_object_named(m, w->node, w->stack);
        break;
    case NFA_ARRAY:
        machine_array_next(m, w->node, 0, w->stack, w->fresh);
        break;
    case NFA_STRING:
        follow_string(m, w, node);
        break;
    case NFA_COUNTED:
        if (w->at < a->counts.p[node->arg].max) {
            machine_add(m, (machine_config){w->node, w->at, 0, w->stack});
        }
        if (w->at >= a->counts.p[node->arg].min) {
            machine_follow(m, node->next, 0, w->stack, w->fresh);
        }
        break;
    case NFA_TEXT:
        follow_text(m, w, node);
        break;
    case NFA_SPACE:
        if (w->at < GRAMMAR_SPACE_MAX) {
            machine_add(m, (machine_config){w->node, w->at, 0, w->stack});
        }
        machine_follow(m, node->next, 0, w->stack, w->fresh);
        break;
    default:
        machine_add(m, (machine_config){w->node, w->at, 0, w->stack});
    }
}

static void machine_read_byte(machine *m, const machine_config *c, uint8_t byte) {
    const nfa_node *node = &m->a->nodes.p[c->node];
    switch ((nfa_op)node->op) {
    case NFA_BYTES:
        if (m->a->bytes.p[node->arg + c->at] != byte) {
            return;
        }
        if (c->at + 1 < node->n) {
            machine_add(m, (machine_config){c->node, c->at + 1, 0, c->stack});
        } else {
            machine_follow(m, node->next, 0, c->stack, 0);
        }
        break;
    case NFA_SPACE:
        if (byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r') {
            machine_follow(m, c->node, c->at + 1, c->stack, 0);
        }
        break;
    case NFA_MARK:
        machine_read_mark(m, c, byte);
        break;
    case NFA_CLASS:
    case NFA_STRING:
    case NFA_COUNTED:
    case NFA_TEXT:
        machine_read_char(m, c, byte);
        break;
    default:
        break; /* the end of the answer reads nothing */
    }
}

/* ---- states ---- */

/* Shell sort (1959): sets are small, and it does not allocate. */
static void sort_configs(machine_config *set, uint32_t n) {
    for (uint32_t gap = n > 4096 ? 4096 : n / 2; gap > 0; gap = gap == 2 ? 1 : gap * 5 / 11) {
        for (uint32_t i = gap; i < n; i++) {
            machine_config c = set[i];
            uint32_t at = i;
            for (; at >= gap && memcmp(&set[at - gap], &c, sizeof c) > 0; at -= gap) {
                set[at] = set[at - gap];
            }
            set[at] = c;
        }
    }
}

/* Processes pending work, and sorts the set. */
static void close_set(machine *m) {
    while (m->n_work > 0 && !m->failed) {
        machine_work w = ((machine_work *)m->work.p)[--m->n_work];
        follow_one(m, &w);
    }
    machine_config *set = m->next.p;
    if (m->failed || !do_work(m, m->n_next)) {
        return;
    }
    sort_configs(set, m->n_next);
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n_next; i++) {
        if (n == 0 || memcmp(&set[n - 1], &set[i], sizeof *set) != 0) {
            set[n++] = set[i];
        }
    }
    m->n_next = n;
}

static void begin_set(machine *m, uint32_t n_slots) {
    m->n_next = m->n_work = m->n_visited = 0;
    m->failed = m->crowded = false;
    m->looked = 0;
    m->n_slots = n_slots;
    m->stamp++;
}

/* The first byte after a name, which the name does not contain there; 0: it varies. */
static uint8_t byte_after_name(const nfa *a, const nfa_node *name) {
    const nfa_node *next = &a->nodes.p[name->next];
    const uint32_t *ways = next->op == NFA_SPLIT ? a->targets.p + next->arg : &name->next;
    uint8_t byte = 0;
    for (uint32_t i = 0, n = next->op == NFA_SPLIT ? next->n : 1; i < n; i++) {
        const nfa_node *way = &a->nodes.p[ways[i]];
        uint8_t first = way->op == NFA_BYTES ? a->bytes.p[way->arg] : way->op == NFA_MARK ? NFA_MARK_BYTE : 0;
        if (way->op != NFA_FAIL && (first == 0 || (byte != 0 && first != byte))) {
            return 0;
        }
        byte = way->op != NFA_FAIL ? first : byte;
    }
    return byte;
}

/* Updates a new state's summary with a configuration's place. */
static void note_place(const machine *m, machine_state *s, const machine_config *c) {
    s->least = UINT32_MAX;
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t depth = ((const machine_cell *)m->cells.p)[c[i].stack].depth;
        s->most = depth > s->most ? depth : s->most;
        s->least = depth < s->least ? depth : s->least;
        if (machine_is_name(m, &c[i]) && depth >= s->name) {
            s->is_roomy = (depth == s->name && s->is_roomy) || machine_is_roomy(m, &c[i]);
            s->is_word = (m->a->nodes.p[c[i].node].n & NFA_WORD) != 0;
            s->end = byte_after_name(m->a, &m->a->nodes.p[c[i].node]);
            s->name = depth;
        }
    }
}

/* The state for the set in `next`. */
static uint32_t state_of_set(machine *m) {
    size_t bytes = m->n_next * sizeof(machine_config);
    if (m->n_next == 0) {
        return MACHINE_DEAD;
    }
    TABLE_EACH(m->state_table, hash_words(m->next.p, bytes, 3), i) {
        const machine_state *s = machine_state_at(m, i - 1);
        if (s->n == m->n_next && memcmp(machine_configs(m, i - 1), m->next.p, bytes) == 0) {
            return i - 1;
        }
    }
    if (!grammar_machine_use(m, &m->configs, (m->n_configs + m->n_next) * sizeof(machine_config)) ||
        !grammar_machine_use(m, &m->states, (m->n_states + 1) * sizeof(machine_state))) {
        return MACHINE_FULL;
    }
    memcpy((machine_config *)m->configs.p + m->n_configs, m->next.p, bytes);
    machine_state *s = machine_state_at(m, m->n_states);
    *s = (machine_state){.first = m->n_configs, .n = m->n_next};
    for (uint32_t i = 0; i < m->n_next; i++) {
        s->final = s->final || ((const machine_config *)m->next.p)[i].node == NFA_RETURN_NODE;
    }
    s->over = s->final && s->n == 1;
    if (m->a->has_names) {
        note_place(m, s, m->next.p);
    }
    if (!table_put(m, &m->state_table, m->n_states, MACHINE_FIRST, state_hash)) {
        return MACHINE_FULL;
    }
    m->n_configs += m->n_next;
    return m->n_states++;
}

uint32_t machine_state_of(machine *m, const machine_config *set, uint32_t n) {
    begin_set(m, FEW_VISITED);
    for (uint32_t i = 0; i < n && !m->failed; i++) {
        machine_add(m, set[i]);
    }
    close_set(m);
    return m->failed ? MACHINE_FULL : state_of_set(m);
}

/* Sets `next` to the configurations after a byte. */
static void read_set(machine *m, uint32_t state, uint8_t byte, uint32_t n_slots) {
    begin_set(m, n_slots);
    for (uint32_t i = 0, n = machine_state_at(m, state)->n; i < n && machine_look_at(m, 1); i++) {
        machine_read_byte(m, machine_configs(m, state) + i, byte);
    }
    close_set(m);
}

/* Whether another transition may begin. Outside of steps, one that has begun is finished,
 * so that every slice makes progress. */
static bool may_begin(machine *m) {
    if (m->meter.room == NULL && m->made >= m->slice) {
        machine_fail(m, MACHINE_LATER);
        return false;
    }
    return m->why == MACHINE_FINE;
}

/* Charges a finished transition to the mask that needs it. Pauses do not affect the
 * count. */
static void machine_charge(machine *m) {
    m->made += m->looked;
    if (m->account != 0) {
        machine_state_at(m, m->account)->spent += m->looked; /* bounded by MACHINE_MAX_SPENT */
    }
}

static uint32_t build_next(machine *m, uint32_t state, uint8_t byte) {
    /* small first, so that most transitions touch few pages */
    static const uint32_t slots[] = {FEW_VISITED, 4096, N_VISITED};
    size_t i = 0;
    if (m->account != 0 && machine_state_at(m, m->account)->spent > MACHINE_MAX_SPENT) {
        machine_fail(m, MACHINE_SPENT);
    }
    if (!may_begin(m)) {
        return MACHINE_FULL;
    }
    do {
        read_set(m, state, byte, slots[i]);
    } while (m->crowded && ++i < sizeof slots / sizeof *slots);
    if (m->crowded) {
        machine_fail(m, MACHINE_AMBIGUOUS);
    }
    uint32_t to = m->failed ? MACHINE_FULL : state_of_set(m);
    if (m->failed) {
        return MACHINE_FULL;
    }
    machine_charge(m);
    return to;
}

const uint32_t *machine_row(machine *m, uint32_t state) {
    assert(m != NULL);
    machine_state *s = machine_state_at(m, state);
    uint32_t n = m->a->n_byte_classes;
    if (s->row == 0) {
        if (!machine_use(m, &m->rows, &m->budget, (size_t)(m->n_rows + 1) * n * sizeof(uint32_t))) {
            return NULL;
        }
        s->row = ++m->n_rows;
    }
    return (const uint32_t *)m->rows.p + (size_t)(s->row - 1) * n;
}

uint32_t machine_next(machine *m, uint32_t state, uint8_t byte) {
    if (state < MACHINE_FIRST) {
        return state;
    }
    const uint32_t *row = machine_row(m, state);
    if (row == NULL) {
        return MACHINE_FULL;
    }
    uint32_t class = m->a->byte_class[byte], to = row[class];
    if (to == MACHINE_UNKNOWN) {
        to = build_next(m, state, byte);
        if (to != MACHINE_FULL) {
            ((uint32_t *)
                 m->rows.p)[(size_t)(machine_state_at(m, state)->row - 1) * m->a->n_byte_classes + class] =
                to;
        }
    }
    return to;
}

#define GROWING_AREAS(m)                                                                                     \
    {                                                                                                        \
        &(m)->configs, &(m)->cells, &(m)->tallies, &(m)->words, &(m)->states, &(m)->rows,                    \
            &(m)->cell_table.slots, &(m)->tally_table.slots, &(m)->state_table.slots                         \
    }

static size_t machine_smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

static quire_err open_areas(machine *m, size_t max_bytes) {
    area *all[] = GROWING_AREAS(m);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        TRY(area_open(all[i], machine_smaller(max_bytes, FIRST_BYTES)));
    }
    TRY(area_open(&m->next, MACHINE_MAX_CONFIGS * sizeof(machine_config)));
    TRY(area_open(&m->work, MAX_WORK * sizeof(machine_work)));
    return area_open(&m->visited, N_VISITED * sizeof(machine_seen));
}

/* Makes the first state. */
static quire_err grammar_machine_begin(machine *m) {
    machine_begin(m, UINT64_MAX);
    begin_set(m, N_VISITED);
    if (grammar_machine_use(m, &m->cells, sizeof(machine_cell)) &&
        grammar_machine_use(m, &m->states, MACHINE_FIRST * sizeof(machine_state))) {
        (void)machine_tally_of(m, (machine_tally){0}, NULL); /* number 0: nothing seen */
        machine_follow(m, m->a->rules.p[0].start, 0, 0, 0);
        close_set(m);
        if (!m->failed) {
            (void)state_of_set(m);
        }
    }
    if (m->crowded) {
        machine_fail(m, MACHINE_AMBIGUOUS);
    }
    machine_end(m);
    return m->failed ? machine_error(m) : QUIRE_OK;
}

quire_err machine_init(machine *m, const nfa *a, size_t max_bytes, area_account *account) {
    *m = (machine){.a = a,
                   .budget = {.max = max_bytes, .account = account},
                   .n_cells = 1 /* number 0 is the empty stack */,
                   .n_states = MACHINE_FIRST};
    quire_err e = open_areas(m, max_bytes);
    work_room *room = work_room_enter(NULL);
    while (e == QUIRE_OK && (e = grammar_machine_begin(m)) == QUIRE_BUSY) {
        e = machine_grow(m);
    }
    (void)work_room_enter(room);
    if (e != QUIRE_OK) {
        machine_deinit(m);
    }
    return e;
}

void machine_begin(machine *m, uint64_t slice) {
    assert(m != NULL);
    work_begin(&m->meter);
    m->slice = slice;
    m->made = 0;
    m->account = 0;
    m->why = MACHINE_FINE;
    m->failed = false;
}

void machine_end(machine *m) {
    work_end(&m->meter);
}

quire_err machine_error(const machine *m) {
    assert(m != NULL);
    switch (m->why) {
    case MACHINE_CRAMPED:
    case MACHINE_LATER:
        return QUIRE_BUSY;
    case MACHINE_NO_SHARE:
        return QUIRE_NO_MEMORY;
    default:
        return QUIRE_TOO_LARGE;
    }
}

/* Grows the area that failed, and others that are nearly full, so that few operations are
 * repeated. */
quire_err machine_grow(machine *m) {
    assert(m != NULL);
    area *all[] = GROWING_AREAS(m);
    if (m->why != MACHINE_CRAMPED) {
        return QUIRE_OK;
    }
    size_t twice = 2 * m->cramped->reserved;
    TRY(area_grow(m->cramped, m->wanted > twice ? m->wanted : twice));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i]->used > all[i]->reserved / 2) {
            TRY(area_grow(all[i], 2 * all[i]->reserved));
        }
    }
    return QUIRE_OK;
}

void machine_deinit(machine *m) {
    area *all[] = GROWING_AREAS(m), *fixed[] = {&m->next, &m->work, &m->visited};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        area_close(all[i]);
    }
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        area_close(fixed[i]);
    }
    area_budget_close(&m->budget);
}

#define OTHER (1u << 31) /* flag in a value: not one of the named tokens */

/* Whether the set names a token whose first n digits are `value`. */
static bool names(const nfa *a, const nfa_mark_set *set, uint32_t value, uint32_t n) {
    uint32_t lo = 0, hi = set->n, shift = 6 * (NFA_MARK_DIGITS - n);
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if ((uint32_t)a->mark_ids.p[set->first + mid] >> shift < value) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo < set->n && (uint32_t)a->mark_ids.p[set->first + lo] >> shift == value;
}

void machine_read_mark(machine *m, const machine_config *c, uint8_t byte) {
    assert(c != NULL);
    const nfa_node *node = &m->a->nodes.p[c->node];
    const nfa_mark_set *set = &m->a->mark_sets.p[node->arg];
    machine_config next = {c->node, c->at + 1, c->value, c->stack};
    if (c->at == 0) {
        if (byte == NFA_MARK_BYTE) {
            machine_add(m, next);
        }
        return;
    }
    if ((byte & 0xC0u) != 0x80u) {
        return;
    }
    if (next.value != OTHER) {
        next.value = next.value << 6 | (byte & 0x3Fu);
        next.value = names(m->a, set, next.value, c->at) ? next.value : OTHER;
    }
    if (next.value == OTHER && !set->negated) {
        return;
    }
    if (c->at < NFA_MARK_DIGITS) {
        machine_add(m, next);
    } else if ((next.value == OTHER) == set->negated) {
        machine_follow(m, node->next, 0, c->stack, 0);
    }
}
