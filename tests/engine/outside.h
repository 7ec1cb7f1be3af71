/* A thread that runs constraints' work outside of steps, unless the test holds it. */
#ifndef TESTS_ENGINE_OUTSIDE_H
#define TESTS_ENGINE_OUTSIDE_H

#include <pthread.h>
#include <stdbool.h>

#include "engine/engine.h"

enum { OUTSIDE_MOST = 256 };

typedef struct outside {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    engine_work *works[OUTSIDE_MOST];
    int n;
    int64_t n_run;
    bool holds, ends;
} outside;

static inline void *outside_main(void *arg) {
    outside *o = arg;
    pthread_mutex_lock(&o->lock);
    while (!o->ends || o->n > 0) {
        if (o->n == 0 || (o->holds && !o->ends)) {
            pthread_cond_wait(&o->changed, &o->lock);
            continue;
        }
        engine_work *w = o->works[0];
        o->n--;
        for (int i = 0; i < o->n; i++) {
            o->works[i] = o->works[i + 1];
        }
        pthread_mutex_unlock(&o->lock);
        w->run(w);
        pthread_mutex_lock(&o->lock);
        o->n_run++;
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

static inline void outside_add(void *context, engine_work *w) {
    outside *o = context;
    pthread_mutex_lock(&o->lock);
    o->works[o->n++] = w;
    pthread_cond_signal(&o->changed);
    pthread_mutex_unlock(&o->lock);
}

static inline void outside_hold(outside *o, bool holds) {
    pthread_mutex_lock(&o->lock);
    o->holds = holds;
    pthread_cond_signal(&o->changed);
    pthread_mutex_unlock(&o->lock);
}

static inline int outside_waiting(outside *o) {
    pthread_mutex_lock(&o->lock);
    int n = o->n;
    pthread_mutex_unlock(&o->lock);
    return n;
}

static inline engine_outside outside_open(outside *o) {
    *o = (outside){0};
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->changed, NULL);
    pthread_create(&o->thread, NULL, outside_main, o);
    return (engine_outside){outside_add, o, 1};
}

/* Runs all queued work, and ends the thread. */
static inline void outside_close(outside *o) {
    pthread_mutex_lock(&o->lock);
    o->ends = true;
    pthread_cond_signal(&o->changed);
    pthread_mutex_unlock(&o->lock);
    pthread_join(o->thread, NULL);
    pthread_mutex_destroy(&o->lock);
    pthread_cond_destroy(&o->changed);
}

#endif
