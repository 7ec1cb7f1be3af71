/* POST /v1/schemas/check: what would be enforced of a schema, without generating. Owner:
 * the loop's thread. */
#ifndef SERVER_SCHEMAS_H
#define SERVER_SCHEMAS_H

#include "server/conn.h"

/* Starts the check of c's body on a text thread. */
void schemas_check(conn *c);
/* A check is done: answers its connection, the event's user. */
void schemas_checked(const quire_event *ev);

#endif
