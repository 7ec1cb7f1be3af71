/* The part of the machine that counts members of objects and items of arrays, and knows
 * which have come.
 *
 * A stack cell holds (node, tally * 2 + phase): phase 0 after a comma, 1 after a part.
 *
 * A listed name comes once. So does an open one (run_names.c), unless its object has
 * rules: readers keep the last value. There, and up to a minimum, an open member is
 * counted when its name is complete (machine_object_named). A name is a list of cells
 * with its characters, so equal names have the same number. A repeated name is not
 * counted again, and its rules replace those of the earlier member. */
#include "grammar/machine.h"

#include <assert.h>

#define MAX_WORDS (NFA_MAX_MEMBERS / 64 + NFA_MAX_KEPT)

/* words: one bit per listed name if they come in any order; then the open names that are
 * kept, ascending, each number * 256 + rules. t.other: from RULES_BIT on the rules that
 * listed members satisfy; below it, in the schema's order, the next listed name; in any
 * order, the number of open members so far if it matters (nfa_object.few). */
#define RULES_BIT 28
#define BELOW     ((1u << RULES_BIT) - 1)
typedef struct seen_set {
    machine_tally t;
    nfa_room room; /* inside the object or array */
    uint64_t words[MAX_WORDS];
} seen_set;

/* Loads a tally. stack: below the object or array. */
static void machine_members_load(const machine *m, uint32_t tally, uint32_t stack, seen_set *s) {
    s->room = machine_room(m, stack);
    s->room.levels--;
    s->t = ((const machine_tally *)m->tallies.p)[tally];
    memset(s->words, 0, sizeof s->words);
    mem_copy(s->words, (const uint64_t *)m->words.p + s->t.first, s->t.n * sizeof *s->words);
}

static bool machine_members_has(const seen_set *s, uint32_t i) {
    return (s->words[i / 64] >> (i % 64) & 1) != 0;
}

static void machine_members_enter(machine *m, uint32_t node, const machine_tally *t, const uint64_t *words,
                                  uint32_t stack, uint32_t entry) {
    uint32_t tally = machine_tally_of(m, *t, words);
    machine_follow(m, entry, 0, machine_push(m, node, tally << 1 | 1, stack), 1);
}

/* Continues after a part: with the end if that is allowed, and with a comma if more parts
 * are. */
static void end_or_more(machine *m, uint32_t node, uint32_t tally, uint32_t stack, uint32_t fresh, bool end,
                        bool more, uint32_t comma, bool may_miss,
                        void (*part)(machine *m, uint32_t node, uint32_t tally, uint32_t stack,
                                     uint32_t fresh)) {
    if (end) {
        machine_follow(m, m->a->nodes.p[node].next, 0, stack, fresh);
    }
    if (!more) {
        return;
    }
    bool is_first = ((const machine_tally *)m->tallies.p)[tally].count == 0;
    if (is_first || may_miss) {
        part(m, node, tally, stack, fresh);
    }
    if (!is_first) {
        machine_follow(m, comma, 0, machine_push(m, node, tally << 1, stack), 1);
    }
}

/* ---- objects ---- */

static uint32_t bit_words(const nfa_object *o) {
    return o->any_order ? (o->n_names + 63) / 64 : 0;
}

/* The first listed name that may still come by order. */
static uint32_t next_name(const nfa_object *o, const seen_set *s) {
    uint32_t next = s->t.other & BELOW;
    return o->any_order ? 0 : next < o->n_names ? next : o->n_names;
}
static uint32_t machine_members_next_part(const nfa_object *o, const seen_set *s) {
    return o->n == o->n_names ? next_name(o, s) : 0;
}

static uint32_t satisfied(const nfa_object *o, const seen_set *s) {
    uint32_t rules = s->t.other >> RULES_BIT;
    for (uint32_t i = bit_words(o); i < s->t.n; i++) {
        rules |= (uint32_t)s->words[i] & 0xFF;
    }
    return rules;
}

