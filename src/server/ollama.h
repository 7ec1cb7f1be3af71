/* Ollama's API beside its responses (ollama_writer, response.h): what its clients ask
 * about the one model, and requests that only load it. Handlers of routes; the loop's
 * thread. */
#ifndef SERVER_OLLAMA_H
#define SERVER_OLLAMA_H

#include "server/conn.h"

/* POST /api/chat, /api/generate, /api/embed and /api/embeddings. One without messages,
 * prompt or input, by which clients load or unload a model, is answered at once. */
void ollama_post(conn *c);
/* GET /api/tags, /api/ps and /api/version; POST /api/show. */
void ollama_tags(conn *c);
void ollama_ps(conn *c);
void ollama_version(conn *c);
void ollama_show(conn *c);
/* Writes {"error":"message"}. */
void ollama_error(json_out *o, const api_error *e);

#endif
