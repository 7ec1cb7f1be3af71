/* Routes: the handler and access check of each path. Lists the handlers by file; they run
 * on the loop's thread, openapi_write on any thread. */
#ifndef SERVER_ROUTES_H
#define SERVER_ROUTES_H

#include "quire.h"
#include "server/conn.h"
#include "server/error_body.h"
#include "server/loop.h"
#include "json/json_out.h"

extern const conn_handler routes;
/* Handler of a server without an engine: answers every request with 503. */
extern const conn_handler routes_while_loading;

/* The path of route i; NULL past the last (path_at, error_body.h). */
const char *routes_path(size_t i);

/* ---- handlers: streams.c ---- */

/* Handles POST /v1/streams/{id}/{verb}; the response is sent later. */
void streams_post(conn *c);

/* GET and DELETE /debug/requests: list the requests in progress, cancel one. The response
 * is sent later; 403 without the operator's key. */
void requests_list(conn *c);
void requests_cancel(conn *c);

/* ---- model_routes.c: LoRA adapters ---- */

/* POST /v1/load_lora_adapter: {"lora_name", "lora_path", "load_inplace"}. Operator
 * only. */
void adapter_api_load(conn *c);
/* POST /v1/unload_lora_adapter: {"lora_name"}. Operator only. */
void adapter_api_unload(conn *c);
/* GET /lora-adapters: the adapters of --lora, with their scales. POST (operator only):
 * sets scales by an array of {"id", "scale"}; adapters not in it get scale 0. */
void adapter_api_scales(conn *c);

/* ---- model_routes.c: models ---- */

/* GET /v1/models and /models. */
void models_list(conn *c);
/* GET /v1/models/NAME. */
void models_one(conn *c);
/* POST /models/load and /models/unload, as in llama.cpp's router: {"model": NAME}.
 * Answered at once; the list of models shows when it is done. Operator only. */
void models_post_load(conn *c);
void models_post_unload(conn *c);
/* vLLM's POST /sleep?level=1|2&mode=abort|wait, answered once all models sleep, POST
 * /wake_up and GET /is_sleeping. Operator only. */
void models_post_sleep(conn *c);
void models_post_wake_up(conn *c);
void models_get_sleeping(conn *c);

/* ---- sglang.c: SGLang's native API ---- */

/* GET /get_model_info, /model_info: the model's name, and whether it generates text. */
void sglang_model_info(conn *c);
/* GET /get_server_info, /server_info: the sizes of the engine. */
void sglang_server_info(conn *c);
/* GET /health_generate: generates a token, or a row if the model returns rows. */
void sglang_health(conn *c);
/* POST /abort_request {"rid": .., "abort_all": ..}: ends the tenant's generations with
 * that name, or all of them. 200 even if there are none. */
void sglang_abort(conn *c);

/* ---- llama_api.c: llama.cpp's API ---- */

/* GET /props: the model, its context length, and the default settings of a request. */
void llama_props(conn *c);
/* Writes {"error":{"code","message","type"}}. */
void llama_error(json_out *o, const api_error *e);

/* ---- ollama.c: Ollama's API ---- */

/* POST /api/chat, /api/generate, /api/embed and /api/embeddings. A request without
 * messages, prompt or input only loads or unloads a model; it is answered at once. */
void ollama_post(conn *c);
/* GET /api/tags, /api/ps and /api/version; POST /api/show. */
void ollama_tags(conn *c);
void ollama_ps(conn *c);
void ollama_version(conn *c);
void ollama_show(conn *c);
/* Writes {"error":"message"}. */
void ollama_error(json_out *o, const api_error *e);

/* ---- program_api.c: programs ---- */

#define PROGRAM_TEXT_BYTES ((int64_t)16 << 20) /* most text that a program may build on a loop's thread */
#define PROGRAM_BODY_BYTES ((size_t)1 << 20)   /* largest body that a loop's thread parses */

/* POST /v1/programs, and the paths that cancel a program (docs/programs.md). */
void program_api_post(conn *c);
void program_api_cancel(conn *c);
/* Sends a ping on each of l's program streams silent for server_options.ping_us. */
void program_api_ping_all(const loop *l);
/* Handles the events of a model's programs; arg is the loop_model. */
LOOP_CALLBACK(program_api_on_events);

/* Whether a connection has a program in progress. */
bool program_api_runs(const conn *c);

/* ---- openapi.c: the OpenAPI document ---- */

/* A route as the OpenAPI document shows it. */
typedef struct openapi_route {
    const char *path;
    const char *allow; /* the methods, as the Allow header lists them */
    bool is_prefix;    /* the path is followed by a parameter */
    bool takes_json;
    bool needs_key;
    bool has_fields;         /* its body is a generation request of `endpoint` */
    quire_endpoint endpoint; /* valid if has_fields */
} openapi_route;

/* Fills *out with route i; false: i is past the last. */
typedef bool (*openapi_route_at)(size_t i, openapi_route *out);

/* Writes the OpenAPI document. An error (QUIRE_NO_MEMORY) is left in o->err. */
void openapi_write(const server *s, openapi_route_at at, json_out *o);

/* Anthropic's API, except generated responses: errors and lists of models. */

/* Writes {"type":"error","error":{"type","message"},"request_id"}. */
void messages_error_body(json_out *o, const api_error *e);
/* The status of an error in Anthropic's API: 529 in place of 503, otherwise the same. */
int messages_error_status(int status);
/* Write a served model, and the list of all of them. n_tokens: its context length. */
void messages_write_model(const server *s, str name, int32_t n_tokens, json_out *o);
void messages_write_models(const server *s, json_out *o);

/* OpenAI's Responses API, except the writer: requests about stored responses
 * (response_store.h). */

/* Handles /v1/responses/ID (GET, DELETE), /v1/responses/ID/cancel (POST) and
 * /v1/responses/ID/input_items (GET). The method must be one of the path's. */
void responses_one(conn *c);
/* The methods of a path below /v1/responses/, for the Allow header. parameter: what
 * follows that prefix. NULL: no such path. */
const char *responses_allow(str parameter);
/* The quire_history callback; user: the server. */
quire_err responses_find_history(void *user, const char *tenant, const char *id, char **lines, size_t *n);
/* Cancels background responses of l that were cancelled or deleted in the store. */
void responses_drop_unwanted(loop *l);

#endif
