/* What a text thread does with a request's body: it parses a large one, checks a schema,
 * or inspects the beginning of a long one while the rest is still on its way, so that a
 * field that is too large is refused without reading the rest.
 *
 * The connection waits meanwhile, and during a look it reads nothing, so the client waits
 * too. The rest of a refused request is skipped; over TCP this happens in the kernel, at
 * next to no cost. Owner: the loop's thread. */
#ifndef SERVER_BODY_JOBS_H
#define SERVER_BODY_JOBS_H

#include "server/conn.h"

/* Parses c's body, and submits the request (response.h): at once, or, if it is large,
 * after a text thread has parsed it. */
void body_parse(conn *c);
/* POST /v1/schemas/check: starts the check of c's body. */
void body_check(conn *c);
/* POST /v1/messages/count_tokens: starts counting the tokens of the prompt in c's
 * body. */
void body_count(conn *c);
/* Starts loading an adapter; c is answered once it is loaded, or has failed. */
void body_load_adapter(conn *c, const char *name, const char *path, bool in_place);
/* Starts a look, during which a text thread owns the body's memory; false: out of memory,
 * and the body is dropped. */
bool body_look(conn *c);
/* Handles the event of such a job; false: the event is of another kind. */
bool body_job_event(const quire_event *ev);

#endif
