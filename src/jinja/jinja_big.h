/* Big integers: those beyond 64 bits, sign and magnitude. Immutable, in the render's
 * arena. */
#ifndef JINJA_JINJA_BIG_H
#define JINJA_JINJA_BIG_H

#include "jinja/jinja_value.h"

#define JBIG_MAX_LIMBS 448 /* 14,336 bits: 4,300 digits, as many as Python writes */

typedef struct jbig {
    bool negative;
    size_t n; /* limbs; the last is not 0 */
    uint32_t limbs[];
} jbig;

/* A J_BOOL, J_INT or J_HUGE as a big integer; NULL: out of memory. */
const jbig *jbig_of(jarena *a, jvalue v);
/* A result of these is J_INT where it fits into 64 bits; J_MISSING: out of memory, or
 * over JBIG_MAX_LIMBS. */
jvalue jbig_add(jarena *a, const jbig *x, const jbig *y, bool subtract);
jvalue jbig_multiply(jarena *a, const jbig *x, const jbig *y);
/* The quotient rounded down and the remainder, which has y's sign; y is not 0. False as
 * J_MISSING. */
bool jbig_divide(jarena *a, const jbig *x, const jbig *y, jvalue *quotient, jvalue *remainder);
/* The digits of a number in a base up to 16, all of them valid; underscores are
 * skipped. */
jvalue jbig_parse(jarena *a, str digits, uint32_t base, bool negative);
/* f, finite, without its fraction. */
jvalue jbig_from_double(jarena *a, double f);
jvalue jbig_negate(jarena *a, const jbig *x);
/* <0, 0, >0. */
int jbig_compare(const jbig *x, const jbig *y);
/* Rounded to the nearest, ties to even; infinite where it is too large. */
double jbig_to_double(const jbig *x);
/* x / y in the same way; y is not 0. False: out of memory. */
bool jbig_ratio(jarena *a, const jbig *x, const jbig *y, double *out);
/* The magnitude's digits in a base from 2 to 16, lower case. QUIRE_NO_MEMORY. */
quire_err jbig_digits(const jbig *x, uint32_t base, strbuf *out);

#endif
