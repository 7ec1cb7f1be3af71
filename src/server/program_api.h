/* Programs over HTTP: POST /v1/programs runs one, whose steps are in its body
 * (docs/programs.md); POST /v1/programs/{id}/cancel and DELETE /v1/programs/{id} cancel
 * it. The loop's thread. */
#ifndef SERVER_PROGRAM_API_H
#define SERVER_PROGRAM_API_H

#include "server/conn.h"

#define PROGRAM_TEXT_BYTES ((int64_t)16 << 20) /* text that a program makes, on a loop's thread */
#define PROGRAM_BODY_BYTES ((size_t)1 << 20)   /* body that a loop's thread parses */

void program_api_post(conn *c);
void program_api_cancel(conn *c);
/* Sends a ping to streams of programs that were silent for server_options.ping_us. */
void program_api_ping_all(const loop *l);
/* Handles the events of a model's programs; arg is the loop_model. */
LOOP_CALLBACK(program_api_on_events);

/* Whether a connection has a program in progress. */
bool program_api_runs(const conn *c);

#endif
