/* Lines of a file of prompts, and their response lines. A line is
 *   - {"prompt": "text"} or {"prompt": [1,2,3]} or {"ids": [1,2,3]}, with request fields
 *     by their API names; its response is {"index", "id" if given, "text", "token_ids",
 *     "finish_reason", "usage"}, or "choices" of those if a prompt is a list;
 *   - {"custom_id", "method", "url", "body"}, OpenAI's batch format; its response is
 *     {"id", "custom_id", "response": {"status_code", "body"}, "error"}.
 * An error in a line becomes its response. One thread. */
#ifndef CLI_BATCH_LINE_H
#define CLI_BATCH_LINE_H

#include "cli/session.h"

/* The request in a line. Zero-initialised is empty. */
typedef struct batch_line {
    strbuf body; /* the request, as JSON */
    strbuf id;   /* "id" or "custom_id" as JSON; empty: none */
    quire_endpoint endpoint;
    bool is_openai;
} batch_line;

void batch_line_deinit(batch_line *l);
/* Reads line `number` (counted from 1) into an empty *l. fault: the error in it, with
 * code OK if there is none. NO_MEMORY fills err. */
quire_err batch_line_read(const cli_options *o, const session *s, size_t number, str text, batch_line *l,
                          quire_error *fault, quire_error *err);
/* Appends the response line of prompt `index` (counted from 0), without a newline.
 * NO_MEMORY. */
quire_err batch_line_response(const batch_line *l, size_t index, const response *a, const char *model,
                              strbuf *out);

#endif
