/* What requests of the endpoints differ in beside their fields: a row for each. Its
 * reader is a file of its own. */
#include "request/request_read.h"

enum {
    LISTED_BYTES = 32,     /* of a response: a token and its log-probability in a completion's lists */
    CHAT_LISTED_BYTES = 96 /* the same in a chat's, with its bytes */
};

const dialect request_dialects[] = {
    [QUIRE_COMPLETIONS] = {.fields = FIELD_COMPLETIONS,
                           .adds_special = true,
                           .prompt = "prompt",
                           .listed_bytes = LISTED_BYTES,
                           .check = request_check_generation,
                           .required = request_require_prompt,
                           .too_long = request_long_prompt},
    [QUIRE_CHAT] = {.fields = FIELD_CHAT,
                    .is_chat = true,
                    .adds_bos = true,
                    .prompt = "prompt",
                    .listed_bytes = CHAT_LISTED_BYTES,
                    .check = request_check_generation,
                    .required = request_require_chat,
                    .too_long = request_long_chat},
    [QUIRE_EMBEDDINGS] = {.fields = FIELD_EMBEDDINGS,
                          .gives_rows = true,
                          .adds_special = true,
                          .prompt = "input",
                          .check = request_check_embedding,
                          .too_long = request_long_input},
};
