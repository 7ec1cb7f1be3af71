/* SentencePiece's .model files. */
#include "use_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    use_tokenizer(&(vocab){.source = VOCAB_SENTENCEPIECE, .model_bytes = {(const char *)data, size}});
    return 0;
}
