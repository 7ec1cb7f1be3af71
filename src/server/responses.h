/* OpenAI's Responses API beside its writer (responses.c): what clients do with stored
 * responses, over the server's store (response_store.h). */
#ifndef SERVER_RESPONSES_H
#define SERVER_RESPONSES_H

#include "server/conn.h"

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
