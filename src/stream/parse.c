/* Work on request bodies, on a text thread: parses them (quire_parse_start to PARSED),
 * reads their beginnings (quire_look_start to LOOKED), checks rules (quire_check_start to
 * CHECKED). */
#include <stddef.h>
#include <stdio.h>

#include "answer/answer_rule.h"
#include <stdio.h>

#include "base/mem.h"
#include "request/request.h"
#include "stream/prompt_ids.h"
#include "stream/stream.h"

struct quire_parse {
    text_job job; /* first member, so that a job* is a quire_parse* */
    quire_queue *q;
    quire_event_kind kind; /* kind of the event that carries the result */
    quire_endpoint endpoint;
    bool counts; /* the check counts a prompt's tokens */
    char tenant[QUIRE_TENANT_BYTES + 1];
    char *body;
    size_t n;
    void *user;
    quire_request *request;
    strbuf report;     /* result of the check */
    adapter_want want; /* load of an adapter; there is no body */
    quire_error error;
    atomic_bool cancelled; /* set by the queue's thread */
};

/* Writes the number of tokens in a conversation's prompt to the report. */
static quire_err parse_count(quire_parse *p, str body) {
    quire_request *r;
    size_t n;
    request_context context = p->q->e->context;
    context.counts_only = true;
    TRY(request_parse(&context, p->endpoint, body.p, body.n, &r, &p->error));
    (void)quire_request_tenant(r, p->tenant); /* cannot fail: the name fits */
    quire_err e = prompt_count(p->q->e, r, &n, &p->error);
    request_free(r);
    TRY(e);
    e = strbuf_addf(&p->report, "{\"input_tokens\":%zu}", n);
    return err_set(&p->error, e, -1, "out of memory");
}

/* Runs on a text thread. */
static void run_parse(text_job *job) {
    quire_parse *p = (quire_parse *)job;
    str body = {p->body, p->n};
    if (atomic_load(&p->cancelled)) {
        mem_free(p->body);
    } else if (p->kind == QUIRE_EVENT_LOOKED) {
        (void)request_look(p->endpoint, body, &p->error);
        p->report = (strbuf){.p = p->body, .n = p->n};
    } else {
        (void)(p->counts                        ? parse_count(p, body)
               : p->kind == QUIRE_EVENT_CHECKED ? schema_check(&p->q->e->context, body, &p->report, &p->error)
                                                : request_parse_for(&p->q->e->context, p->tenant, p->endpoint,
                                                                    body.p, body.n, &p->request, &p->error));
        mem_free(p->body);
    }
    stream_deliver(p->q, job);
}

/* Moves the report of a check to the queue, which keeps it until its next event; a look's
 * result belongs to its receiver. */
static void take_report(quire_parse *p) {
    strbuf_deinit(&p->q->report);
    p->q->report = p->kind == QUIRE_EVENT_CHECKED ? p->report : (strbuf){0};
}

/* text_job.take: fills the event of p->kind unless the parse was cancelled; frees the
 * parse. */
static bool take_parse(text_job *job, quire_event *out) {
    quire_parse *p = (quire_parse *)job;
    bool is_wanted = !atomic_load(&p->cancelled);
    p->q->n_parses--;
    if (is_wanted) {
        p->q->parse_error = p->error;
        take_report(p);
        *out = (quire_event){.user = p->user,
                             .kind = p->kind,
                             .stop_token = -1,
                             .text = p->report.p,
                             .n_text = p->report.n,
                             .request = p->request,
                             .error = p->error.code != QUIRE_OK ? &p->q->parse_error : NULL};
    } else {
        strbuf_deinit(&p->report);
        quire_request_free(p->request);
    }
    mem_free(p);
    return is_wanted;
}

/* Queues a copy of `as` (a parse, look or check) and takes over its body. */
static quire_err start(quire_queue *q, quire_parse as, const char *tenant, quire_parse **out) {
    quire_parse *p = mem_new(1, sizeof *p);
    *out = p;
    if (p == NULL) {
        mem_free(as.body);
        return QUIRE_NO_MEMORY;
    }
    *p = as;
    p->q = q;
    (void)snprintf(p->tenant, sizeof p->tenant, "%s", tenant);
    p->job = (text_job){.run = run_parse,
                        .take = take_parse,
                        .tenant = text_tenant(tenant),
                        .n_bytes = as.n,
                        .is_off = &p->cancelled};
    q->n_parses++;
    text_pool_add(q->e->text, &p->job);
    return QUIRE_OK;
}

quire_err quire_parse_start(quire_queue *q, quire_endpoint endpoint, char *body, size_t n, const char *tenant,
                            void *user, quire_parse **out) {
    return start(
        q,
        (quire_parse){.kind = QUIRE_EVENT_PARSED, .endpoint = endpoint, .body = body, .n = n, .user = user},
        tenant, out);
}

quire_err quire_look_start(quire_queue *q, quire_endpoint endpoint, char *begin, size_t n, const char *tenant,
                           void *user, quire_parse **out) {
    return start(
        q,
        (quire_parse){.kind = QUIRE_EVENT_LOOKED, .endpoint = endpoint, .body = begin, .n = n, .user = user},
        tenant, out);
}

quire_err quire_check_start(quire_queue *q, char *body, size_t n, const char *tenant, void *user,
                            quire_parse **out) {
    return start(q, (quire_parse){.kind = QUIRE_EVENT_CHECKED, .body = body, .n = n, .user = user}, tenant,
                 out);
}

quire_err quire_count_start(quire_queue *q, char *body, size_t n, const char *tenant, void *user,
                            quire_parse **out) {
    return start(q,
                 (quire_parse){.kind = QUIRE_EVENT_CHECKED,
                               .endpoint = QUIRE_MESSAGES,
                               .counts = true,
                               .body = body,
                               .n = n,
                               .user = user},
                 tenant, out);
}

/* adapter_want.ready: delivers the load's result. */
static void adapter_loaded(adapter_want *w) {
    quire_parse *p = (quire_parse *)(void *)((char *)w - offsetof(quire_parse, want));
    p->error = w->error;
    bool is_file =
        w->error.code != QUIRE_OK && w->error.code != QUIRE_NOT_FOUND && w->error.code != QUIRE_NO_MEMORY;
    /* the caller reports it with its own error */
    p->error.code = is_file ? QUIRE_BAD_REQUEST : w->error.code;
    if (w->error.code == QUIRE_OK &&
        strbuf_addf(&p->report, "Success: LoRA adapter '%s' added successfully.", w->ref->name) != QUIRE_OK) {
        (void)err_set(&p->error, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    adapter_ref_drop(w->ref);
    stream_deliver(p->q, &p->job);
}

quire_err quire_adapter_start(quire_queue *q, const char *name, const char *path, bool in_place, void *user,
                              quire_parse **out) {
    const adapter_source *from = &q->e->adapters;
    quire_parse *p = mem_new(1, sizeof *p);
    *out = p;
    TRY(mem_check(p));
    p->q = q;
    p->kind = QUIRE_EVENT_CHECKED;
    p->user = user;
    p->job.take = take_parse;
    p->want.ready = adapter_loaded;
    q->n_parses++;
    if (from->load == NULL) {
        (void)err_set(&p->want.error, QUIRE_UNSUPPORTED, -1,
                      "this engine was opened without adapters (--enable-lora)");
    }
    if (from->load == NULL || from->load(from->context, name, path, in_place, &p->want)) {
        adapter_loaded(&p->want);
    }
    return QUIRE_OK;
}

void quire_parse_cancel(quire_parse *p) {
    atomic_store(&p->cancelled, true);
}