/* Whether the names of open members are recorded from here on. */
static bool remembers(const nfa_object *o, const seen_set *s) {
    return o->rules != 0 || (o->distinct && s->t.count < o->min);
}

/* Whether a listed part may still come: its name has not, and the order allows it. */
static bool is_left(const nfa_object *o, const nfa_part *p, const seen_set *s) {
    return o->any_order ? !machine_members_has(s, p->name) : p->name >= next_name(o, s);
}

/* The number of listed names that may still come; with `required`, that must. */
static uint32_t names_left(const nfa *a, const nfa_object *o, const seen_set *s, bool required) {
    const nfa_part *p = &a->parts.p[o->first];
    uint32_t n = 0, last = NFA_NONE;
    for (uint32_t i = machine_members_next_part(o, s); i < o->n; i++) {
        if (p[i].name != last && (required ? p[i].required : nfa_fits(s->room, p[i].entry)) &&
            is_left(o, &p[i], s)) {
            n++;
            last = p[i].name;
        }
    }
    return n;
}

static bool has_open(const nfa *a, const nfa_object *o, nfa_room room) {
    for (uint32_t i = 0; i < o->n_open; i++) {
        if (nfa_fits(room, a->parts.p[o->first + o->n + i].entry)) {
            return true;
        }
    }
    return false;
}

/* How many more members are needed if these rules are satisfied, as far as a maximum
 * makes it matter; NFA_NONE: impossible. */
static uint32_t members_needed(const nfa *a, const nfa_object *o, const seen_set *s, uint32_t rules) {
    uint32_t open = rules;
    for (uint32_t i = o->n; o->max == NFA_NONE && i < o->n + o->n_open; i++) {
        open |= nfa_fits(s->room, a->parts.p[o->first + i].entry) ? a->parts.p[o->first + i].rules : 0u;
    }
    return open == o->rules
               ? names_left(a, o, s, true)
               : nfa_members_needed(a, o, s->room, rules, next_name(o, s), o->any_order ? s->words : NULL);
}

/* Whether the object can be completed from here if these rules are satisfied. */
static bool object_can_end(const nfa *a, const nfa_object *o, const seen_set *s, uint32_t rules) {
    if (o->max == NFA_NONE && o->rules == 0 && s->t.count >= o->min) {
        return true;
    }
    uint32_t needed = members_needed(a, o, s, rules);
    if (needed == NFA_NONE || (o->max != NFA_NONE && (s->t.count > o->max || needed > o->max - s->t.count))) {
        return false;
    }
    return s->t.count >= o->min || has_open(a, o, s->room) ||
           names_left(a, o, s, false) >= o->min - s->t.count;
}

static void count_member(const nfa_object *o, seen_set *s) {
    uint32_t cap = o->max != NFA_NONE ? NFA_NONE : o->min > 1 ? o->min : 1;
    s->t.count += s->t.count < cap;
}

/* Takes a listed part after s. False: it may not come. */
static bool take_listed(const nfa *a, const nfa_object *o, const nfa_part *p, seen_set *to) {
    if (!is_left(o, p, to)) {
        return false;
    }
    for (const nfa_part *k = &a->parts.p[o->first + machine_members_next_part(o, to)]; !o->any_order && k < p;
         k++) {
        if (k->required && k->name < p->name && k->name >= next_name(o, to)) {
            return false;
        }
    }
    to->t.other |= (uint32_t)p->rules << RULES_BIT;
    if (!o->any_order) {
        to->t.other = (to->t.other & ~BELOW) | (p->name + 1u);
    } else {
        to->t.n = to->t.n > bit_words(o) ? to->t.n : bit_words(o);
        to->words[p->name / 64] |= (uint64_t)1 << (p->name % 64);
    }
    return true;
}

