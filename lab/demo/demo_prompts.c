/* --prompts FILE: the lengths of waste and latency from prompts that the model
 * answers. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "lab/demo/demo.h"

enum { MAX_LINE = 1 << 16, SEED = 1, CAP = 200 };

typedef struct answering {
    quire_engine *engine;
    quire_queue *queue;
    demo_numbers *prompts, *lengths;
} answering;

static quire_err demo_prompts_set_fields(quire_request *r, int32_t cap, quire_error *err) {
    char number[16];
    snprintf(number, sizeof number, "%d", (int)cap);
    TRY(quire_request_set(r, "max_tokens", number, err));
    snprintf(number, sizeof number, "%d", SEED);
    return quire_request_set(r, "seed", number, err);
}

/* One line on its way; its number is the stream's user. */
static quire_err demo_prompts_ask(answering *a, const char *text, size_t n, int32_t cap, quire_error *err) {
    int32_t *ids, i = a->prompts->n;
    size_t n_ids;
    quire_request *r;
    quire_stream *stream;
    TRY(quire_tokenize(a->engine, text, n, true, &ids, &n_ids, err));
    quire_err e =
        n_ids == 0 || n_ids > 1 << 20
            ? err_set(err, QUIRE_INVALID, -1, "--prompts: line %d has %zu tokens", (int)i + 1, n_ids)
            : quire_request_ids(a->engine, ids, n_ids, &r, err);
    quire_free(ids);
    TRY(e);
    e = demo_prompts_set_fields(r, cap, err);
    if (e != QUIRE_OK) {
        quire_request_free(r);
        return e;
    }
    TRY(quire_submit(a->queue, r, &a->lengths->v[i], &stream, err));
    a->prompts->v[i] = (int32_t)n_ids;
    a->lengths->v[i] = 0;
    a->prompts->n = a->lengths->n = i + 1;
    return QUIRE_OK;
}

/* Every line that is not empty. */
static quire_err ask_all(answering *a, FILE *f, int32_t cap, quire_error *err) {
    static char line[MAX_LINE];
    while (fgets(line, sizeof line, f) != NULL) {
        size_t n = strcspn(line, "\r\n");
        if (n == sizeof line - 1 || a->prompts->n == FIGURES_MAX_POINTS) {
            return err_set(err, QUIRE_INVALID, -1, "--prompts: at most %d lines of %d bytes",
                           FIGURES_MAX_POINTS, MAX_LINE - 2);
        }
        TRY(n > 0 ? demo_prompts_ask(a, line, n, cap, err) : QUIRE_OK);
    }
    return a->prompts->n > 0 ? QUIRE_OK
                             : err_set(err, QUIRE_INVALID, -1, "--prompts: there is no prompt in it");
}

/* Until the answers of all that was asked have ended; the first failure is the result. */
static quire_err await_all(answering *a, quire_error *err) {
    quire_err e = QUIRE_OK;
    for (int32_t n_open = a->prompts->n; n_open > 0;) {
        quire_event ev;
        if (!quire_queue_next(a->queue, &ev)) {
            quire_queue_wait(a->queue, -1);
            continue;
        }
        if (ev.kind == QUIRE_EVENT_DONE) {
            *(int32_t *)ev.user = ev.completion_tokens > 0 ? ev.completion_tokens : 1;
            if (ev.finish == QUIRE_FINISH_ERROR && e == QUIRE_OK && ev.error != NULL) {
                *err = *ev.error;
                e = err->code;
            }
            quire_stream_release(ev.stream);
            n_open--;
        }
    }
    return e;
}

static quire_err answer_file(answering *a, const demo_options *o, int32_t cap, quire_error *err) {
    FILE *f = fopen(o->prompts, "r");
    if (f == NULL) {
        return err_set(err, QUIRE_NOT_FOUND, -1, "%s: cannot be read", o->prompts);
    }
    quire_err e = ask_all(a, f, cap, err);
    fclose(f);
    quire_error later = {.message = ""};
    quire_err awaited = await_all(a, &later);
    if (e == QUIRE_OK && awaited != QUIRE_OK) {
        *err = later;
        e = awaited;
    }
    return e;
}

quire_err demo_answer_prompts(const demo_options *o, int32_t cap, demo_numbers *prompts,
                              demo_numbers *lengths, quire_error *err) {
    answering a = {.prompts = prompts, .lengths = lengths};
    quire_options engine = o->engine;
    prompts->n = lengths->n = 0;
    engine.memory_utilization = 0.05;
    TRY(quire_engine_open(&engine, &a.engine, err));
    quire_err e = quire_queue_open(a.engine, &a.queue);
    if (e == QUIRE_OK) {
        e = answer_file(&a, o, cap, err);
        quire_queue_close(a.queue);
    } else {
        err_set(err, e, -1, "the engine's queue: %s", quire_err_text(e));
    }
    quire_engine_close(a.engine);
    return e;
}

quire_err demo_read_wholes(const demo_options *o, const char *own, demo_numbers *out, quire_error *err) {
    if (o->prompts == NULL) {
        return demo_read_numbers("--lengths", o->lengths, own, out, err);
    }
    demo_numbers answers;
    TRY(demo_answer_prompts(o, demo_or(o->n_tokens, CAP), out, &answers, err));
    for (int32_t i = 0; i < out->n; i++) {
        out->v[i] += answers.v[i];
    }
    return QUIRE_OK;
}
