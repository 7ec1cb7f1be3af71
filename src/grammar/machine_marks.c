/* Bytes to special tokens: the part of the machine that reads the spelling of nfa.h.
 *
 * Of a token that is read partly only what distinguishes it from others matters: where no
 * named token begins so, its digits are not kept. */
#include "grammar/machine.h"

#define OTHER (1u << 31) /* of a value: none of the named ones */

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
