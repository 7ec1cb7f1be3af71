/* Jobs of text threads on a request's body: parsing a large one, checking a schema, or a
 * look, which inspects the beginning of a long body while the rest is still on its way,
 * so that a field that is too large is refused without reading the rest.
 *
 * The connection waits for its job. During a look it reads nothing, so the client waits
 * too. The rest of a refused request is skipped; over TCP the kernel does so at almost no
 * cost. Owner: the loop's thread. */
#ifndef SERVER_BODY_JOBS_H
#define SERVER_BODY_JOBS_H

#include "server/conn.h"

/* Parses c's body and submits the request (response.h): at once, or if large on a text
 * thread. */
void body_parse(conn *c);
/* POST /v1/schemas/check: starts the check of c's body. */
void body_check(conn *c);
/* POST /v1/messages/count_tokens: starts counting the tokens of the prompt in c's
 * body. */
void body_count(conn *c);
/* Starts loading an adapter; c is answered once it is loaded or has failed. in_place: it
 * may replace a loaded adapter of this name. */
void body_load_adapter(conn *c, const char *name, const char *path, bool in_place);
/* Starts a look, during which a text thread owns the body's memory. False: out of memory;
 * the body was dropped. */
bool body_look(conn *c);
/* Handles the event of a job; false: ev belongs to no such job. */
bool body_job_event(const quire_event *ev);

#endif
