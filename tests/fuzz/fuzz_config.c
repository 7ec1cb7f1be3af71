/* JSON files of any kind (config.json, an index): refused with a message, or read at several paths. */
#include "file/json_doc.h"
#include "fuzz.h"

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
    static const char *const paths[] = {"a", "eos_token_id", "rope_scaling.factor", "limits", "architectures", "weight_map.b", "a.b.c"};
    json_doc doc = {0};
    quire_error err = {0};
    fuzz_sum sum = 0;
    if (json_doc_parse(&doc, (str){(const char *)data, size}, size % 2 == 0 ? JSON_NAMES_UNIQUE : JSON_NAMES_LAST, "fuzz", &err) !=
        QUIRE_OK) {
        fuzz_check(err.message[0] != 0 && doc.root == NULL);
        return 0;
    }
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        read_path(&doc, paths[i], &sum);
    }
    json_doc_deinit(&doc);
    fuzz_keep(sum);
    return 0;
}
