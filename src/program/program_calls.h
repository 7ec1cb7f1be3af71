/* Begins the calls of states; program_state.h has the calls for executors. */
#ifndef PROGRAM_PROGRAM_CALLS_H
#define PROGRAM_PROGRAM_CALLS_H

#include "program/program_values.h"

/* Begins the call of a GEN or SELECT step, or the prefix call before a FORK step. Then
 * s is CALLING, or its prefix is computed already. */
quire_err program_call_begin(quire_state *s, const step *st, quire_error *err);

#endif