/* Takes an open part after s, as far as names matter. False: it may not come. */
static bool take_open(const nfa *a, const nfa_object *o, seen_set *to) {
    uint32_t most = 0;
    if (!o->any_order && names_left(a, o, to, true) > 0) {
        return false;
    }
    if (!o->any_order && next_name(o, to) < o->n_names) {
        to->t.other = (to->t.other & ~BELOW) | o->n_names;
    }
    for (uint32_t i = o->n; o->few && i < o->n + o->n_open; i++) {
        const nfa_part *p = &a->parts.p[o->first + i];
        most += !p->remembers && nfa_fits(to->room, p->entry) ? p->most : 0;
    }
    if (o->few && (to->t.other & BELOW) - (o->any_order ? 0 : o->n_names) >= most) {
        return false;
    }
    to->t.other += o->few;
    return true;
}

/* Takes part i after s; *to: the result so far. False: it may not come. */
static bool take_member(const nfa *a, const nfa_object *o, const seen_set *s, uint32_t i, seen_set *to) {
    const nfa_part *p = &a->parts.p[o->first + i];
    if (!nfa_fits(s->room, p->entry) || (i >= o->n && p->remembers != remembers(o, s))) {
        return false;
    }
    *to = *s;
    if (!(i < o->n ? take_listed(a, o, p, to) : take_open(a, o, to))) {
        return false;
    }
    count_member(o, to);
    return object_can_end(a, o, to, satisfied(o, to) | p->rules);
}

void machine_object_next(machine *m, uint32_t node, uint32_t tally, uint32_t stack, uint32_t fresh) {
    assert(m != NULL);
    const nfa_object *o = &m->a->objects.p[m->a->nodes.p[node].arg];
    seen_set s, to;
    machine_members_load(m, tally, stack, &s);
    bool more = false,
         end = s.t.count >= o->min && satisfied(o, &s) == o->rules && names_left(m->a, o, &s, true) == 0;
    for (uint32_t i = 0; i < o->n + o->n_open && !more; i++) {
        more = take_member(m->a, o, &s, i, &to);
    }
    end_or_more(m, node, tally, stack, fresh, end, more, o->comma, o->comma_may_miss, machine_object_part);
}

void machine_object_part(machine *m, uint32_t node, uint32_t tally, uint32_t stack, uint32_t fresh) {
    assert(m != NULL);
    const nfa_object *o = &m->a->objects.p[m->a->nodes.p[node].arg];
    seen_set s, to;
    (void)fresh;
    machine_members_load(m, tally, stack, &s);
    for (uint32_t i = machine_members_next_part(o, &s); i < o->n + o->n_open; i++) {
        const nfa_part *p = &m->a->parts.p[o->first + i];
        if (take_member(m->a, o, &s, i, &to)) {
            /* a recorded name is counted when it is complete */
            to.t.count = i >= o->n && p->remembers ? s.t.count : to.t.count;
            machine_members_enter(m, node, &to.t, to.words, stack, p->entry);
        } else if (!o->any_order && i < o->n && p->required && is_left(o, p, &s) &&
                   (i + 1 == o->n || p[1].name != p->name)) {
            break;
        }
    }
}

/* Counts an open member's name, and records it if it matters later. */
static void machine_members_note_name(const nfa_object *o, seen_set *s, uint64_t name, uint32_t rules) {
    uint32_t first = bit_words(o), n = s->t.n > first ? s->t.n : first, at = first, kept = first;
    while (at < n && s->words[at] >> 8 != name) {
        at++;
    }
    if (at == n) {
        count_member(o, s);
        n++;
    }
    s->words[at] = name << 8;
    s->words[at] |= rules & ~satisfied(o, s);
    for (uint32_t i = first; i < n; i++) {
        uint64_t word = s->words[i];
        if ((word & 0xFF) == 0 && !(o->distinct && s->t.count < o->min)) {
            continue;
        }
        for (at = kept++; at > first && s->words[at - 1] > word; at--) {
            s->words[at] = s->words[at - 1];
        }
        s->words[at] = word;
    }
    memset(s->words + kept, 0, (n - kept) * sizeof *s->words);
    bool has_bits = false;
    for (uint32_t i = 0; i < first; i++) {
        has_bits = has_bits || s->words[i] != 0;
    }
    s->t.n = kept > first || has_bits ? kept : 0;
}

