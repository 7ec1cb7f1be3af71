#include "check/check_run.h"

#include <stdio.h>

#include "base/mem.h"

quire_err check_take_ids(json_value *object, const char *name, const char *path, int32_t **ids, size_t *n,
                         quire_error *err) {
    json_value *list = json_get(object, name);
    if (!json_is(list, JSON_KIND_ARRAY)) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: has no list \"%s\"", path, name);
    }
    *n = json_length(list);
    *ids = mem_new(*n, sizeof **ids);
    if (!*ids) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "%s: out of memory", path);
    }
    for (size_t i = 0; i < *n; i++) {
        (*ids)[i] = (int)json_int64(json_at(list, i));
    }
    return QUIRE_OK;
}

quire_err check_run(quire_engine *engine, const int32_t *prompt, size_t n_prompt, size_t most, float *logits,
                    int32_t *greedy, size_t *n_greedy, quire_error *err) {
    quire_queue *queue;
    quire_request *request;
    quire_stream *stream;
    char max_tokens[24];
    snprintf(max_tokens, sizeof max_tokens, "%zu", most);
    TRY(quire_request_ids(engine, prompt, n_prompt, &request, err));
    quire_err e = quire_request_set(request, "max_tokens", max_tokens, err);
    e = e ? e : quire_request_set(request, "temperature", "0", err);
    e = e ? e : quire_request_set(request, "ignore_eos", "true", err);
    e = e ? e : quire_queue_open(engine, &queue);
    if (e != QUIRE_OK) {
        quire_request_free(request);
        return e;
    }
    quire_request_logits(request, logits);
    e = quire_submit(queue, request, NULL, &stream, err);
    *n_greedy = 0;
    for (bool done = e != QUIRE_OK; !done;) {
        quire_event ev;
        if (!quire_queue_next(queue, &ev)) {
            quire_queue_wait(queue, -1);
            continue;
        }
        for (int32_t i = 0; ev.kind == QUIRE_EVENT_DELTA && i < ev.n_tokens && *n_greedy < most; i++) {
            greedy[(*n_greedy)++] = ev.tokens[i];
        }
        done = ev.kind == QUIRE_EVENT_DONE;
        if (done && ev.error) {
            *err = *ev.error;
            e = err->code;
        }
    }
    quire_queue_close(queue);
    return e;
}
