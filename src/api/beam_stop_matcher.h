/* Stop strings of a beam search. Its beams cannot be ended from outside at a position, as a stream's response is, for the search goes by
 * what has ended; so the engine asks of each continuation whether it is over. The search then has the same results as if the text were
 * watched, but for a stop string that a token completes together with a part of a character: that one only cuts the text that is shown. */
#ifndef API_BEAM_STOP_MATCHER_H
#define API_BEAM_STOP_MATCHER_H

#include "api/open_engine.h"
#include "api/request.h"

typedef struct beam_stop_matcher beam_stop_matcher;

/* For r's stop strings, which outlive it, as the engine does. */
quire_err beam_stop_matcher_open(quire_engine *e, const quire_request *r, beam_stop_matcher **out);
void beam_stop_matcher_close(beam_stop_matcher *w);
/* An engine_ending's is_over: whether the last of tokens[n_prompt..n) completes a stop string in their text. One thread at a time;
 * allocates nothing. */
bool beam_stop_matcher_is_over(void *watch, const int32_t *tokens, int32_t n_prompt, int32_t n);

#endif
