/* A Python literal that arrives byte by byte, written as JSON: strings with either
 * quotes are decoded and written anew, parentheses are lists, and json_stream.h checks
 * the rest. */
#ifndef ANSWER_PYTHON_LITERAL_H
#define ANSWER_PYTHON_LITERAL_H

#include "answer/json_stream.h"

/* Zero-initialised: before a value. */
typedef struct python_literal {
    json_stream json;
    uint8_t state;
    char quote;
    uint8_t n_quotes;
    bool is_triple;
    unescape escape;
} python_literal;

/* As json_stream_push. */
quire_err python_literal_push(python_literal *p, char c, strbuf *out, json_stream_result *result);
/* As json_stream_close. */
quire_err python_literal_close(python_literal *p, strbuf *out);

#endif
