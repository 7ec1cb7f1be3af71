#include "answer/mark_set.h"

#include <assert.h>

/* Characters with which special tokens inside a mark begin and end. */
static const char edges[] = "<>[]";

static quire_err add_byte(mark *m, char c) {
    if (m->n == MARK_BYTES) {
        return QUIRE_INTERNAL;
    }
    m->text[m->n++] = c;
    return QUIRE_OK;
}

static quire_err add_bytes(mark *m, const char *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        TRY(add_byte(m, p[i]));
    }
    return QUIRE_OK;
}

/* The length of the longest special token that text begins with; 0: none. */
static size_t special_at(str text, mark_test test) {
    if (test.is_special == NULL || strchr(edges, text.p[0]) == NULL) {
        return 0;
    }
    for (size_t n = text.n; n > 1; n--) {
        if (strchr(edges, text.p[n - 1]) != NULL && test.is_special(test.context, (str){text.p, n})) {
            return n;
        }
    }
    return 0;
}

quire_err mark_set_add(mark_set *set, uint8_t role, str text, mark_test test) {
    assert(set != NULL);
    if (set->n == MARK_MAX || text.n == 0) {
        return QUIRE_INTERNAL;
    }
    mark m = {.role = role, .is_special = special_at(text, test) > 0};
    while (text.n > 0) {
        size_t n = special_at(text, test), taken = n > 0 ? n : 1;
        if (n > 0) {
            TRY(add_byte(&m, MARK_BEGIN));
        }
        TRY(add_bytes(&m, text.p, taken));
        if (n > 0) {
            TRY(add_byte(&m, MARK_END));
        }
        text = (str){text.p + taken, text.n - taken};
    }
    uint8_t first = (uint8_t)m.text[0];
    set->firsts[first / 64] |= (uint64_t)1 << first % 64;
    set->marks[set->n++] = m;
    return QUIRE_OK;
}

static bool is_active(const mark *m, mark_roles roles) {
    uint32_t bit = (uint32_t)1 << m->role;
    return (roles.any & bit) != 0 || (m->is_special && (roles.special & bit) != 0);
}

/* Whether the held text begins a mark of these roles. *whole: the mark it equals, or
 * -1. */
static bool begins_mark(const mark_match *m, const mark_set *set, mark_roles roles, int *whole) {
    bool begins = false;
    *whole = -1;
    for (int i = 0; i < set->n; i++) {
        const mark *k = &set->marks[i];
        if (is_active(k, roles) && k->n >= m->n && memcmp(k->text, m->held, m->n) == 0) {
            begins = true;
            *whole = k->n == m->n && *whole < 0 ? i : *whole;
        }
    }
    return begins;
}

int mark_push(mark_match *m, const mark_set *set, mark_roles roles, char c, char text[MARK_BYTES],
              size_t *n) {
    assert(m != NULL);
    int whole = -1;
    *n = 0;
    if (m->n == 0 && (set->firsts[(uint8_t)c / 64] >> (uint8_t)c % 64 & 1) == 0) {
        text[(*n)++] = c;
        return -1;
    }
    m->held[m->n++] = c; /* fits, since the held text is shorter than a mark */
    while (m->n > 0 && !begins_mark(m, set, roles, &whole)) {
        text[(*n)++] = m->held[0];
        memmove(m->held, m->held + 1, --m->n);
    }
    m->n = whole >= 0 ? 0 : m->n;
    return whole;
}

size_t mark_take(mark_match *m, char text[MARK_BYTES]) {
    assert(m != NULL);
    size_t n = m->n;
    memcpy(text, m->held, n);
    m->n = 0;
    return n;
}

int mark_find_special(const mark_set *set, uint32_t roles, str letters) {
    assert(set != NULL);
    for (int i = 0; i < set->n; i++) {
        const mark *k = &set->marks[i];
        if ((roles >> k->role & 1) != 0 && k->is_special && k->n == letters.n + 2 &&
            memcmp(k->text + 1, letters.p, letters.n) == 0) {
            return i;
        }
    }
    return -1;
}
