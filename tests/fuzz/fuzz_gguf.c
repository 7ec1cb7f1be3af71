/* GGUF bytes of any kind: refused with a message, or everything the file gives can be
 * read, and its numbers by every architecture. */
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "describe.h"
#include "file/model_file.h"
#include "file/open_file.h"

static void read_tensors(const model_file *f, fuzz_sum *sum) {
    for (int32_t i = 0; i < model_file_n_tensors(f); i++) {
        const tensor_view *t = model_file_tensor(f, i);
        fuzz_read(sum, t->data, t->n_bytes);
        fuzz_check(model_file_find(f, t->name) == t);
    }
}

static void read_metadata(const model_file *f, fuzz_sum *sum) {
    str text;
    char name[128];
    int64_t ints[4];
    float number;
    size_t n;
    bool flag;
    for (int32_t i = 0; i < f->gguf.n_keys; i++) {
        str key = f->gguf.keys[i].name;
        snprintf(name, sizeof name, "%.*s", (int)(key.n < 100 ? key.n : 100), key.p);
        *sum += (fuzz_sum)model_file_i64s(f, name, ints, 4, &n) + (fuzz_sum)model_file_f32(f, name, &number);
        *sum +=
            (fuzz_sum)model_file_bool(f, name, &flag) + (fuzz_sum)model_file_str_at(f, name, 1, &text, &n);
    }
}

static void read_vocab(const vocab *v, fuzz_sum *sum) {
    for (int32_t i = 0; i < v->n_tokens; i++) {
        fuzz_read(sum, v->tokens[i].p, v->tokens[i].n);
        *sum += v->types != NULL ? (fuzz_sum)v->types[i] : 0;
        *sum += v->scores != NULL && v->scores[i] > 0;
    }
    for (int32_t i = 0; i < v->n_merges; i++) {
        fuzz_read(sum, v->merges[i].p, v->merges[i].n);
    }
}

/* As if the file were of each architecture in turn; the keys keep the prefix that it
 * names. */
static void read_numbers(const model_file *f, fuzz_sum *sum) {
    char prefix[64] = "llama";
    int n_rows;
    str name;
    if (model_file_str(f, "general.architecture", &name) == QUIRE_OK && name.n < sizeof prefix) {
        snprintf(prefix, sizeof prefix, "%.*s", (int)name.n, name.p);
    }
    *sum += (fuzz_sum)describe_by_every_row(f, prefix, &n_rows);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    model_file *f = NULL;
    quire_error err = {0};
    fuzz_sum sum = 0;
    log_set_level(LOG_ERROR);
    gguf keys = {0};
    bool has_keys = gguf_parse(&keys, data, size, "fuzz", 0, NULL, &err) == QUIRE_OK;
    fuzz_check(has_keys || err.message[0] != 0);
    gguf_deinit(&keys);
    err = (quire_error){0};
    if (model_file_open_memory(data, size, "fuzz", &f, &err) != QUIRE_OK) {
        fuzz_check(err.message[0] != 0 && f == NULL);
        return 0;
    }
    fuzz_check(has_keys);
    read_tensors(f, &sum);
    read_metadata(f, &sum);
    read_numbers(f, &sum);
    read_vocab(model_file_vocab(f), &sum);
    str t = model_file_chat_template(f);
    fuzz_read(&sum, t.p, t.n);
    model_file_close(f);
    fuzz_keep(sum);
    return 0;
}
