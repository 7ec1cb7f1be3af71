/* The C API, by example: a model goes on from a text, and what it says is printed as it comes.
 *
 *   cc examples/complete.c $(pkg-config --cflags --libs quire) -o complete
 *   ./complete builtin "The prince" 20 */
#include <stdio.h>
#include <stdlib.h>
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

/* One request, as a body of OpenAI's API. The text goes into it as it is: it must hold nothing that JSON escapes. */
static int complete(quire_engine *engine, quire_queue *q, const char *text, int n_tokens) {
    char body[1024];
    quire_error err;
    quire_request *request;
    quire_stream *stream;
    snprintf(body, sizeof body, "{\"prompt\": \"%s\", \"max_tokens\": %d, \"temperature\": 0}", text, n_tokens);
    if (quire_request_parse(engine, QUIRE_COMPLETIONS, body, strlen(body), &request, &err) != QUIRE_OK ||
        quire_submit(q, request, NULL, &stream, &err) != QUIRE_OK) {
        return failed(&err);
    }
    return print_answer(q);
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
        status = complete(engine, q, argv[2], atoi(argv[3]));
        quire_queue_close(q);
    }
    quire_engine_close(engine);
    return status;
}
