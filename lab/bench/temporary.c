#include "lab/bench/temporary.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void remove_directory(const char *path) {
    DIR *d = opendir(path);
    for (struct dirent *entry = d != NULL ? readdir(d) : NULL; entry != NULL; entry = readdir(d)) {
        (void)unlinkat(dirfd(d), entry->d_name, 0); /* fails for . and .. */
    }
    if (d != NULL) {
        closedir(d);
    }
    (void)rmdir(path);
}

#define DONE SIGUSR2 /* signal by which temporary_remove wakes the watching thread */

/* Waits for a signal, removes the directory and ends the process by that signal. */
static void *watch(void *context) {
    temporary *t = context;
    int number;
    if (sigwait(&t->stops, &number) != 0 || number == DONE) {
        return NULL;
    }
    remove_directory(t->path);
    (void)signal(number, SIG_DFL);
    (void)pthread_sigmask(SIG_UNBLOCK, &t->stops, NULL);
    (void)raise(number);
    return NULL;
}

/* Adds a signal, unless the process ignores it. */
static void add_stop(sigset_t *stops, int number) {
    struct sigaction action;
    if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_IGN) {
        (void)sigaddset(stops, number);
    }
}

quire_err temporary_make(temporary *out, quire_error *err) {
    static const char pattern[] = "/tmp/quire-bench-XXXXXX";
    memcpy(out->path, pattern, sizeof pattern);
    (void)sigemptyset(&out->stops);
    add_stop(&out->stops, SIGINT);
    add_stop(&out->stops, SIGTERM);
    (void)sigaddset(&out->stops, DONE);
    if (mkdtemp(out->path) == NULL) {
        return err_set(err, QUIRE_IO, -1, "/tmp: no directory could be made there: %s", strerror(errno));
    }
    (void)pthread_sigmask(SIG_BLOCK, &out->stops, &out->before);
    int code = pthread_create(&out->watcher, NULL, watch, out);
    if (code != 0) {
        (void)pthread_sigmask(SIG_SETMASK, &out->before, NULL);
        remove_directory(out->path);
        return err_set(err, QUIRE_IO, -1, "no thread could be started: %s", strerror(code));
    }
    return QUIRE_OK;
}

void temporary_remove(temporary *t) {
    /* the watcher is waiting, or is removing the directory and ending the process */
    (void)pthread_kill(t->watcher, DONE);
    (void)pthread_join(t->watcher, NULL);
    remove_directory(t->path);
    (void)pthread_sigmask(SIG_SETMASK, &t->before, NULL);
}
