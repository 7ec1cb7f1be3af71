/* Numbers in a schema: their constraints, and the dfa of their texts. Private to this
 * room. */
#include "grammar/value_shape.h"

#include <assert.h>

/* ---- decimals ---- */

/* Sets digits[0 .. n), with the point after `point` of them, which may be outside. */
static bool set_digits(decimal *d, char room[DECIMAL_ROOM], const char *digits, int64_t n, int64_t point) {
    while (n > 0 && digits[n - 1] == '0') {
        n--;
    }
    while (n > 0 && digits[0] == '0') {
        digits++;
        n--;
        point--;
    }
    if (n == 0) {
        *d = (decimal){.n_int = 1, .digits = "0"};
        return true;
    }
    int64_t n_int = point > 0 ? point : 1, n_frac = n > point ? n - point : 0;
    if (n_int > DECIMAL_DIGITS || n_frac > DECIMAL_DIGITS) {
        return false;
    }
    d->n_int = (uint16_t)n_int;
    d->n_frac = (uint16_t)n_frac;
    d->digits = room;
    for (int64_t i = 0; i < n_int + n_frac; i++) {
        int64_t from = i - n_int + point; /* index in digits */
        room[i] = from >= 0 && from < n ? digits[from] : '0';
    }
    return true;
}

/* The exponent in p[0 .. n), the text after its letter; limited to the length of any
 * text. */
static int64_t exponent_of(const char *p, size_t n) {
    int64_t e = 0;
    for (size_t i = 0; i < n; i++) {
        e = p[i] >= '0' && p[i] <= '9' && e < INT32_MAX ? e * 10 + (p[i] - '0') : e;
    }
    return n > 0 && p[0] == '-' ? -e : e;
}

bool decimal_read(str text, char room[DECIMAL_ROOM], decimal *out) {
    char digits[DECIMAL_ROOM];
    int64_t n = 0, point = 0, exponent = 0;
    bool in_frac = false;
    *out = (decimal){0};
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (c == 'e' || c == 'E') {
            exponent = exponent_of(text.p + i + 1, text.n - i - 1);
            break;
        }
        out->negative = out->negative || c == '-';
        in_frac = in_frac || c == '.';
        if (c < '0' || c > '9') {
            continue;
        }
        point += !in_frac;
        if (n == 0 && c == '0') { /* leading zeros only move the point */
            point--;
            continue;
        }
        if (n < DECIMAL_ROOM) {
            digits[n++] = c;
        } else if (c != '0') {
            return false;
        }
    }
    return set_digits(out, room, digits, n, point + exponent);
}

bool decimal_is_zero(const decimal *d) {
    return d->n_int == 1 && d->n_frac == 0 && d->digits[0] == '0';
}

static int compare_sizes(const decimal *x, const decimal *y) {
    if (x->n_int != y->n_int) {
        return x->n_int < y->n_int ? -1 : 1;
    }
    int n = x->n_frac < y->n_frac ? x->n_frac : y->n_frac;
    int c = memcmp(x->digits, y->digits, (size_t)(x->n_int + n));
    return c != 0 ? c : x->n_frac - y->n_frac;
}

int decimal_compare(const decimal *x, const decimal *y) {
    assert(x != NULL && y != NULL);
    if (x->negative != y->negative) {
        return x->negative ? -1 : 1;
    }
    return x->negative ? -compare_sizes(x, y) : compare_sizes(x, y);
}

quire_err decimal_write(const decimal *d, strbuf *out) {
    assert(d != NULL);
    if (d->negative) {
        TRY(strbuf_add_char(out, '-'));
    }
    TRY(strbuf_add(out, d->digits, d->n_int));
    if (d->n_frac > 0) {
        TRY(strbuf_add_char(out, '.'));
        TRY(strbuf_add(out, d->digits + d->n_int, d->n_frac));
    }
    return QUIRE_OK;
}

/* ---- constraints ---- */

static void raise_lo(number_part *n, const decimal *lo, bool open) {
    int c = n->has_lo ? decimal_compare(lo, &n->lo) : 1;
    if (c > 0 || (c == 0 && open)) {
        n->lo = *lo;
        n->lo_open = open;
    }
    n->has_lo = true;
}

static void lower_hi(number_part *n, const decimal *hi, bool open) {
    int c = n->has_hi ? decimal_compare(hi, &n->hi) : -1;
    if (c < 0 || (c == 0 && open)) {
        n->hi = *hi;
        n->hi_open = open;
    }
    n->has_hi = true;
}

