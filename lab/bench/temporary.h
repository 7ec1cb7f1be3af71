/* A private directory below /tmp, for files only, which is removed at the end, even if
 * SIGINT or SIGTERM ends the process.
 *
 * Owner: one thread, which makes it before it begins others, and has one at a time: a
 * thread waits for those signals, and all others, also those that begin meanwhile, leave
 * them to it. A program that is started meanwhile has them blocked, unless it is told
 * otherwise. */
#ifndef LAB_BENCH_TEMPORARY_H
#define LAB_BENCH_TEMPORARY_H

#include <pthread.h>
#include <signal.h>

#include "base/err.h"

typedef struct temporary {
    char path[32];
    sigset_t stops, before; /* the signals that are waited for; what the owner had blocked */
    pthread_t watcher;
} temporary;

/* Makes it. IO: err says why; nothing is left. *out stays where it is until it is
 * removed. */
quire_err temporary_make(temporary *out, quire_error *err);
/* Removes it with the files in it. */
void temporary_remove(temporary *t);

#endif
