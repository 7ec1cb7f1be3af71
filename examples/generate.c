/* C API example: prints a model's continuation of a text while it is generated.
 *
 *   cc examples/generate.c $(pkg-config --cflags --libs quire) -o generate
 *   ./generate builtin "The prince" 20 */
#include <stdio.h>
#include <string.h>

#include "quire.h"

static int failed(const quire_error *err) {
    fprintf(stderr, "generate: %s\n", err->message);
    return 1;
}

/* Prints the text of events until the stream is done. */
static int print_answer(quire_queue *q) {
    for (;;) {
        quire_event ev;
        if (!quire_queue_next(q, &ev)) {
            quire_queue_wait(q, -1);
        } else if (ev.kind == QUIRE_EVENT_DELTA) {
            fwrite(ev.text, 1, ev.n_text, stdout);
            fflush(stdout);
        } else if (ev.kind == QUIRE_EVENT_DONE) {
            int status = ev.error ? failed(ev.error) : 0;
            putchar('\n');
            quire_stream_release(ev.stream);
            return status;
        }
    }
}

int main(int argc, char **argv) {
    quire_options options;
    quire_engine *engine;
    quire_queue *q;
    quire_request *request;
    quire_stream *stream;
    quire_error err;
    int status = 1;
    if (argc != 4) {
        fprintf(stderr, "usage: generate MODEL TEXT TOKENS\n");
        return 2;
    }
    quire_options_init(&options);
    options.model = argv[1];
    if (quire_engine_open(&options, &engine, &err) != QUIRE_OK) {
        return failed(&err);
    }
    if (quire_queue_open(engine, &q) == QUIRE_OK) {
        bool good = quire_request_text(engine, argv[2], strlen(argv[2]), &request, &err) == QUIRE_OK &&
                    quire_request_set(request, "max_tokens", argv[3], &err) == QUIRE_OK &&
                    quire_request_set(request, "temperature", "0", &err) == QUIRE_OK &&
                    quire_submit(q, request, NULL, &stream, &err) == QUIRE_OK;
        status = good ? print_answer(q) : failed(&err);
        quire_queue_close(q);
    }
    quire_engine_close(engine);
    return status;
}