/* Whether x is a multiple of m, computed digit by digit. */
static bool is_multiple(const decimal *x, const number_multiple *m) {
    uint64_t rest = 0;
    for (uint32_t i = 0; i < x->n_int + (x->n_frac > m->scale ? x->n_frac : m->scale); i++) {
        uint64_t digit = i < (uint32_t)x->n_int + x->n_frac ? (uint64_t)(x->digits[i] - '0') : 0;
        if (i >= x->n_int + m->scale) {
            if (digit != 0) {
                return false;
            }
            continue;
        }
        rest = (rest * 10 + digit) % m->m;
    }
    return rest == 0;
}

static bool exact_fits(const number_part *n, const decimal *x) {
    if (n->exact) {
        return decimal_compare(x, &n->lo) == 0;
    }
    int lo = n->has_lo ? decimal_compare(x, &n->lo) : 1, hi = n->has_hi ? decimal_compare(x, &n->hi) : -1;
    bool ok = (lo > 0 || (lo == 0 && !n->lo_open)) && (hi < 0 || (hi == 0 && !n->hi_open)) &&
              (!n->integer || x->n_frac == 0);
    for (uint32_t i = 0; i < n->n_multiples && ok; i++) {
        ok = is_multiple(x, &n->multiples[i]) != n->multiples[i].negated;
    }
    return ok;
}

static uint64_t greatest_divisor(uint64_t x, uint64_t y) {
    while (y != 0) {
        uint64_t rest = x % y;
        x = y;
        y = rest;
    }
    return x;
}

/* m of the same multiple at a larger scale; a result over NUMBER_MAX_MULTIPLE has too
 * many digits. */
static uint64_t at_scale(const number_multiple *x, uint32_t scale) {
    uint64_t m = x->m;
    for (uint32_t i = x->scale; i < scale && m <= NUMBER_MAX_MULTIPLE; i++) {
        m *= 10;
    }
    return m;
}

/* Tries to express x and y as one constraint in *x. False: both are needed. */
static bool join_multiples(number_multiple *x, const number_multiple *y) {
    uint32_t scale = x->scale > y->scale ? x->scale : y->scale;
    uint64_t mx = at_scale(x, scale), my = at_scale(y, scale);
    if (x->negated != y->negated || mx > NUMBER_MAX_MULTIPLE || my > NUMBER_MAX_MULTIPLE) {
        return false;
    }
    if (x->negated) { /* what is no multiple of 2 is none of 6 */
        *x = mx % my == 0 ? *y : *x;
        return mx % my == 0 || my % mx == 0;
    }
    uint64_t both = mx / greatest_divisor(mx, my) * my;
    if (both > NUMBER_MAX_MULTIPLE) {
        return false;
    }
    for (; scale > 0 && both % 10 == 0; scale--) {
        both /= 10;
    }
    *x = (number_multiple){(uint32_t)both, scale, false};
    return true;
}

bool number_intersect(build *b, const number_part *x, const number_part *y, number_part *out) {
    assert(x != NULL);
    if (x->exact || y->exact) {
        *out = x->exact ? *x : *y;
        out->integer = x->integer || y->integer;
        return exact_fits(x, &out->lo) && exact_fits(y, &out->lo);
    }
    *out = *x;
    out->integer = x->integer || y->integer;
    if (y->has_lo) {
        raise_lo(out, &y->lo, y->lo_open);
    }
    if (y->has_hi) {
        lower_hi(out, &y->hi, y->hi_open);
    }
    for (uint32_t i = 0; i < y->n_multiples; i++) {
        bool known = false;
        for (uint32_t k = 0; k < out->n_multiples && !known; k++) {
            known = join_multiples(&out->multiples[k], &y->multiples[i]);
        }
        if (!known && out->n_multiples == NUMBER_MULTIPLES) {
            (void)build_fail(b, QUIRE_UNSUPPORTED, -1, "more than %d different multipleOf for one number",
                             NUMBER_MULTIPLES);
            return false;
        }
        if (!known) {
            out->multiples[out->n_multiples++] = y->multiples[i];
        }
    }
    int c = out->has_lo && out->has_hi ? decimal_compare(&out->lo, &out->hi) : -1;
    return c < 0 || (c == 0 && !out->lo_open && !out->hi_open);
}

bool number_is_free(const number_part *n) {
    return !n->has_lo && !n->has_hi && !n->exact && !n->integer && n->n_multiples == 0;
}

/* ---- texts of numbers ---- */

typedef enum place { AT_BEGIN, AT_MINUS, AT_ZERO, AT_INT, AT_POINT, AT_FRAC } place;

/* What is known of the digits so far. lo, hi: how they compare with the same digits of
 * the bounds. */
