#include "api/text_pool.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/mem.h"

struct text_pool {
    pthread_mutex_t lock;
    pthread_cond_t more;
    text_job *first, **last;
    bool closing;
    int32_t n_threads;
    pthread_t threads[]; /* [n_threads] */
};

/* Waits for the next job; NULL when the pool closes and none is left. */
static text_job *take(text_pool *p) {
    pthread_mutex_lock(&p->lock);
    while (!p->first && !p->closing) {
        pthread_cond_wait(&p->more, &p->lock);
    }
    text_job *job = p->first;
    if (job) {
        p->first = job->next;
        p->last = p->first ? p->last : &p->first;
    }
    pthread_mutex_unlock(&p->lock);
    return job;
}

static void *text_main(void *arg) {
    text_pool *p = arg;
    for (text_job *job = take(p); job; job = take(p)) {
        job->run(job);
    }
    return NULL;
}

quire_err text_pool_open(int32_t n_threads, text_pool **out) {
    *out = NULL;
    text_pool *p = mem_new(1, sizeof *p + (size_t)n_threads * sizeof *p->threads);
    if (!p || pthread_mutex_init(&p->lock, NULL) != 0) {
        mem_free(p);
        return QUIRE_NO_MEMORY;
    }
    pthread_cond_init(&p->more, NULL);
    p->last = &p->first;
    while (p->n_threads < n_threads) {
        if (pthread_create(&p->threads[p->n_threads], NULL, text_main, p) != 0) {
            text_pool_close(p);
            return QUIRE_NO_MEMORY;
        }
        p->n_threads++;
    }
    *out = p;
    return QUIRE_OK;
}

void text_pool_close(text_pool *p) {
    if (!p) {
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->closing = true;
    pthread_cond_broadcast(&p->more);
    pthread_mutex_unlock(&p->lock);
    for (int32_t i = 0; i < p->n_threads; i++) {
        pthread_join(p->threads[i], NULL);
    }
    pthread_cond_destroy(&p->more);
    pthread_mutex_destroy(&p->lock);
    mem_free(p);
}

void text_pool_add(text_pool *p, text_job *job) {
    job->next = NULL;
    pthread_mutex_lock(&p->lock);
    *p->last = job;
    p->last = &job->next;
    pthread_cond_signal(&p->more);
    pthread_mutex_unlock(&p->lock);
}
