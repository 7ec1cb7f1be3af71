/* C API example: a chat in which the model may call a tool. Prints the model's reasoning,
 * calls and answer as they are generated.
 *
 *   cc examples/chat_tools.c $(pkg-config --cflags --libs quire) -o chat_tools
 *   ./chat_tools builtin required hermes   hermes: the format of tool calls */
#include <stdio.h>
#include <string.h>

#include "quire.h"

static const char body[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"What is the weather in Rome?\"}],"
    " \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"parameters\": {"
    " \"type\": \"object\", \"properties\": {\"city\": {\"enum\": [\"Rome\", \"Paris\"]}},"
    " \"required\": [\"city\"]}}}], \"parallel_tool_calls\": false, \"temperature\": 0, \"max_tokens\": 100}";

static int failed(const quire_error *err) {
    fprintf(stderr, "chat_tools: %s\n", err->message);
    return 1;
}

/* Texts to print before and after a part, by its quire_part_kind. */
static const char *const before[] = {"", "", "call ", "", "\n"}, *const after[] = {"", "", " with ", "", ""};

int main(int argc, char **argv) {
    quire_options options;
    quire_engine *engine;
    quire_queue *q;
    quire_request *request;
    quire_stream *stream;
    quire_event ev;
    quire_error err;
    char choice[40];
    snprintf(choice, sizeof choice, "\"%s\"", argc > 2 ? argv[2] : "auto");
    quire_options_init(&options);
    options.model = argc > 1 ? argv[1] : "builtin";
    options.tool_call_parser = argc > 3 ? argv[3] : options.tool_call_parser;
    if (quire_engine_open(&options, &engine, &err) != QUIRE_OK || quire_queue_open(engine, &q) != QUIRE_OK) {
        return failed(&err);
    }
    if (quire_request_parse(engine, QUIRE_CHAT, body, strlen(body), &request, &err) != QUIRE_OK ||
        quire_request_set(request, "tool_choice", choice, &err) != QUIRE_OK ||
        quire_submit(q, request, NULL, &stream, &err) != QUIRE_OK) {
        return failed(&err); /* the end of the process frees everything */
    }
    do {
        while (!quire_queue_next(q, &ev)) {
            quire_queue_wait(q, -1);
        }
        for (int i = 0; i < ev.n_parts; i++) {
            const quire_part *p = &ev.parts[i];
            printf("%s%.*s%s", before[p->kind], (int)p->n_text, p->text, after[p->kind]);
        }
    } while (ev.kind != QUIRE_EVENT_DONE);
    int status = ev.error ? failed(ev.error) : 0;
    quire_stream_release(ev.stream);
    quire_queue_close(q);
    quire_engine_close(engine);
    return status;
}
