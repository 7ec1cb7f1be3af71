/* What would become of a rule for responses, said without generating: each keyword of a schema enforced, an annotation, or refused with the
 * reason. The answer of POST /v1/schemas/check. */
#ifndef API_SCHEMA_CHECK_H
#define API_SCHEMA_CHECK_H

#include "api/request.h"

#define SCHEMA_CHECK_KEYWORDS 10000             /* most that a report lists */
#define SCHEMA_CHECK_BYTES    ((size_t)4 << 20) /* of their texts, about */

/* Reads a body of hostile origin, {"schema": ..} or one with a field that names a rule (response_format, structured_outputs, regex ..),
 * compiles the rule and appends the report, a JSON object, to *out. A rule that is refused is no failure. QUIRE_BAD_REQUEST: the body names
 * no rule; err->param says what is wrong. QUIRE_TOO_LARGE, QUIRE_NO_MEMORY. A text thread. */
quire_err schema_check(const request_context *ctx, str body, strbuf *out, quire_error *err);

#endif