void machine_object_named(machine *m, uint32_t node, uint32_t stack) {
    assert(m != NULL);
    const nfa_node *named = &m->a->nodes.p[node];
    machine_cell name = ((const machine_cell *)m->cells.p)[stack],
                 object = ((const machine_cell *)m->cells.p)[name.below];
    const nfa_object *o = &m->a->objects.p[m->a->nodes.p[object.node].arg];
    seen_set s;
    machine_members_load(m, object.data >> 1, object.below, &s);
    if (remembers(o, &s)) {
        machine_members_note_name(o, &s, name.data, named->arg);
    }
    uint32_t tally = machine_tally_of(m, s.t, s.words);
    machine_follow(m, named->next, 0, machine_push(m, object.node, tally << 1 | 1, object.below), 0);
}

/* ---- arrays ---- */

static const nfa_slot *machine_members_slot_of(const nfa *a, const nfa_array *r, uint32_t item) {
    return &a->slots.p[r->first + (item < r->n ? item : r->n)];
}

/* Takes part i as the next item. False: it may not come. */
static bool take_item(const nfa *a, const nfa_array *r, const seen_set *s, uint32_t i, seen_set *to) {
    const nfa_part *p = &a->parts.p[machine_members_slot_of(a, r, s->t.count)->first + i];
    uint32_t cap = r->max != NFA_NONE ? NFA_NONE : r->min > r->n ? r->min : r->n;
    cap = cap > 0 ? cap : 1;
    if (!nfa_fits(s->room, p->entry) || s->t.count >= r->max || (r->unique && machine_members_has(s, i))) {
        return false;
    }
    *to = *s;
    to->t.count += s->t.count < cap;
    if (!nfa_count_item(r, p->rules, &to->t.other)) {
        return false;
    }
    if (r->unique) {
        to->t.n = (machine_members_slot_of(a, r, 0)->n + 63) / 64;
        to->words[i / 64] |= (uint64_t)1 << (i % 64);
    }
    return nfa_items_can_end(a, r, s->room, to->t.count, to->t.other);
}

void machine_array_next(machine *m, uint32_t node, uint32_t tally, uint32_t stack, uint32_t fresh) {
    assert(m != NULL);
    const nfa_array *r = &m->a->arrays.p[m->a->nodes.p[node].arg];
    seen_set s, to;
    machine_members_load(m, tally, stack, &s);
    bool more = false;
    for (uint32_t i = 0, n = machine_members_slot_of(m->a, r, s.t.count)->n; i < n && !more; i++) {
        more = take_item(m->a, r, &s, i, &to);
    }
    end_or_more(m, node, tally, stack, fresh, s.t.count >= r->min && nfa_counts_suffice(r, s.t.other), more,
                r->comma, r->comma_may_miss, machine_array_part);
}

void machine_array_part(machine *m, uint32_t node, uint32_t tally, uint32_t stack, uint32_t fresh) {
    assert(m != NULL);
    const nfa_array *r = &m->a->arrays.p[m->a->nodes.p[node].arg];
    seen_set s, to;
    (void)fresh;
    machine_members_load(m, tally, stack, &s);
    const nfa_slot *slot = machine_members_slot_of(m->a, r, s.t.count);
    for (uint32_t i = 0; i < slot->n; i++) {
        if (take_item(m->a, r, &s, i, &to)) {
            machine_members_enter(m, node, &to.t, to.words, stack, m->a->parts.p[slot->first + i].entry);
        }
    }
}
