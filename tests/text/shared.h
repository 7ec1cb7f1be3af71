/* Finds the shared test data: in QUIRE_SHARED, else in ../shared of the repository. */
#ifndef TESTS_TEXT_SHARED_H
#define TESTS_TEXT_SHARED_H

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/str.h"
#include "file/model_file.h"
#include "test.h"
#include "text/tokenizer.h"

static inline void shared_path(char out[1024], const char *relative) {
    const char *root = getenv("QUIRE_SHARED");
    (void)snprintf(out, 1024, "%s/%s", root != NULL ? root : "../shared", relative);
}

/* Reads a file; mem_free frees it. NULL, with a SKIP line: it does not exist. */
static inline char *shared_read(const char *relative, size_t *n) {
    char path[1024];
    shared_path(path, relative);
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        printf("SKIP: %s is not there\n", path);
        return NULL;
    }
    strbuf b = {0};
    char block[65536];
    size_t got;
    while ((got = fread(block, 1, sizeof block, f)) > 0) {
        assert_int_equal(strbuf_add(&b, block, got), QUIRE_OK);
    }
    (void)fclose(f);
    *n = b.n;
    return b.p;
}

/* Opens the tokenizer in a directory, or a tokenizer file of any format. NULL: it does
 * not exist. Fails the test if it cannot be opened. */
static inline tokenizer *shared_tokenizer(const char *relative) {
    char path[1024];
    quire_error err = {0};
    tokenizer *t = NULL;
    size_t n = strlen(relative);
    if (n > 14 && strcmp(relative + n - 14, "tokenizer.json") == 0) {
        char *json = shared_read(relative, &n);
        if (json == NULL) {
            return NULL;
        }
        vocab v = {.source = VOCAB_TOKENIZER_JSON,
                   .tokenizer_json = {json, n},
                   .bos = -1,
                   .eos = -1,
                   .unk = -1,
                   .pad = -1};
        if (tokenizer_open(&v, &t, &err) != QUIRE_OK) {
            fail_msg("%s: %s", relative, err.message);
        }
        mem_free(json);
        return t;
    }
    model_file *f;
    shared_path(path, relative);
    quire_err e = model_file_open_vocabulary(path, &f, &err);
    if (e == QUIRE_NOT_FOUND || e == QUIRE_IO) {
        printf("SKIP: %s\n", err.message);
        return NULL;
    }
    assert_int_equal(e, QUIRE_OK);
    if (tokenizer_open(model_file_vocab(f), &t, &err) != QUIRE_OK) {
        fail_msg("%s: %s", relative, err.message);
    }
    model_file_close(f);
    return t;
}

#endif
