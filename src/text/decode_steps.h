/* What decode.c and decode_late.c share. */
#ifndef TEXT_DECODE_STEPS_H
#define TEXT_DECODE_STEPS_H

#include "text/decode.h"

/* Gives step i a part of a token; begins: its first one. Parts of one token may be
 * empty. */
quire_err decode_put(decode_state *s, int32_t i, str part, bool begins);
/* Gives step i a part, in the way of a late step or not. */
quire_err decode_run(decode_state *s, int32_t i, str part, bool begins);

/* Gives a late step a part of the one token. What later parts may change is withheld: for
 * literals a few bytes, else all of it. */
quire_err decode_put_late(decode_state *s, int32_t i, str part, bool begins);
/* Gives it what is withheld. */
quire_err decode_finish_late(decode_state *s, int32_t i);

#endif
