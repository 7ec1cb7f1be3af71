/* OpenAI's error objects, and the HTTP status of each error code. */
#ifndef SERVER_ERROR_BODY_H
#define SERVER_ERROR_BODY_H

#include "json/json_out.h"

/* A failure as the client sees it. Texts are borrowed. */
typedef struct api_error {
    int status;
    const char *code;  /* OpenAI's code; NULL: the status in its place, as in vLLM */
    const char *param; /* NULL or "": none */
    const char *message;
    int32_t retry_after_s; /* with 429 and 503; 0: unknown */
} api_error;

/* The HTTP status for a failed request. */
int error_status(quire_err e);
/* The error object for a failed request. Borrows err's texts. */
api_error error_of(const quire_error *err);
/* Writes {"error":{"message","type","param","code"}}. type is OpenAI's word for the
 * status. */
void error_body(json_out *o, const api_error *e);

#endif
