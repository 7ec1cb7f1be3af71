/* What Anthropic's form has besides responses (anthropic.c): errors and lists of
 * models. */
#ifndef SERVER_ANTHROPIC_H
#define SERVER_ANTHROPIC_H

#include "server/error_body.h"
#include "server/loop.h"

/* Writes {"type":"error","error":{"type","message"},"request_id"}. */
void messages_error_body(json_out *o, const api_error *e);
/* The status of an error in this form: 529 for 503, else the same. */
int messages_error_status(int status);
/* A served model, and the list of all of them. */
void messages_write_model(const server *s, str name, int32_t n_tokens, json_out *o);
void messages_write_models(const server *s, json_out *o);

#endif
