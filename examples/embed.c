/* The C API, by example: computes embeddings of texts and prints how similar they are.
 *
 *   cc examples/embed.c $(pkg-config --cflags --libs quire) -o embed
 *   ./embed builtin last "The prince looked at her" "She looked at the prince" "A
 *   table" */
#include <stdio.h>
#include <string.h>

#include "quire.h"

#define MOST 16

static int failed(const quire_error *err) {
    fprintf(stderr, "embed: %s\n", err->message);
    return 1;
}

/* Rows have the length 1, so their product is the cosine of the angle between them. */
static double cosine(const float *a, const float *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (double)a[i] * (double)b[i];
    }
    return sum;
}

/* One call for all texts: they share the engine's steps. */
static int compare(quire_engine *engine, const char *pooling, char **texts, size_t n) {
    quire_input inputs[MOST] = {0};
    quire_embed_options options = {.pooling = pooling[0] != '\0' ? pooling : NULL, .normalize = 1};
    quire_error err;
    float *rows;
    size_t n_row;
    for (size_t i = 0; i < n; i++) {
        inputs[i] = (quire_input){.text = texts[i], .n_text = strlen(texts[i])};
    }
    if (quire_embed(engine, inputs, n, &options, &rows, &n_row, &err) != QUIRE_OK) {
        return failed(&err);
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < n; k++) {
            printf("%7.4f", cosine(rows + i * n_row, rows + k * n_row, n_row));
        }
        printf("  %s\n", texts[i]);
    }
    quire_free(rows);
    return 0;
}

int main(int argc, char **argv) {
    quire_options options;
    quire_engine *engine;
    quire_error err;
    if (argc < 4 || argc > 3 + MOST) {
        fprintf(stderr, "usage: embed MODEL mean|cls|last|'' TEXT..    '': as the model says\n");
        return 2;
    }
    quire_options_init(&options);
    options.model = argv[1];
    options.n_pages = 128;
    if (quire_engine_open(&options, &engine, &err) != QUIRE_OK) {
        return failed(&err);
    }
    int status = compare(engine, argv[2], argv + 3, (size_t)(argc - 3));
    quire_engine_close(engine);
    return status;
}
