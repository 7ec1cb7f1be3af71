/* Routes: the handler and the access check of each path, and the handlers by their
 * files. Handlers run on the loop's thread; openapi_write on any. */
#ifndef SERVER_ROUTES_H
#define SERVER_ROUTES_H

#include "quire.h"
#include "server/conn.h"
#include "server/error_body.h"
#include "server/loop.h"
#include "json/json_out.h"

extern const conn_handler routes;
/* Without an engine: every request is answered 503. */
extern const conn_handler routes_while_loading;

/* The paths of all routes (error_body.h). */
const char *routes_path(size_t i);

/* ---- handlers: streams.c ---- */

/* Handles a POST to a stream; the response is sent later. */
void streams_post(conn *c);

/* Both answer later; 403 without the operator's key. */
void requests_list(conn *c);
void requests_cancel(conn *c);

/* ---- model_routes.c: LoRA adapters ---- */

/* POST /v1/load_lora_adapter: {"lora_name", "lora_path", "load_inplace"}. The
 * operator's. */
void adapter_api_load(conn *c);
/* POST /v1/unload_lora_adapter: {"lora_name"}. The operator's. */
void adapter_api_unload(conn *c);
/* GET /lora-adapters: those of --lora, with their scales. POST, the operator's: an array
 * of {"id", "scale"}; others get scale 0. */
void adapter_api_scales(conn *c);

/* ---- model_routes.c: models ---- */

/* GET /v1/models and /models. */
void models_list(conn *c);
/* GET /v1/models/NAME. */
void models_one(conn *c);
/* POST /models/load and /models/unload, as llama.cpp's router has them: {"model": NAME}.
 * The answer comes at once; the list shows when it is done. The operator's. */
void models_post_load(conn *c);
void models_post_unload(conn *c);
/* vLLM's POST /sleep?level=1|2&mode=abort|wait, answered once all models sleep, POST
 * /wake_up and GET /is_sleeping. The operator's. */
void models_post_sleep(conn *c);
void models_post_wake_up(conn *c);
void models_get_sleeping(conn *c);

/* ---- sglang.c: SGLang's native API ---- */

/* GET /get_model_info, /model_info: the model's name, and whether it generates. */
void sglang_model_info(conn *c);
/* GET /get_server_info, /server_info: the sizes of the engine. */
void sglang_server_info(conn *c);
/* GET /health_generate: generates a token, or a row where the model gives these. */
void sglang_health(conn *c);
/* POST /abort_request {"rid": .., "abort_all": ..}: ends the tenant's generations of
 * that name, or all of them. Answers 200 even if there are none. */
void sglang_abort(conn *c);

/* ---- llama_api.c: llama.cpp's API ---- */

/* GET /props: the model, its context, and the settings of a request that gives none. */
void llama_props(conn *c);
/* Writes {"error":{"code","message","type"}}. */
void llama_error(json_out *o, const api_error *e);

/* ---- ollama.c: Ollama's API ---- */

/* POST /api/chat, /api/generate, /api/embed and /api/embeddings. A request without
 * messages, prompt or input, with which clients load or unload a model, is answered at
 * once. */
void ollama_post(conn *c);
/* GET /api/tags, /api/ps and /api/version; POST /api/show. */
void ollama_tags(conn *c);
void ollama_ps(conn *c);
void ollama_version(conn *c);
void ollama_show(conn *c);
/* Writes {"error":"message"}. */
void ollama_error(json_out *o, const api_error *e);

/* ---- program_api.c: programs ---- */

#define PROGRAM_TEXT_BYTES ((int64_t)16 << 20) /* most text that a program may make on a loop's thread */
#define PROGRAM_BODY_BYTES ((size_t)1 << 20)   /* largest body that a loop's thread parses */

void program_api_post(conn *c);
void program_api_cancel(conn *c);
/* Sends a ping to streams of programs that were silent for server_options.ping_us. */
void program_api_ping_all(const loop *l);
/* Handles the events of a model's programs; arg is the loop_model. */
LOOP_CALLBACK(program_api_on_events);

/* Whether a connection has a program in progress. */
bool program_api_runs(const conn *c);

/* ---- openapi.c: the OpenAPI document ---- */

/* A route as the document needs it. */
typedef struct openapi_route {
    const char *path;
    const char *allow; /* the methods, as the Allow header lists them */
    bool is_prefix;    /* the path continues with a parameter */
    bool takes_json;
    bool needs_key;
    bool has_fields;         /* its body is a request of an endpoint */
    quire_endpoint endpoint; /* if it has fields */
} openapi_route;

/* Fills *out with route i; false past the last one. */
typedef bool (*openapi_route_at)(size_t i, openapi_route *out);

/* Writes the document. QUIRE_NO_MEMORY is left in o->err. */
void openapi_write(const server *s, openapi_route_at at, json_out *o);

/* Anthropic's API besides its responses: errors and lists of models. */

/* Writes {"type":"error","error":{"type","message"},"request_id"}. */
void messages_error_body(json_out *o, const api_error *e);
/* The status of an error in this API: 529 in place of 503, otherwise the same. */
int messages_error_status(int status);
/* A served model, and the list of all of them. */
void messages_write_model(const server *s, str name, int32_t n_tokens, json_out *o);
void messages_write_models(const server *s, json_out *o);

/* OpenAI's Responses API beside its writer (routes.c): requests about stored responses
 * (response_store.h). */

/* /v1/responses/ID (GET, DELETE), /v1/responses/ID/cancel (POST) and
 * /v1/responses/ID/input_items (GET), with a method that the path has. */
void responses_one(conn *c);
/* The methods of a path, for the Allow header, by what follows /v1/responses/; NULL:
 * no such path. */
const char *responses_allow(str parameter);
/* quire_history; user: the server. */
quire_err responses_find_history(void *user, const char *tenant, const char *id, char **lines, size_t *n);
/* Cancels the responses in the background of l that were cancelled or deleted. */
void responses_drop_unwanted(loop *l);

#endif
