/* OpenAI's error objects. */
#ifndef SERVER_ERROR_BODY_H
#define SERVER_ERROR_BODY_H

#include "json/json_out.h"

/* What a client is told of a failure; texts are borrowed. */
typedef struct api_error {
    int status;
    const char *code;      /* OpenAI's word for it; NULL: the status in its place, as vLLM has it */
    const char *param;     /* NULL or "": none */
    const char *message;
    int32_t retry_after_s; /* with 429 and 503; 0: unknown */
} api_error;

/* The HTTP status that a failure of a request is answered with. */
int error_status(quire_err e);
/* Of a failure of a request. Borrows err's texts. */
api_error error_of(const quire_error *err);
/* {"error":{"message","type","param","code"}}: type is OpenAI's word for the status. */
void error_body(json_out *o, const api_error *e);

#endif
