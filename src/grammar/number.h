/* Numbers of a schema: what they may be, and the dfa of their texts. Private to this
 * room. */
#ifndef GRAMMAR_NUMBER_H
#define GRAMMAR_NUMBER_H

#include "grammar/dfa.h"

/* before and after the point: a double has at most 309, and 341 as it is written
 * shortest */
#define DECIMAL_DIGITS 350
#define DECIMAL_ROOM   (2 * DECIMAL_DIGITS)

/* A decimal number; digits without leading zeros (but one before the point) and without
 * trailing ones after the point. Zero isn't negative. */
typedef struct decimal {
    bool negative;
    uint16_t n_int, n_frac;
    const char *digits; /* borrowed */
} decimal;

/* Reads a number of JSON; its digits lie in room. false: there are more than
 * DECIMAL_DIGITS before or after the point. */
bool decimal_read(str text, char room[DECIMAL_ROOM], decimal *out);
bool decimal_is_zero(const decimal *d);
int decimal_compare(const decimal *x, const decimal *y);
/* Appends it as JSON. */
quire_err decimal_write(const decimal *d, strbuf *out);

#define NUMBER_MULTIPLES    6
#define NUMBER_MAX_MULTIPLE 100000000 /* digits of one, without its point */

typedef struct number_multiple {
    uint32_t m, scale; /* m / 10^scale */
    bool negated;      /* not a multiple */
} number_multiple;

/* Numbers that satisfy all of it. */
typedef struct number_part {
    bool integer;
    bool has_lo, has_hi, lo_open, hi_open, exact; /* exact: lo alone */
    decimal lo, hi;
    uint32_t n_multiples;
    number_multiple multiples[NUMBER_MULTIPLES];
} number_part;

/* x and y together; false: nothing satisfies both. Too many multiples fail the build. */
bool number_intersect(build *b, const number_part *x, const number_part *y, number_part *out);
/* Whether any number will do. */
bool number_is_free(const number_part *n);
/* The texts, without exponents. */
uint32_t number_dfa(dfa_pool *p, const number_part *n, grammar_numbers spelling);

#endif
