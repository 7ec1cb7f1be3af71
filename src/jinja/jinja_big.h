/* Integers beyond 64 bits, as sign and magnitude. Immutable, in the render's arena. */
#ifndef JINJA_JINJA_BIG_H
#define JINJA_JINJA_BIG_H

#include "jinja/jinja_value.h"

#define JBIG_MAX_LIMBS 448 /* 14,336 bits, or 4,300 digits: Python's limit for printing */

typedef struct jbig {
    bool negative;
    size_t n; /* number of limbs, lowest first; the last is not 0 */
    uint32_t limbs[];
} jbig;

/* Converts a J_BOOL, J_INT or J_HUGE. NULL: out of memory. */
const jbig *jbig_of(jarena *a, jvalue v);
/* Adds or subtracts. The result is a J_INT if it fits into 64 bits; J_MISSING: out of
 * memory, or more than JBIG_MAX_LIMBS. */
jvalue jbig_add(jarena *a, const jbig *x, const jbig *y, bool subtract);
jvalue jbig_multiply(jarena *a, const jbig *x, const jbig *y);
/* Divides: the quotient is rounded down, the remainder has y's sign. y is not 0. False:
 * as J_MISSING above. */
bool jbig_divide(jarena *a, const jbig *x, const jbig *y, jvalue *quotient, jvalue *remainder);
/* Parses valid digits in base 2 to 36; skips underscores. Result as in jbig_add. */
jvalue jbig_parse(jarena *a, str digits, uint32_t base, bool negative);
/* Truncates a finite f. Result as in jbig_add. */
jvalue jbig_from_double(jarena *a, double f);
jvalue jbig_negate(jarena *a, const jbig *x);
/* Returns <0, 0 or >0. */
int jbig_compare(const jbig *x, const jbig *y);
/* The nearest double, ties to even; infinite if too large. */
double jbig_to_double(const jbig *x);
/* *out = x / y as the nearest double, ties to even; y is not 0. False: out of memory. */
bool jbig_ratio(jarena *a, const jbig *x, const jbig *y, double *out);
/* Appends the magnitude in a base from 2 to 16, lower case. QUIRE_NO_MEMORY. */
quire_err jbig_digits(const jbig *x, uint32_t base, strbuf *out);

#endif
