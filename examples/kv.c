/* Example of the KV cache without an engine: two questions about one text, and three
 * answers to the second. There is no model: to "compute" a token, it writes a number into
 * the token's slot, and reads slots back to check that reused ones are right.
 *
 *   cc examples/kv.c $(pkg-config --cflags --libs quire) -o kv */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quire_kv.h"

enum { PAGES = 64, PAGE = 16, TEXT = 37, QUESTION = 13, ANSWERS = 3 };

static int64_t memory[PAGES * PAGE]; /* numbers in place of keys and values, one for each slot */

static void must(quire_err e) {
    if (e != QUIRE_OK) {
        fprintf(stderr, "kv: error %d\n", (int)e);
        exit(1);
    }
}

/* Returns the number for the slot of a token, which depends on all tokens up to it. */
static int64_t value_of(const int32_t *tokens, int32_t position) {
    int64_t sum = 0;
    for (int32_t p = 0; p <= position; p++) {
        sum += (int64_t)(p + 1) * tokens[p];
    }
    return sum;
}

/* Executes pending page copies, computes the tokens from `from` on, checks the earlier
 * ones, and publishes all of them, so that other sequences can reuse them. */
static void compute(quire_kv *kv, quire_kv_seq *seq, const int32_t *tokens, int32_t from) {
    const quire_kv_copy *copies;
    int32_t n_copies = quire_kv_copies(kv, &copies), n = quire_kv_seq_length(seq);
    for (int32_t i = 0; i < n_copies; i++) {
        memcpy(&memory[copies[i].to * PAGE], &memory[copies[i].from * PAGE], PAGE * sizeof memory[0]);
    }
    for (int32_t p = 0; p < n; p++) {
        int64_t *slot = &memory[quire_kv_seq_slot(seq, 0, p)];
        if (p >= from) {
            *slot = value_of(tokens, p);
        } else if (*slot != value_of(tokens, p)) {
            fprintf(stderr, "kv: slot of position %d holds something else\n", (int)p);
            exit(1);
        }
    }
    must(quire_kv_seq_commit(seq, n, QUIRE_KV_PAGES_AND_TAIL));
}

static void show(const quire_kv *kv, const char *what) {
    quire_kv_counts c = quire_kv_count(kv);
    printf("%-28s %2d held %2d cached %2d free\n", what, (int)c.n_held, (int)c.n_cached, (int)c.n_free);
}

int main(void) {
    quire_kv_options options;
    quire_kv *kv;
    quire_kv_seq *first, *second, *answers[ANSWERS];
    int32_t tokens[TEXT + QUESTION + ANSWERS], n = TEXT + QUESTION, n_cached;
    quire_kv_options_init(&options);
    options.n_pages = PAGES;
    options.page_tokens = PAGE;
    must(quire_kv_open(&options, &kv));

    for (int32_t p = 0; p < n; p++) {
        tokens[p] = 100 + p;
    }
    must(quire_kv_seq_open(kv, "tenant", 6, tokens, n, &first, &n_cached));
    compute(kv, first, tokens, n_cached);
    printf("first question: %d of %d tokens from the cache\n", (int)n_cached, (int)n);
    show(kv, "while it runs");
    quire_kv_seq_close(first);
    show(kv, "when it has ended");

    for (int32_t p = TEXT; p < n; p++) {
        tokens[p] = 500 + p;
    }
    must(quire_kv_seq_open(kv, "tenant", 6, tokens, n, &second, &n_cached));
    compute(kv, second, tokens, n_cached);
    printf("second question: %d of %d tokens from the cache\n", (int)n_cached, (int)n);
    for (int32_t i = 0; i < ANSWERS; i++) {
        must(quire_kv_seq_fork(second, &answers[i]));
    }
    show(kv, "three answers begun");
    for (int32_t i = 0; i < ANSWERS; i++) {
        tokens[n] = 900 + i;
        must(quire_kv_seq_append(answers[i], &tokens[n], 1));
        compute(kv, answers[i], tokens, n);
    }
    quire_error err;
    must(quire_kv_check(kv, &err));
    show(kv, "each with a token of its own");
    quire_kv_close(kv);
    return 0;
}
