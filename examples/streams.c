/* C API example: several streams on one queue. All texts are continued at the same time;
 * one thread prints each answer when it has ended.
 *   cc examples/streams.c $(pkg-config --cflags --libs quire) -o streams
 *   ./streams builtin 20 "The prince" "The king" "Her letter" */
#include <stdio.h>
#include <string.h>

#include "quire.h"

enum { MOST = 64 };
typedef struct answer {
    const char *prompt;
    char text[4096];
    size_t n;
} answer;
static answer answers[MOST];

/* Starts a stream. The `user` of its events is the answer. */
static quire_err start(quire_engine *e, quire_queue *q, answer *a, const char *n_tokens, quire_error *err) {
    quire_request *r;
    quire_stream *s;
    quire_err code = quire_request_text(e, a->prompt, strlen(a->prompt), &r, err);
    code = code == QUIRE_OK ? quire_request_set(r, "max_tokens", n_tokens, err) : code;
    code = code == QUIRE_OK ? quire_request_set(r, "temperature", "0", err) : code;
    return code == QUIRE_OK ? quire_submit(q, r, a, &s, err) : code;
}

int main(int argc, char **argv) {
    quire_options options;
    quire_engine *engine;
    quire_queue *q;
    quire_event ev;
    quire_error err = {QUIRE_INVALID, -1, 0, "", "usage: streams MODEL TOKENS TEXT.."};
    int n_running = 0, n = argc - 3 < MOST ? argc - 3 : MOST;
    quire_options_init(&options);
    options.model = argc > 3 ? argv[1] : "";
    bool good = argc > 3 && quire_engine_open(&options, &engine, &err) == QUIRE_OK &&
                quire_queue_open(engine, &q) == QUIRE_OK;
    for (; good && n_running < n; n_running++) {
        answers[n_running].prompt = argv[3 + n_running];
        good = start(engine, q, &answers[n_running], argv[2], &err) == QUIRE_OK;
    }
    while (good && n_running > 0) {
        if (!quire_queue_next(q, &ev)) {
            quire_queue_wait(q, -1);
            continue;
        }
        answer *a = (answer *)ev.user;
        if (ev.kind == QUIRE_EVENT_DELTA && a->n + ev.n_text < sizeof a->text) {
            memcpy(a->text + a->n, ev.text, ev.n_text);
            a->n += ev.n_text;
        } else if (ev.kind == QUIRE_EVENT_DONE) {
            printf("%s|%s\n", a->prompt, ev.error ? ev.error->message : a->text);
            quire_stream_release(ev.stream);
            n_running--;
        }
    }
    /* the end of the process frees everything */
    return good ? 0 : (fprintf(stderr, "streams: %s\n", err.message), 1);
}