typedef struct scan {
    uint16_t n_int, n_frac;
    uint8_t place, negative;
    int8_t lo, hi;
    uint8_t beyond[NUMBER_MULTIPLES]; /* a nonzero digit came after the scale */
    uint8_t unused[2];
    uint32_t rest[NUMBER_MULTIPLES];
} scan;

typedef struct bound {
    bool given, open;
    decimal d;
} bound;

typedef struct scanner {
    dfa_pool *p;
    const number_part *n;
    bound lo[2], hi[2]; /* bounds of the magnitude: [0] for numbers of at least 0, [1] for negative ones */
    bool may[2];
    bool no_point;
    uint32_t max_int, max_frac;
    NFA_VEC(scan) scans;
    hash_index index; /* index of scans */
} scanner;

static void set_bounds(scanner *s) {
    const number_part *n = s->n;
    decimal zero = {.n_int = 1, .digits = "0"};
    int lo = n->has_lo ? decimal_compare(&n->lo, &zero) : -1,
        hi = n->has_hi ? decimal_compare(&n->hi, &zero) : 1;
    s->may[0] = hi >= 0;
    s->may[1] = lo < 0;
    if (n->has_lo && lo >= 0) {
        s->lo[0] = (bound){true, n->lo_open, n->lo};
    } else if (n->has_lo) {
        s->hi[1] = (bound){true, n->lo_open, n->lo};
    }
    if (n->has_hi && hi >= 0) {
        s->hi[0] = (bound){true, n->hi_open, n->hi};
    }
    if (n->has_hi && (hi < 0 || (hi == 0 && n->hi_open))) {
        s->lo[1] = (bound){true, n->hi_open, n->hi};
    }
    const bound *all[] = {&s->lo[0], &s->lo[1], &s->hi[0], &s->hi[1]};
    for (size_t i = 0; i < 4; i++) {
        s->max_int = all[i]->given && all[i]->d.n_int > s->max_int ? all[i]->d.n_int : s->max_int;
        s->max_frac = all[i]->given && all[i]->d.n_frac > s->max_frac ? all[i]->d.n_frac : s->max_frac;
    }
    for (uint32_t i = 0; i < n->n_multiples; i++) {
        s->max_frac = n->multiples[i].scale > s->max_frac ? n->multiples[i].scale : s->max_frac;
    }
}

static int8_t compare_digit(const bound *b, int8_t so_far, uint32_t at, bool in_frac, char digit) {
    uint32_t n = in_frac ? b->d.n_frac : b->d.n_int;
    char other = at < n ? b->d.digits[(in_frac ? b->d.n_int : 0) + at] : '0';
    return (int8_t)(!b->given || so_far != 0 ? so_far : digit < other ? -1 : digit > other);
}

/* The comparison when the integer part ends after n digits: longer ones are larger. */
static int8_t compare_length(const bound *b, int8_t so_far, uint32_t n) {
    return (int8_t)(!b->given ? 0 : n < b->d.n_int ? -1 : n > b->d.n_int ? 1 : so_far);
}

static void take_digit(const scanner *s, scan *c, char digit) {
    bool in_frac = c->place == AT_POINT || c->place == AT_FRAC;
    uint32_t at = in_frac ? c->n_frac : c->n_int;
    c->lo = compare_digit(&s->lo[c->negative], c->lo, at, in_frac, digit);
    c->hi = compare_digit(&s->hi[c->negative], c->hi, at, in_frac, digit);
    for (uint32_t i = 0; i < s->n->n_multiples; i++) {
        const number_multiple *m = &s->n->multiples[i];
        if (in_frac && at >= m->scale) {
            c->beyond[i] = c->beyond[i] || digit != '0';
        } else {
            c->rest[i] = (uint32_t)(((uint64_t)c->rest[i] * 10 + (uint64_t)(digit - '0')) % m->m);
        }
    }
    if (in_frac) {
        c->n_frac = (uint16_t)(at < s->max_frac ? at + 1 : at);
    } else {
        c->n_int = (uint16_t)(at <= s->max_int ? at + 1 : at);
    }
    c->place = (uint8_t)(in_frac ? AT_FRAC : c->place == AT_INT ? AT_INT : digit == '0' ? AT_ZERO : AT_INT);
}

