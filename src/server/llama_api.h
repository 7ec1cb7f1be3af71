/* llama.cpp's API beside its completions (llama_writer, response.h): what its clients ask
 * about the server. The loop's thread. */
#ifndef SERVER_LLAMA_API_H
#define SERVER_LLAMA_API_H

#include "server/conn.h"

/* GET /props: the model, its context, and the settings of a request that gives none. */
void llama_props(conn *c);
/* Writes {"error":{"code","message","type"}}. */
void llama_error(json_out *o, const api_error *e);

#endif
