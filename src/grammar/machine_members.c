/* Members of objects and items of arrays: the part of the machine that counts them and knows which have been.
 *
 * A cell of the stack holds (node, tally * 2 + phase): phase 0 behind a comma, 1 behind a part. */
#include "grammar/machine.h"

#define MAX_WORDS 64 /* of seen parts: 4,096 of them */

typedef struct seen_set {
    machine_tally t;
    uint64_t words[MAX_WORDS];
} seen_set;

static void load(const machine *m, uint32_t tally, seen_set *s) {
    s->t = ((const machine_tally *)m->tallies.p)[tally];
    memset(s->words, 0, sizeof s->words);
    mem_copy(s->words, (const uint64_t *)m->words.p + s->t.first, s->t.n * sizeof *s->words);
}

static bool has(const seen_set *s, uint32_t i) {
    return (s->words[i / 64] >> (i % 64) & 1) != 0;
}

static void enter(machine *m, uint32_t node, const machine_tally *t, const uint64_t *words, uint32_t stack, uint32_t entry) {
    uint32_t tally = machine_tally_of(m, *t, words);
    machine_follow(m, entry, 0, machine_push(m, node, tally << 1 | 1, stack), 1);
}

/* Behind a part: the end where it may come, and a comma where more may. */
static void end_or_more(machine *m, uint32_t node, uint32_t tally, uint32_t stack, uint32_t fresh, bool end, bool more, uint32_t comma,
                        bool may_miss, void (*part)(machine *m, uint32_t node, uint32_t tally, uint32_t stack, uint32_t fresh)) {
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

/* Required parts that have not been. */
static uint32_t required_left(const nfa *a, const nfa_object *o, const seen_set *s) {
    uint32_t n = 0;
    for (uint32_t i = o->any_order ? 0 : s->t.other; i < o->n; i++) {
        n += a->parts.p[o->first + i].required && !has(s, i);
    }
    return n;
}

/* Listed parts that may still come. */
static uint32_t listed_left(const nfa *a, const nfa_object *o, const seen_set *s) {
    uint32_t n = 0;
    for (uint32_t i = o->any_order ? 0 : s->t.other; i < o->n; i++) {
        n += a->parts.p[o->first + i].entry != NFA_FAIL_NODE && !has(s, i);
    }
    return n;
}

static bool has_open(const nfa *a, const nfa_object *o) {
    for (uint32_t i = 0; i < o->n_open; i++) {
        if (a->parts.p[o->first + o->n + i].entry != NFA_FAIL_NODE) {
            return true;
        }
    }
    return false;
}

/* Whether the object can be completed from here. */
static bool object_can_end(const nfa *a, const nfa_object *o, const seen_set *s) {
    if (o->max != NFA_NONE && (s->t.count > o->max || required_left(a, o, s) > o->max - s->t.count)) {
        return false;
    }
    return s->t.count >= o->min || has_open(a, o) || listed_left(a, o, s) >= o->min - s->t.count;
}

static void count_member(const nfa_object *o, seen_set *s) {
    uint32_t cap = o->max != NFA_NONE ? NFA_NONE : o->min > 1 ? o->min : 1;
    s->t.count += s->t.count < cap;
}

/* Part i behind s: false where it may not come. */
static bool take_member(const nfa *a, const nfa_object *o, const seen_set *s, uint32_t i, seen_set *to) {
    if (a->parts.p[o->first + i].entry == NFA_FAIL_NODE || (i < o->n && has(s, i))) {
        return false;
    }
    *to = *s;
    if (!o->any_order) {
        for (uint32_t k = s->t.other; k < i && k < o->n; k++) {
            if (a->parts.p[o->first + k].required) {
                return false;
            }
        }
        if (i < s->t.other && i < o->n) {
            return false;
        }
        to->t.other = i < o->n ? i + 1 : o->n;
    } else if (i < o->n) {
        to->t.n = (o->n + 63) / 64;
        to->words[i / 64] |= (uint64_t)1 << (i % 64);
    }
    count_member(o, to);
    return object_can_end(a, o, to);
}

void machine_object_next(machine *m, uint32_t node, uint32_t tally, uint32_t stack, uint32_t fresh) {
    const nfa_object *o = &m->a->objects.p[m->a->nodes.p[node].arg];
    seen_set s, to;
    load(m, tally, &s);
    bool more = false;
    for (uint32_t i = 0; i < o->n + o->n_open && !more; i++) {
        more = take_member(m->a, o, &s, i, &to);
    }
    end_or_more(m, node, tally, stack, fresh, s.t.count >= o->min && required_left(m->a, o, &s) == 0, more, o->comma, o->comma_may_miss,
                machine_object_part);
}

void machine_object_part(machine *m, uint32_t node, uint32_t tally, uint32_t stack, uint32_t fresh) {
    const nfa_object *o = &m->a->objects.p[m->a->nodes.p[node].arg];
    seen_set s, to;
    (void)fresh;
    load(m, tally, &s);
    for (uint32_t i = 0; i < o->n + o->n_open; i++) {
        if (take_member(m->a, o, &s, i, &to)) {
            enter(m, node, &to.t, to.words, stack, m->a->parts.p[o->first + i].entry);
        } else if (!o->any_order && i >= s.t.other && i < o->n && m->a->parts.p[o->first + i].required) {
            break;
        }
    }
}

/* ---- arrays ---- */

static const nfa_slot *slot_of(const nfa *a, const nfa_array *r, uint32_t item) {
    return &a->slots.p[r->first + (item < r->n ? item : r->n)];
}

/* Which kinds of parts an item may be: bit 0 those that don't count towards `contains`, bit 1 those that do. */
static unsigned slot_kinds(const nfa *a, const nfa_slot *s) {
    unsigned kinds = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const nfa_part *p = &a->parts.p[s->first + i];
        kinds |= p->entry == NFA_FAIL_NODE ? 0 : p->counts ? 2u : 1u;
    }
    return kinds;
}