/* The scan after a character. False: it may not follow. */
static bool scan_next(const scanner *s, const scan *from, char ch, scan *to) {
    *to = *from;
    if (ch == '-') {
        to->place = AT_MINUS;
        to->negative = 1;
        return from->place == AT_BEGIN && s->may[1];
    }
    if (ch == '.') {
        if (s->no_point || (from->place != AT_ZERO && from->place != AT_INT)) {
            return false;
        }
        to->place = AT_POINT;
        to->lo = compare_length(&s->lo[from->negative], from->lo, from->n_int);
        to->hi = compare_length(&s->hi[from->negative], from->hi, from->n_int);
        to->n_int = 0;
        return true;
    }
    if (from->place == AT_ZERO || (from->place == AT_BEGIN && !s->may[0])) {
        return false;
    }
    if (s->n->integer && ch != '0' && (from->place == AT_POINT || from->place == AT_FRAC)) {
        return false;
    }
    take_digit(s, to, ch);
    return true;
}

static bool grammar_number_is_whole(const scanner *s, const scan *c) {
    const bound *lo = &s->lo[c->negative], *hi = &s->hi[c->negative];
    bool in_frac = c->place == AT_FRAC, int_done = in_frac || c->place == AT_ZERO || c->place == AT_INT;
    int x = in_frac ? c->lo : compare_length(lo, c->lo, c->n_int),
        y = in_frac ? c->hi : compare_length(hi, c->hi, c->n_int);
    x = x == 0 && (in_frac ? c->n_frac : 0) < lo->d.n_frac ? -1 : x; /* the bound has more digits */
    y = y == 0 && (in_frac ? c->n_frac : 0) < hi->d.n_frac ? -1 : y;
    bool ok = int_done && (!lo->given || x > 0 || (x == 0 && !lo->open)) &&
              (!hi->given || y < 0 || (y == 0 && !hi->open));
    for (uint32_t i = 0; i < s->n->n_multiples && ok; i++) {
        const number_multiple *m = &s->n->multiples[i];
        uint64_t rest = c->rest[i];
        for (uint32_t k = in_frac && c->n_frac < m->scale ? c->n_frac
                          : in_frac                       ? m->scale
                                                          : 0;
             k < m->scale; k++) {
            rest = rest * 10 % m->m;
        }
        ok = (rest == 0 && c->beyond[i] == 0) != m->negated;
    }
    return ok;
}

static uint32_t scan_hash(const scan *c) {
    uint32_t h = 1, words[sizeof *c / sizeof(uint32_t)];
    memcpy(words, c, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        h = (h ^ words[i]) * 0x9E3779B1u;
        h ^= h >> 15;
    }
    return h;
}

static uint32_t scan_number(scanner *s, const scan *c) {
    uint32_t hash = scan_hash(c);
    HASH_INDEX_EACH(&s->index, hash, i) {
        if (memcmp(&s->scans.p[i], c, sizeof *c) == 0) {
            return i;
        }
    }
    scan *new_scan = s->scans.n < DFA_MAX_STATES ? NFA_PUSH(s->p->b, s->scans) : NULL;
    if (new_scan == NULL) {
        (void)build_fail(s->p->b, QUIRE_UNSUPPORTED, -1,
                         "the number's bounds and multipleOf take over %d states", DFA_MAX_STATES);
        return 0;
    }
    *new_scan = *c;
    return build_index(s->p->b, &s->index, hash, s->scans.n - 1) ? s->scans.n - 1 : 0;
}

/* Whether the constraints allow only integers, such as by multiples of one. */
static bool is_integral(const number_part *n) {
    bool is = n->integer;
    for (uint32_t i = 0; i < n->n_multiples; i++) {
        is = is || (n->multiples[i].scale == 0 && !n->multiples[i].negated);
    }
    return is;
}

uint32_t number_dfa(dfa_pool *p, const number_part *n, grammar_numbers spelling) {
    scanner s = {.p = p, .n = n, .no_point = is_integral(n) && spelling == GRAMMAR_NUMBERS_SHORT};
    uint32_t x = dfa_new(p);
    set_bounds(&s);
    scan begin;
    memset(&begin, 0, sizeof begin);
    (void)scan_number(&s, &begin);
    for (uint32_t i = 0; i < s.scans.n && build_step(p->b, 12); i++) {
        scan from = s.scans.p[i], to;
        dfa_add_state(p, x, grammar_number_is_whole(&s, &from));
        for (const char *c = "-.0123456789"; *c != 0 && p->b->failed == QUIRE_OK; c++) {
            if (scan_next(&s, &from, *c, &to)) {
                dfa_add_edge(p, x, (uint8_t)*c, (uint8_t)*c, scan_number(&s, &to));
            }
        }
    }
    NFA_FREE(p->b, s.scans);
    hash_index_deinit(&s.index);
    return dfa_trim(p, x);
}
