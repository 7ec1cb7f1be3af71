/* Rank files of tiktoken, cut by a pattern of the caller's, since no published set has as
 * many ranks. */
#include "use_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const vocab_special specials[] = {{{"<s>", 3}, 700}};
    use_tokenizer(&(vocab){
        .source = VOCAB_RANKS,
        .model_bytes = {(const char *)data, size},
        .pattern = str_of("'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"),
        .specials = specials,
        .n_specials = 1});
    return 0;
}
