/* The one table of request fields. Validation, error texts, documentation and the C API's
 * set-by-name use it.
 *
 * The table names every field of the OpenAI endpoints and vLLM's extensions: its type,
 * range, default, and where its value goes. A field that is not implemented has the flag
 * FIELD_LATER: it is refused with 400 unless its value is the default (null always is). A
 * member that is not in the table is left to request_foreign.h. A field that differs
 * between the endpoints has a row for each. */
#ifndef REQUEST_REQUEST_FIELD_H
#define REQUEST_REQUEST_FIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quire.h"
#include "json/json.h"

typedef enum field_type {
    FIELD_BOOL,
    FIELD_INT,
    FIELD_NUMBER,
    FIELD_STRING,
    FIELD_STRINGS /* one or an array */,
    FIELD_INTS,
    FIELD_OBJECT,
    FIELD_ARRAY,
    FIELD_PROMPT,
    FIELD_MESSAGES,
    FIELD_ANY
} field_type;

enum {
    FIELD_COMPLETIONS = 1,
    FIELD_CHAT = 2,
    FIELD_BOTH = FIELD_COMPLETIONS | FIELD_CHAT,
    FIELD_LATER = 4,     /* not implemented: only the default is accepted */
    FIELD_IGNORED = 8,   /* accepted without effect (user, metadata) */
    FIELD_MIN_OPEN = 16, /* minimum is excluded */
    FIELD_UNNAMED = 32,  /* an error about the value's range carries no param, as in vLLM's responses */
    FIELD_SAMPLING = 64, /* affects sampling only: a running choice can change it */
    FIELD_EMBEDDINGS = 128,
    FIELD_ALL = FIELD_BOTH | FIELD_EMBEDDINGS,
    FIELD_CUT = 256,  /* FIELD_INT: a value over the maximum counts as the maximum */
    FIELD_PART = 512, /* part of a dialect's conversation: kept as given for dialect.assemble */
    FIELD_RESPONSES = 1 << 10,
    FIELD_MESSAGES_API = 1 << 11,
    FIELD_OLLAMA_CHAT = 1 << 12,
    FIELD_OLLAMA_GENERATE = 1 << 13,
    FIELD_LLAMA = 1 << 14, /* llama.cpp's completions */
    FIELD_TOKENIZE = 1 << 15,
    FIELD_CONTENT = 1 << 16, /* llama.cpp's form of tokenize */
    FIELD_DETOKENIZE = 1 << 17,
    FIELD_EMBEDDING = 1 << 18, /* llama.cpp's form of embeddings */
    FIELD_SCORE = 1 << 19,
    FIELD_RERANK = 1 << 20,
    FIELD_CHAT_BATCH = 1 << 21,
    FIELD_INFILL = 1 << 22, /* the gap of llama.cpp's infill, which has the fields of FIELD_LLAMA too */
    FIELD_OLLAMA_EMBED = 1 << 23,
    FIELD_OLLAMA_EMBEDDINGS = 1 << 24,
    FIELD_SGLANG = 1 << 25, /* SGLang's own generation */
    FIELD_SGLANG_ENCODE = 1 << 26,
    FIELD_OLLAMA_ROWS = FIELD_OLLAMA_EMBED | FIELD_OLLAMA_EMBEDDINGS,
    FIELD_DEFAULTED = 1 << 28, /* of a chat: an engine may have another default (request_defaults) */
    FIELD_REQUIRED = 1 << 29,  /* a body without it is refused */
    FIELD_SCORES = FIELD_SCORE | FIELD_RERANK,
    /* every endpoint's */
    FIELD_ENDPOINTS = FIELD_ALL | FIELD_RESPONSES | FIELD_MESSAGES_API | FIELD_OLLAMA_CHAT |
                      FIELD_OLLAMA_GENERATE | FIELD_OLLAMA_ROWS | FIELD_LLAMA | FIELD_TOKENIZE |
                      FIELD_CONTENT | FIELD_DETOKENIZE | FIELD_EMBEDDING | FIELD_SCORES | FIELD_CHAT_BATCH |
                      FIELD_INFILL | FIELD_SGLANG | FIELD_SGLANG_ENCODE
};

#define FIELD_NO_LIMIT 1e300 /* a minimum of -FIELD_NO_LIMIT or a maximum of FIELD_NO_LIMIT is not a bound */

struct field_desc;
/* Stores v, checked by type and range (NULL: null without a default), in r, which is
 * unchanged on failure. */
typedef quire_err field_reader(quire_request *r, const struct field_desc *f, const json_value *v,
                               quire_error *err);

typedef struct field_desc {
    const char *name; /* "stream_options.include_usage" is a member of the object field before the dot */
    field_type type;
    uint32_t flags;
    /* Range: for FIELD_INT, FIELD_NUMBER and each of FIELD_INTS of the value,
     * inclusive unless FIELD_MIN_OPEN; for other types of the bytes of its JSON, as
     * json_check counts them (max_bytes), so that a larger value is refused before
     * anything is built. */
    double minimum, maximum;
    size_t place;         /* in the request: a bool, int32_t or float, by type; where there is no reader */
    field_reader *read;   /* stores the value, or the default for NULL; NULL: by place */
    double number;        /* default of a value stored by place; -1: null means none */
    const char *fallback; /* the default of a field without effect, as JSON text */
    const char *choices;  /* the values that it may have, a JSON array; NULL: any of its type and range */
    const char *meaning;  /* one line, for documents */
} field_desc;

/* All fields, sorted by name; *n their number. */
const field_desc *request_fields(int32_t *n);
/* The field of that name on an endpoint, which has one or more of the flags of
 * FIELD_ENDPOINTS, or NULL. */
const field_desc *request_field(const char *name, uint32_t endpoint);
/* The most bytes of a field's JSON; 0: only the body's bound. */
size_t request_field_max_bytes(const field_desc *f);

/* The param of errors about a rule that field f names; "" where the object has members
 * beside the rule, as in vLLM's responses. */
const char *request_rule_param(const field_desc *f);

/* Parses the value in text, which is checked like a body without rows; NULL for null. at:
 * offset of text in the body. name: the field whose value it is, for errors of a single
 * value, or NULL. */
quire_err request_read_value(str text, size_t at, const char *name, json_value **out, quire_error *err);

#endif
