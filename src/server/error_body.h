/* OpenAI's error objects. */
#ifndef SERVER_ERROR_BODY_H
#define SERVER_ERROR_BODY_H

#include "server/json_out.h"

/* The HTTP status that a failure of a request is answered with. */
int error_status(quire_err e);
/* {"error":{"message","type","param","code"}}: type is OpenAI's word for the status; param NULL or "" is null. */
void error_body(json_out *o, int status, const char *param, const char *message);

#endif
