/* Runs a loop: accepts connections, hands out the engine's events, and shuts down in stages. */
#ifndef SERVER_LOOP_RUN_H
#define SERVER_LOOP_RUN_H

#include "server/loop.h"

/* Initialises l as a loop of s. On failure l needs no loop_close. */
quire_err loop_open(loop *l, server *s);
/* Closes what remains: connections, queue, base. Called after loop_run. */
void loop_close(loop *l);
/* Serves until the server is stopped and the last connection is closed. */
quire_err loop_run(loop *l);

#endif
