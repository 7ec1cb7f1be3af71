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
    atomic_bool cancelled; /* set by the queue's thread */
};

/* On a text thread. */
static void run_parse(text_job *job) {
    quire_parse *p = (quire_parse *)job;
    if (!atomic_load(&p->cancelled)) {
        (void)quire_request_parse(p->q->e, p->endpoint, p->body, p->n, &p->request, &p->error);
    }
    mem_free(p->body);
    if (p->n > TRIM_BYTES) {
        mem_trim();
    }
    queue_deliver(p->q, job);
}

/* text_job.take: fills PARSED, unless the parse was cancelled, and frees the parse. */
static bool take_parse(text_job *job, quire_event *out) {
    quire_parse *p = (quire_parse *)job;
    bool is_wanted = !atomic_load(&p->cancelled);
    p->q->n_parses--;
    if (is_wanted) {
        p->q->parse_error = p->error;
        *out = (quire_event){.user = p->user,
                             .kind = QUIRE_EVENT_PARSED,
                             .stop_token = -1,
                             .request = p->request,
                             .error = p->request == NULL ? &p->q->parse_error : NULL};
    } else {
        quire_request_free(p->request);
    }
    mem_free(p);
    return is_wanted;
}

quire_err quire_parse_start(quire_queue *q, quire_endpoint endpoint, char *body, size_t n, const char *tenant, void *user,
                            quire_parse **out) {
    quire_parse *p = mem_new(1, sizeof *p);
    *out = p;
    if (p == NULL) {
        mem_free(body);
        return QUIRE_NO_MEMORY;
    }
    *p = (quire_parse){.job = {.run = run_parse, .take = take_parse, .tenant = text_tenant(tenant), .n_bytes = n, .is_off = &p->cancelled},
                       .q = q,
                       .endpoint = endpoint,
                       .body = body,
                       .n = n,
                       .user = user};
    q->n_parses++;
    text_pool_add(q->e->text, &p->job);
    return QUIRE_OK;
}

void quire_parse_cancel(quire_parse *p) {
    atomic_store(&p->cancelled, true);
}