/* Whether the array can be completed: with k more items between `least` and `most` more of them can count. */
static bool array_can_end(const nfa *a, const nfa_array *r, uint32_t count, uint32_t counted) {
    uint32_t least = 0, most = 0;
    if (count > r->max || counted > r->max_counts) {
        return false;
    }
    if (r->min_counts == 0 && r->max_counts == NFA_NONE) {
        return r->max >= r->min;
    }
    for (uint32_t k = 0;; k++) {
        if (count + k >= r->min && counted + most >= r->min_counts && (r->max_counts == NFA_NONE || counted + least <= r->max_counts)) {
            return true;
        }
        if (count + k >= r->max || k > r->min + r->min_counts + r->n) {
            return false;
        }
        unsigned kinds = slot_kinds(a, slot_of(a, r, count + k));
        if (kinds == 0) {
            return false;
        }
        least += kinds == 2;
        most += kinds >= 2;
    }
}

/* Part i of the item that comes next. */
static bool take_item(const nfa *a, const nfa_array *r, const seen_set *s, uint32_t i, seen_set *to) {
    const nfa_part *p = &a->parts.p[slot_of(a, r, s->t.count)->first + i];
    uint32_t cap = r->max != NFA_NONE ? NFA_NONE : r->min > r->n ? r->min : r->n;
    cap = cap > 0 ? cap : 1;
    if (p->entry == NFA_FAIL_NODE || s->t.count >= r->max || (r->unique && has(s, i))) {
        return false;
    }
    *to = *s;
    to->t.count += s->t.count < cap;
    if (p->counts && (r->max_counts != NFA_NONE || s->t.other < r->min_counts)) {
        to->t.other++;
    }
    if (r->unique) {
        to->t.n = (slot_of(a, r, 0)->n + 63) / 64;
        to->words[i / 64] |= (uint64_t)1 << (i % 64);
    }
    return array_can_end(a, r, to->t.count, to->t.other);
}

void machine_array_next(machine *m, uint32_t node, uint32_t tally, uint32_t stack, uint32_t fresh) {
    const nfa_array *r = &m->a->arrays.p[m->a->nodes.p[node].arg];
    seen_set s, to;
    load(m, tally, &s);
    bool more = false;
    for (uint32_t i = 0, n = slot_of(m->a, r, s.t.count)->n; i < n && !more; i++) {
        more = take_item(m->a, r, &s, i, &to);
    }
    end_or_more(m, node, tally, stack, fresh, s.t.count >= r->min && s.t.other >= r->min_counts, more, r->comma, false, machine_array_part);
}

void machine_array_part(machine *m, uint32_t node, uint32_t tally, uint32_t stack, uint32_t fresh) {
    const nfa_array *r = &m->a->arrays.p[m->a->nodes.p[node].arg];
    seen_set s, to;
    (void)fresh;
    load(m, tally, &s);
    const nfa_slot *slot = slot_of(m->a, r, s.t.count);
    for (uint32_t i = 0; i < slot->n; i++) {
        if (take_item(m->a, r, &s, i, &to)) {
            enter(m, node, &to.t, to.words, stack, m->a->parts.p[slot->first + i].entry);
        }
    }
}
