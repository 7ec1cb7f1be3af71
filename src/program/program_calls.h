/* Begins calls of states; program_state.h has what executors do with them. */
#ifndef PROGRAM_PROGRAM_CALLS_H
#define PROGRAM_PROGRAM_CALLS_H

#include "program/program_values.h"

/* Begins the call of a GEN or SELECT step, or the one before a FORK step: s is CALLING
 * then, or has its prefix. */
quire_err program_call_begin(quire_state *s, const step *st, quire_error *err);

#endif
