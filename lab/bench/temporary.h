/* A private directory under /tmp, for files only, that is removed at the end even if
 * SIGINT or SIGTERM ends the process.
 *
 * Owner: one thread, which makes it before it starts others, and one at a time. A thread
 * waits for those signals, and all other threads, also later ones, block them. A program
 * started meanwhile has them blocked unless it resets them. */
#ifndef LAB_BENCH_TEMPORARY_H
#define LAB_BENCH_TEMPORARY_H

#include <pthread.h>
#include <signal.h>

#include "base/err.h"

typedef struct temporary {
    char path[32];
    sigset_t stops, before; /* signals to wait for; signals that the owner had blocked */
    pthread_t watcher;
} temporary;

/* Makes the directory. IO: err says why, and nothing is left. *out must not move until it
 * is removed. */
quire_err temporary_make(temporary *out, quire_error *err);
/* Removes the directory and the files in it. */
void temporary_remove(temporary *t);

#endif
