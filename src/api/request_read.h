/* How a request is read: between request.c and the other request_*.c files only. */
#ifndef API_REQUEST_READ_H
#define API_REQUEST_READ_H

#include <json-c/json.h>

#include "api/request.h"

/* Parses JSON text of hostile origin: strict, no trailing bytes, valid UTF-8, no NUL bytes, at most REQUEST_MAX_BYTES and
 * REQUEST_MAX_DEPTH. Of duplicate keys the last counts. *out is NULL for JSON null. On failure err has the position, and param is "body" or
 * "body.POSITION". */
quire_err json_read(const char *text, size_t n, json_object **out, quire_error *err);

/* A short picture of a value for an error text ("\"ten\"", "1.5", "an array"), in buf. Returns buf. */
#define JSON_BRIEF_BYTES 80
const char *json_brief(json_object *v, char buf[JSON_BRIEF_BYTES]);

/* An integer, written as one or as a number without a fraction; false for anything else and for what an int64 cannot hold. */
bool json_integer(json_object *v, int64_t *out);

/* A request of its own endpoint with every field at its default. */
quire_err request_new(const request_context *ctx, quire_endpoint endpoint, quire_request **out);
uint32_t request_endpoint_flag(const quire_request *r);

/* Keeps v (a reference that this takes over, also on failure) alive as long as the request: an object whose members are fields that were set. */
quire_err request_keep(quire_request *r, json_object *v, quire_error *err);

/* Validates v (NULL: null) by the field's row and stores it. On failure r is as it was. Texts are borrowed from v. */
quire_err request_set_field(quire_request *r, const field_desc *f, json_object *v, quire_error *err);

/* Errors about a field: a value of the wrong type (param "body.NAME", or body.NAME.INDEX for index >= 0), or of the wrong size (param
 * NAME). */
quire_err request_type_error(const field_desc *f, int64_t index, json_object *v, const char *what, quire_error *err);
quire_err request_range_error(const field_desc *f, quire_error *err, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* FIELD_PROMPT and FIELD_MESSAGES (request_prompt.c, request_messages.c). */
quire_err request_read_prompt(quire_request *r, const field_desc *f, json_object *v, quire_error *err);
quire_err request_read_messages(quire_request *r, const field_desc *f, json_object *v, quire_error *err);
/* Fields that fill sampling.lists (request_lists.c). */
quire_err request_read_logit_bias(quire_request *r, const field_desc *f, json_object *v, quire_error *err);
quire_err request_read_allowed(quire_request *r, const field_desc *f, json_object *v, quire_error *err);
quire_err request_read_bad_words(quire_request *r, const field_desc *f, json_object *v, quire_error *err);
quire_err request_read_breakers(quire_request *r, const field_desc *f, json_object *v, quire_error *err);
/* Fields of beam search (request_beams.c). */
quire_err request_read_beams(quire_request *r, const field_desc *f, json_object *v, quire_error *err);
quire_err request_read_early_stopping(quire_request *r, const field_desc *f, json_object *v, quire_error *err);
void request_prompts_free(request_prompt *prompts, int32_t n);

#endif
