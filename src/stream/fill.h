/* Prompts of fill-in-the-middle: what stands before and after a gap, as ids. */
#ifndef STREAM_FILL_H
#define STREAM_FILL_H

#include "stream/stream_engine.h"

/* Appends the ids of p as the text before the gap of r, which has a fill and no fork, and
 * of the rest, between the model's marks (text/added.h). A client's texts become none of
 * these. UNSUPPORTED, naming the field, for a model without marks; errors of
 * tokenizer_encode. A text thread. */
quire_err fill_prompt(const stream_engine *e, const quire_request *r, const request_prompt *p,
                      token_list *out, quire_error *err);

#endif
