/* C API example: computes embeddings of texts and prints how similar they are.
 *
 *   cc examples/embed.c $(pkg-config --cflags --libs quire) -o embed
 *   ./embed builtin last "The prince looked at her" "She looked at the prince" */
#include <stdio.h>
#include <string.h>

#include "quire.h"

enum { MOST = 16 };

static int failed(const quire_error *err) {
    fprintf(stderr, "embed: %s\n", err->message);
    return 1;
}

/* Returns the cosine of two rows: their dot product, since both have length 1. */
static double cosine(const float *a, const float *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (double)a[i] * (double)b[i];
    }
    return sum;
}

int main(int argc, char **argv) {
    quire_options options;
    quire_engine *engine;
    quire_error err;
    quire_input inputs[MOST];
    quire_embed_options how = {NULL, 0, 1}; /* pooling: the model's; all elements; length 1 */
    size_t n = argc > 3 ? (size_t)argc - 3 : 0, n_row;
    float *rows;
    if (n == 0 || n > MOST) {
        fprintf(stderr, "usage: embed MODEL mean|cls|last|'' TEXT..    '': as the model says\n");
        return 2;
    }
    how.pooling = argv[2][0] ? argv[2] : NULL;
    memset(inputs, 0, sizeof inputs);
    for (size_t i = 0; i < n; i++) {
        inputs[i].text = argv[3 + i];
        inputs[i].n_text = strlen(argv[3 + i]);
    }
    quire_options_init(&options);
    options.model = argv[1];
    if (quire_engine_open(&options, &engine, &err) != QUIRE_OK) {
        return failed(&err);
    }
    /* one call for all texts, so that they share the engine's steps */
    bool good = quire_embed(engine, inputs, n, &how, &rows, &n_row, &err) == QUIRE_OK;
    for (size_t i = 0; good && i < n; i++) {
        for (size_t k = 0; k < n; k++) {
            printf("%7.4f", cosine(rows + i * n_row, rows + k * n_row, n_row));
        }
        printf("  %s\n", inputs[i].text);
    }
    quire_free(good ? rows : NULL);
    quire_engine_close(engine);
    return good ? 0 : failed(&err);
}
