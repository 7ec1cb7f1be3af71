/* The C API, by example: prints a model's continuation of a text while it is generated.
 *
 *   cc examples/complete.c $(pkg-config --cflags --libs quire) -o complete
 *   ./complete builtin "The prince" 20 */
#include <stdio.h>
#include <string.h>

#include "quire.h"

static int failed(const quire_error *err) {
    fprintf(stderr, "complete: %s\n", err->message);
    return 1;
}

/* Prints events until the last. */
static int print_answer(quire_queue *q) {
    for (;;) {
        quire_event ev;
        if (!quire_queue_next(q, &ev)) {
            quire_queue_wait(q, -1);
            continue;
        }
        if ((ev.kind == QUIRE_EVENT_DELTA || ev.kind == QUIRE_EVENT_END) && ev.n_text > 0) {
            fwrite(ev.text, 1, ev.n_text, stdout);
            fflush(stdout);
        }
        if (ev.kind == QUIRE_EVENT_DONE) {
            int status = ev.error ? failed(ev.error) : 0;
            putchar('\n');
            quire_stream_release(ev.stream);
            return status;
        }
    }
}

static int complete(quire_engine *engine, quire_queue *q, const char *text, const char *n_tokens) {
    quire_error err;
    quire_request *request;
    quire_stream *stream;
    if (quire_request_text(engine, text, strlen(text), &request, &err) != QUIRE_OK) {
        return failed(&err);
    }
    if (quire_request_set(request, "max_tokens", n_tokens, &err) != QUIRE_OK ||
        quire_request_set(request, "temperature", "0", &err) != QUIRE_OK) {
        quire_request_free(request);
        return failed(&err);
    }
    return quire_submit(q, request, NULL, &stream, &err) == QUIRE_OK ? print_answer(q) : failed(&err);
}

int main(int argc, char **argv) {
    quire_options options;
    quire_engine *engine;
    quire_queue *q;
    quire_error err;
    if (argc != 4) {
        fprintf(stderr, "usage: complete MODEL TEXT TOKENS\n");
        return 2;
    }
    quire_options_init(&options);
    options.model = argv[1];
    options.n_pages = 128;
    if (quire_engine_open(&options, &engine, &err) != QUIRE_OK) {
        return failed(&err);
    }
    int status = 1;
    if (quire_queue_open(engine, &q) == QUIRE_OK) {
        status = complete(engine, q, argv[2], argv[3]);
        quire_queue_close(q);
    }
    quire_engine_close(engine);
    return status;
}
