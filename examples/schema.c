/* C API example: generates JSON that obeys a schema, in one blocking call.
 *
 *   cc examples/schema.c $(pkg-config --cflags --libs quire) -o schema
 *   ./schema builtin "A person of the novel, as JSON: " */
#include <stdio.h>
#include <string.h>

#include "quire.h"

static const char schema[] =
    "{\"type\": \"object\", \"required\": [\"name\", \"age\", \"rank\"], \"properties\": {"
    " \"name\": {\"type\": \"string\", \"minLength\": 1, \"maxLength\": 20},"
    " \"age\": {\"type\": \"integer\", \"minimum\": 1, \"maximum\": 99},"
    " \"rank\": {\"enum\": [\"prince\", \"general\", \"servant\"]}}}";

static int failed(const quire_error *err) {
    fprintf(stderr, "schema: %s\n", err->message);
    return 1;
}

static quire_err set_fields(quire_request *r, quire_error *err) {
    quire_err code = quire_request_set(r, "json_schema", schema, err);
    code = code == QUIRE_OK ? quire_request_set(r, "temperature", "0", err) : code;
    return code == QUIRE_OK ? quire_request_set(r, "max_tokens", "200", err) : code;
}

int main(int argc, char **argv) {
    quire_options options;
    quire_engine *engine;
    quire_request *request;
    quire_error err;
    char *text;
    size_t n;
    if (argc != 3) {
        fprintf(stderr, "usage: schema MODEL TEXT\n");
        return 2;
    }
    quire_options_init(&options);
    options.model = argv[1];
    if (quire_engine_open(&options, &engine, &err) != QUIRE_OK) {
        return failed(&err);
    }
    quire_err code = quire_request_text(engine, argv[2], strlen(argv[2]), &request, &err);
    if (code == QUIRE_OK && (code = set_fields(request, &err)) != QUIRE_OK) {
        quire_request_free(request);
    }
    code = code == QUIRE_OK ? quire_generate(engine, request, &text, &n, &err) : code;
    if (code == QUIRE_OK) {
        printf("%s\n", text);
        quire_free(text);
    }
    quire_engine_close(engine);
    return code == QUIRE_OK ? 0 : failed(&err);
}
