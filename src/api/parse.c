/* Parses bodies of requests on a text thread, from quire_parse_start to PARSED. */
#include "api/request.h"
#include "api/stream.h"
#include "base/mem.h"

#define TRIM_BYTES ((size_t)1 << 20) /* a larger body leaves free memory that is worth returning to the system */

struct quire_parse {
    text_job job; /* first member: a job* is a quire_parse* */
    quire_queue *q;
    quire_endpoint endpoint;
    char *body;
    size_t n;
    void *user;
    quire_request *request;
    quire_error error;
    quire_parse *next;     /* in q->parsed */
    atomic_bool cancelled; /* set by the queue's thread */
};

/* On a text thread: parses, then puts the parse into its queue. */
static void run_parse(text_job *job) {
    quire_parse *p = (quire_parse *)job;
    quire_queue *q = p->q;
    if (!atomic_load(&p->cancelled)) {
        (void)quire_request_parse(q->e, p->endpoint, p->body, p->n, &p->request, &p->error);
    }
    mem_free(p->body);
    if (p->n > TRIM_BYTES) {
        mem_trim();
    }
    pthread_mutex_lock(&q->lock);
    p->next = q->parsed;
    q->parsed = p;
    wake_ring(&q->wake);
    pthread_mutex_unlock(&q->lock);
}

quire_err quire_parse_start(quire_queue *q, quire_endpoint endpoint, char *body, size_t n, void *user, quire_parse **out) {
    quire_parse *p = mem_new(1, sizeof *p);
    *out = p;
    if (p == NULL) {
        mem_free(body);
        return QUIRE_NO_MEMORY;
    }
    *p = (quire_parse){.job = {.run = run_parse}, .q = q, .endpoint = endpoint, .body = body, .n = n, .user = user};
    q->n_parses++;
    text_pool_add(q->e->text, &p->job);
    return QUIRE_OK;
}

void quire_parse_cancel(quire_parse *p) {
    atomic_store(&p->cancelled, true);
}

static quire_parse *take(quire_queue *q) {
    pthread_mutex_lock(&q->lock);
    quire_parse *p = q->parsed;
    q->parsed = p != NULL ? p->next : NULL;
    pthread_mutex_unlock(&q->lock);
    q->n_parses -= p != NULL;
    return p;
}

bool parse_next(quire_queue *q, quire_event *out) {
    for (quire_parse *p = take(q); p != NULL; p = take(q)) {
        if (!atomic_load(&p->cancelled)) {
            q->parse_error = p->error;
            *out = (quire_event){.user = p->user,
                                 .kind = QUIRE_EVENT_PARSED,
                                 .stop_token = -1,
                                 .request = p->request,
                                 .error = p->request == NULL ? &q->parse_error : NULL};
            mem_free(p);
            return true;
        }
        quire_request_free(p->request);
        mem_free(p);
    }
    return false;
}

void parse_close(quire_queue *q) {
    while (q->n_parses > 0) {
        quire_parse *p = take(q);
        if (p == NULL) {
            wake_wait(&q->wake, -1);
            continue;
        }
        quire_request_free(p->request);
        mem_free(p);
    }
}
