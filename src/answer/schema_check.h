/* Checks a rule without generating: each keyword of its schema is enforced, an
 * annotation, or refused with the reason. */
#ifndef ANSWER_SCHEMA_CHECK_H
#define ANSWER_SCHEMA_CHECK_H

#include "request/request.h"

/* Reads a body of hostile origin, {"schema": ..} or one with a field that names a rule
 * (response_format, structured_outputs, regex ..), compiles the rule and appends the
 * report of POST /v1/schemas/check, a JSON object, to *out. A rule that is refused is no
 * failure. QUIRE_BAD_REQUEST: the body names no rule; err->param says what is wrong.
 * QUIRE_TOO_LARGE, QUIRE_NO_MEMORY. A text thread. */
quire_err schema_check(const request_context *ctx, str body, strbuf *out, quire_error *err);

/* Appends how each keyword of r's rule is enforced: a JSON array of {"path", "keyword",
 * "status", "how"}. QUIRE_NO_MEMORY. A text thread. */
quire_err schema_check_list(const quire_request *r, strbuf *out);

#endif
