/* The table of request fields. It drives validation, error messages, documentation and
 * quire_request_set.
 *
 * It lists every field of the OpenAI endpoints, vLLM's extensions and the other dialects:
 * type, range, default and where the value is stored. A field with FIELD_LATER is not
 * implemented: any value but the default or null gets a 400. request_foreign.h handles
 * members that are not in the table. A field that differs between endpoints has several
 * rows. */
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
    FIELD_STRINGS /* a string or an array of them */,
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
    FIELD_IGNORED = 8,   /* accepted and ignored (user, metadata) */
    FIELD_MIN_OPEN = 16, /* the minimum itself is not allowed */
    FIELD_UNNAMED = 32,  /* range errors have no param, as in vLLM */
    FIELD_SAMPLING = 64, /* affects only sampling, so it can be changed while a choice runs */
    FIELD_EMBEDDINGS = 128,
    FIELD_ALL = FIELD_BOTH | FIELD_EMBEDDINGS,
    FIELD_CUT = 256,  /* FIELD_INT: values over the maximum are reduced to it */
    FIELD_PART = 512, /* part of a dialect's conversation, kept as given for dialect.assemble */
    FIELD_RESPONSES = 1 << 10,
    FIELD_MESSAGES_API = 1 << 11,
    FIELD_OLLAMA_CHAT = 1 << 12,
    FIELD_OLLAMA_GENERATE = 1 << 13,
    FIELD_LLAMA = 1 << 14, /* llama.cpp's completions */
    FIELD_TOKENIZE = 1 << 15,
    FIELD_CONTENT = 1 << 16, /* llama.cpp's tokenize */
    FIELD_DETOKENIZE = 1 << 17,
    FIELD_EMBEDDING = 1 << 18, /* llama.cpp's embeddings */
    FIELD_SCORE = 1 << 19,
    FIELD_RERANK = 1 << 20,
    FIELD_CHAT_BATCH = 1 << 21,
    FIELD_INFILL = 1 << 22, /* llama.cpp's infill, in addition to FIELD_LLAMA */
    FIELD_OLLAMA_EMBED = 1 << 23,
    FIELD_OLLAMA_EMBEDDINGS = 1 << 24,
    FIELD_SGLANG = 1 << 25, /* SGLang's /generate */
    FIELD_SGLANG_ENCODE = 1 << 26,
    FIELD_OLLAMA_ROWS = FIELD_OLLAMA_EMBED | FIELD_OLLAMA_EMBEDDINGS,
    FIELD_DEFAULTED = 1 << 28, /* chats: an engine can override its default (request_defaults) */
    FIELD_REQUIRED = 1 << 29,  /* a body without it is refused */
    FIELD_SCORES = FIELD_SCORE | FIELD_RERANK,
    /* all endpoints */
    FIELD_ENDPOINTS = FIELD_ALL | FIELD_RESPONSES | FIELD_MESSAGES_API | FIELD_OLLAMA_CHAT |
                      FIELD_OLLAMA_GENERATE | FIELD_OLLAMA_ROWS | FIELD_LLAMA | FIELD_TOKENIZE |
                      FIELD_CONTENT | FIELD_DETOKENIZE | FIELD_EMBEDDING | FIELD_SCORES | FIELD_CHAT_BATCH |
                      FIELD_INFILL | FIELD_SGLANG | FIELD_SGLANG_ENCODE
};

#define FIELD_NO_LIMIT 1e300 /* a minimum of -FIELD_NO_LIMIT or a maximum of FIELD_NO_LIMIT is no limit */

struct field_desc;
/* Stores v, whose type and range are checked (NULL: a null without a default). On failure
 * r is unchanged. */
typedef quire_err field_reader(quire_request *r, const struct field_desc *f, const json_value *v,
                               quire_error *err);

typedef struct field_desc {
    const char *name; /* "stream_options.include_usage" is member include_usage of stream_options */
    field_type type;
    uint32_t flags;
    /* FIELD_INT, FIELD_NUMBER, FIELD_INTS: range of each value, inclusive unless
     * FIELD_MIN_OPEN. Other types: range of the JSON's length in bytes, as json_check
     * counts them (max_bytes), enforced before anything is built. */
    double minimum, maximum;
    size_t place; /* offset in quire_request of a bool, int32_t or float, by type; unused with a reader */
    field_reader *read;   /* stores the value, or the default for NULL; NULL: stored at `place` */
    double number;        /* default of a value stored at `place`; -1: null means none */
    const char *fallback; /* default of an ignored field, as JSON text */
    const char *choices;  /* JSON array of allowed values; NULL: all of its type and range */
    const char *meaning;  /* one line of documentation */
} field_desc;

/* All *n fields, sorted by name. */
const field_desc *request_fields(int32_t *n);
/* The field of this name on an endpoint, given as flags of FIELD_ENDPOINTS; NULL:
 * none. */
const field_desc *request_field(const char *name, uint32_t endpoint);
/* Most bytes of a field's JSON; 0: limited by the body only. */
size_t request_field_max_bytes(const field_desc *f);

/* The param of errors about the rule in field f. "" if f is an object with further
 * members, as in vLLM. */
const char *request_rule_param(const field_desc *f);

/* Parses the JSON value in text, checked like a body but without per-field limits; NULL
 * for null. at: offset of text in the body. name: the field, for errors about a single
 * value, or NULL. */
quire_err request_read_value(str text, size_t at, const char *name, json_value **out, quire_error *err);

#endif
