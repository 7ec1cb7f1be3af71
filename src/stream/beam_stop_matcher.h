/* Stop strings in a beam search: the engine calls back for each continuation, whether its
 * text completes a stop string.
 *
 * A stream's response is ended from outside at a position; beams cannot be, since the
 * search depends on which of them have ended. The results are the same as if the text
 * were matched, with one exception: a stop string that a token completes together with a
 * part of a character only cuts the text that is shown. */
#ifndef STREAM_BEAM_STOP_MATCHER_H
#define STREAM_BEAM_STOP_MATCHER_H

#include "request/generation.h"
#include "stream/stream_engine.h"

typedef struct beam_stop_matcher beam_stop_matcher;

/* Opens a matcher for g's stop strings. g and the engine outlive it. */
quire_err beam_stop_matcher_open(stream_engine *e, const generation *g, beam_stop_matcher **out);
void beam_stop_matcher_close(beam_stop_matcher *w);
/* engine_ending.is_over: whether the last of tokens[n_prompt..n) completes a stop string
 * in their text. One thread at a time; allocates nothing. */
bool beam_stop_matcher_is_over(void *watch, const int32_t *tokens, int32_t n_prompt, int32_t n);

#endif
