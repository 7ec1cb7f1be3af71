/* JSON files of any kind (config.json, an index): refused with a message, or read at
 * several paths; and as the config.json of every architecture. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "describe.h"
#include "file/json_doc.h"

static char dir[] = "/tmp/quire-fuzz-XXXXXX";

static const char *file_of(const char *name) {
    static char path[64];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void write_file(const char *name, const void *bytes, size_t n) {
    FILE *f = fopen(file_of(name), "wb");
    fuzz_check(f != NULL && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

static void remove_directory(void) {
    (void)unlink(file_of("config.json"));
    (void)unlink(file_of("model.safetensors"));
    (void)rmdir(dir);
}

/* A directory with tensors, made once. */
static void make_directory(void) {
    static const char header[] = DESCRIBE_TENSORS;
    char file[8 + sizeof header - 1 + DESCRIBE_BYTES] = {0};
    static bool is_made;
    if (!is_made) {
        uint64_t n = sizeof header - 1;
        memcpy(file, &n, sizeof n);
        memcpy(file + 8, header, sizeof header - 1);
        fuzz_check(mkdtemp(dir) != NULL && atexit(remove_directory) == 0);
        write_file("model.safetensors", file, sizeof file);
        is_made = true;
    }
}

static void read_numbers(const uint8_t *data, size_t size, fuzz_sum *sum) {
    model_file *f;
    int n_rows;
    quire_error err = {0};
    make_directory();
    write_file("config.json", data, size);
    if (model_file_open(dir, &f, &err) != QUIRE_OK) {
        fuzz_check(err.message[0] != 0);
        return;
    }
    *sum += (fuzz_sum)describe_by_every_row(f, "", &n_rows);
    model_file_close(f);
}

static void read_path(const json_doc *doc, const char *path, fuzz_sum *sum) {
    json_value *v = json_doc_find(doc, path);
    meta_value m = json_doc_meta(v);
    *sum += (fuzz_sum)m.kind + (fuzz_sum)m.i;
    if (m.kind == META_STR) {
        fuzz_read(sum, m.s.p, m.s.n);
    }
    for (size_t i = 0; m.kind == META_ARRAY && i < m.n && i < 100; i++) {
        *sum += (fuzz_sum)json_doc_item(v, i).kind;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const paths[] = {
        "a", "eos_token_id", "rope_scaling.factor", "limits", "architectures", "weight_map.b", "a.b.c"};
    json_doc doc = {0};
    quire_error err = {0};
    fuzz_sum sum = 0;
    if (json_doc_parse(&doc, (str){(const char *)data, size},
                       size % 2 == 0 ? JSON_NAMES_UNIQUE : JSON_NAMES_LAST, "fuzz", &err) != QUIRE_OK) {
        fuzz_check(err.message[0] != 0 && doc.root == NULL);
        return 0;
    }
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        read_path(&doc, paths[i], &sum);
    }
    json_doc_deinit(&doc);
    read_numbers(data, size, &sum);
    fuzz_keep(sum);
    return 0;
}
