/* Out-rings: whose tokens have grown, from the engine thread to one reader. See engine.h for why it cannot overflow. */
#ifndef ENGINE_OUT_H
#define ENGINE_OUT_H

#include "engine/sequence.h"

struct engine_out {
    engine *e;
    ring *ring; /* of sequence* */
    wake *reader;
    bool rung_later;                       /* the engine's: something was put in during this step */
    engine_out *next;                      /* the engine's list, under its lock */
    _Alignas(MEM_ALIGN) sequence *current; /* the reader's: being drained */
};

/* Shows s's reader the tokens known by now and, unless reason is FINISH_NONE, the end. Engine thread. */
void out_publish(sequence *s, finish_reason reason);

#endif
