/* Packed models of any content, with digests that fit: refused with a message, or
 * everything the file gives can be read, and its tokenizer's tables be searched. */
#include <stddef.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "file/packed.h"
#include "fuzz.h"
#include "text/tokenizer.h"

static void sign(uint8_t *bytes, size_t n) {
    packed_header h;
    memcpy(&h, bytes, sizeof h);
    memcpy(h.magic, PACKED_MAGIC, sizeof h.magic);
    h.version = PACKED_VERSION;
    h.file_bytes = n;
    if (h.directory_at <= n && h.directory_bytes <= n - h.directory_at) {
        sha256(bytes + h.directory_at, (size_t)h.directory_bytes, h.directory_digest);
    }
    sha256(&h, offsetof(packed_header, header_digest), h.header_digest);
    memcpy(bytes, &h, sizeof h);
}

static void use_tokenizer(const vocab *v, fuzz_sum *sum) {
    static const char text[] = "the quick <s> \xC3\xA9\xE2\x96\x81 12 \xFF";
    tokenizer *t;
    quire_error err = {0};
    token_list ids = {0};
    strbuf out = {0};
    if (tokenizer_open(v, &t, &err) != QUIRE_OK) {
        fuzz_check(err.message[0] != 0);
        return;
    }
    *sum += (fuzz_sum)tokenizer_encode(t, (str){text, sizeof text - 1},
                                       (encode_options){.special = ENCODE_PARSE, .add_special = true}, &ids,
                                       &err);
    *sum += (fuzz_sum)tokenizer_decode(t, ids.ids, ids.n, false, &out) + out.n;
    token_list_deinit(&ids);
    strbuf_deinit(&out);
    tokenizer_close(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    model_file *f = NULL;
    quire_error err = {0};
    fuzz_sum sum = 0;
    if (size < sizeof(packed_header)) {
        return 0;
    }
    log_set_level(LOG_ERROR);
    uint8_t *bytes = mem_new(size, 1); /* tables and weights lie at multiples of 64 */
    memcpy(bytes, data, size);
    sign(bytes, size);
    if (model_file_open_memory(bytes, size, "fuzz", &f, &err) == QUIRE_OK) {
        for (int32_t i = 0; i < model_file_n_tensors(f); i++) {
            const tensor_view *t = model_file_tensor(f, i);
            fuzz_read(&sum, t->data, t->n_bytes);
            fuzz_check(model_file_find(f, t->name) == t);
        }
        use_tokenizer(model_file_vocab(f), &sum);
        model_file_close(f);
    } else {
        fuzz_check(err.message[0] != 0 && f == NULL);
    }
    mem_free(bytes);
    fuzz_keep(sum);
    return 0;
}
