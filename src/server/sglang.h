/* SGLang's native API beside its generation (sglang_writer, response.h): what its clients
 * ask about the server, and ask it to do. The loop's thread. */
#ifndef SERVER_SGLANG_H
#define SERVER_SGLANG_H

#include "server/conn.h"

/* GET /get_model_info, /model_info: the model's name, and whether it generates. */
void sglang_model_info(conn *c);
/* GET /get_server_info, /server_info: the sizes of the engine. */
void sglang_server_info(conn *c);
/* GET /health_generate: generates a token, or a row where the model gives these. */
void sglang_health(conn *c);
/* POST /abort_request {"rid": .., "abort_all": ..}: ends the tenant's generations of
 * that name, or all of them. Answers 200 even if there are none. */
void sglang_abort(conn *c);

#endif
