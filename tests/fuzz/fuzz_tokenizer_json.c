/* tokenizer.json, and after a 0 byte tokenizer_config.json. */
#include "use_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data, *end = size > 0 ? memchr(text, 0, size) : NULL;
    size_t n = end != NULL ? (size_t)(end - text) : size;
    vocab v = {.source = VOCAB_TOKENIZER_JSON, .tokenizer_json = {text, n}};
    if (end != NULL) {
        v.tokenizer_config_json = (str){end + 1, size - n - 1};
    }
    use_tokenizer(&v);
    return 0;
}
