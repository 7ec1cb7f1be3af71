/* Out-rings: whose tokens have grown, from the engine thread to one reader. See engine.h for why it cannot overflow. */
#ifndef ENGINE_OUT_H
#define ENGINE_OUT_H

#include "engine/sequence.h"

struct engine_out {
    engine *e;
    ring *ring;        /* of sequence* */
    wake *reader;
    bool rung_later;   /* the engine's: something was put in during this step */
    sequence *current; /* the reader's: being drained */
    engine_out *next;  /* the engine's list, under its lock */
};

/* Tells s's reader that its tokens or its finish have grown. Engine thread. */
void out_publish(sequence *s);

#endif
