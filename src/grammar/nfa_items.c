/* Whether an array's items can be completed: the shapes of further items decide how many
 * can count towards its rules. */
#include "grammar/nfa.h"

/* Which kinds of parts an item may be: bit r: one of rules r. */
static uint32_t slot_kinds(const nfa *a, nfa_room room, const nfa_slot *s) {
    uint32_t kinds = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const nfa_part *p = &a->parts.p[s->first + i];
        kinds |= nfa_fits(room, p->entry) ? 1u << p->rules : 0;
    }
    return kinds;
}

static uint32_t kinds_of(const nfa *a, const nfa_array *r, nfa_room room, uint32_t item) {
    return slot_kinds(a, room, &a->slots.p[r->first + (item < r->n ? item : r->n)]);
}

/* ---- at most one rule: counts from `least` to `most` are reached by the items that came
 * ---- */

typedef struct reached {
    uint64_t items, least, most;
} reached;

static bool is_enough(const nfa_array *r, const reached *c) {
    const nfa_count *n = &r->rules[0];
    return c->items >= r->min && c->items <= r->max && c->most >= n->min && c->least <= n->max &&
           n->min <= n->max;
}

/* With more of the items of which an array may have any number: as few as are enough. */
static bool is_enough_later(const nfa_array *r, const reached *c, uint32_t kinds) {
    uint64_t more = c->items < r->min ? r->min - c->items : 0,
             missing = c->most < r->rules[0].min ? r->rules[0].min - c->most : 0;
    more = (kinds & 2) != 0 && missing > more ? missing : more;
    const reached then = {c->items + more, c->least + (kinds == 2 ? more : 0),
                          c->most + ((kinds & 2) != 0 ? more : 0)};
    return kinds != 0 && is_enough(r, &then);
}

static bool one_rule_can_end(const nfa *a, const nfa_array *r, nfa_room room, uint32_t count,
                             uint32_t counted) {
    reached c = {count, counted, counted};
    while (!is_enough(r, &c)) {
        uint32_t kinds = kinds_of(a, r, room, (uint32_t)c.items);
        if (c.items >= r->n) {
            return is_enough_later(r, &c, kinds);
        }
        if (kinds == 0 || c.items >= r->max) {
            return false;
        }
        c.items++;
        c.least += kinds == 2;
        c.most += (kinds & 2) != 0;
    }
    return true;
}

/* ---- several rules: the counts that can be reached, as a set ---- */

bool nfa_count_item(const nfa_array *r, uint32_t rules, uint32_t *counts) {
    uint32_t left = *counts, sum = 0;
    uint64_t unit = 1;
    for (uint32_t i = 0; i < r->n_rules; i++) {
        bool has_max = r->rules[i].max != NFA_NONE;
        uint32_t cap = has_max ? r->rules[i].max : r->rules[i].min,
                 n = r->n_rules == 1 ? left : (uint32_t)(left % (cap + UINT64_C(1)));
        if ((rules >> i & 1) != 0) {
            if (n == cap && has_max) {
                return false;
            }
            n += n < cap;
        }
        sum += (uint32_t)(n * unit);
        left = (uint32_t)(left / (cap + UINT64_C(1)));
        unit *= cap + UINT64_C(1);
    }
    *counts = sum;
    return true;
}

bool nfa_counts_suffice(const nfa_array *r, uint32_t counts) {
    for (uint32_t i = 0; i < r->n_rules; i++) {
        uint32_t cap = r->rules[i].max != NFA_NONE ? r->rules[i].max : r->rules[i].min;
        if ((r->n_rules == 1 ? counts : (uint32_t)(counts % (cap + UINT64_C(1)))) < r->rules[i].min) {
            return false;
        }
        counts = (uint32_t)(counts / (cap + UINT64_C(1)));
    }
    return true;
}

static bool any_suffices(const nfa_array *r, const bool *set) {
    for (uint32_t c = 0; c < NFA_MAX_COUNTS; c++) {
        if (set[c] && nfa_counts_suffice(r, c)) {
            return true;
        }
    }
    return false;
}

/* The counts after one item more; false: none can come. */
static bool nfa_items_one_more(const nfa_array *r, uint32_t kinds, const bool *set, bool *to) {
    bool any = false;
    memset(to, 0, NFA_MAX_COUNTS);
    for (uint32_t c = 0; c < NFA_MAX_COUNTS; c++) {
        for (uint32_t rules = 0; set[c] && rules < 1u << r->n_rules; rules++) {
            uint32_t counts = c;
            if ((kinds >> rules & 1) != 0 && nfa_count_item(r, rules, &counts)) {
                to[counts] = any = true;
            }
        }
    }
    return any;
}

static bool rules_can_end(const nfa *a, const nfa_array *r, nfa_room room, uint32_t count, uint32_t counts) {
    bool set[NFA_MAX_COUNTS] = {false}, to[NFA_MAX_COUNTS];
    set[counts] = true;
    for (uint32_t items = count; items <= r->max; items++) {
        if (items >= r->min && any_suffices(r, set)) {
            return true;
        }
        if (items == r->max || !nfa_items_one_more(r, kinds_of(a, r, room, items), set, to)) {
            return false;
        }
        if (items >= r->n && memcmp(set, to, sizeof set) == 0) { /* from here on nothing changes */
            return r->min <= r->max && any_suffices(r, set);
        }
        memcpy(set, to, sizeof set);
    }
    return false;
}

bool nfa_items_can_end(const nfa *a, const nfa_array *r, nfa_room room, uint32_t count, uint32_t counts) {
    return r->n_rules > 1 ? rules_can_end(a, r, room, count, counts)
                          : one_rule_can_end(a, r, room, count, counts);
}
