/* Runs a loop: accepts connections, hands out the engine's events, and shuts down in
 * stages. */
#ifndef SERVER_LOOP_RUN_H
#define SERVER_LOOP_RUN_H

#include "server/loop.h"

/* Initialises l as a loop of s, which needs no engine yet. On failure l needs no
 * loop_close. */
quire_err loop_open(loop *l, server *s);
/* Connects l, which does not run, to the server's engine. On failure l can only be
 * closed. */
quire_err loop_attach(loop *l);
/* Closes what remains: connections, queue, base. Called after loop_run. */
void loop_close(loop *l);
/* Serves until the server is stopped and the last connection is closed, or until it stops
 * waiting for its engine. */
quire_err loop_run(loop *l);

#endif
