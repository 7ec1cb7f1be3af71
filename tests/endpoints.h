/* What every endpoint of the public enum is, for the tests of the two tables by it: the
 * dialects of src/request and the response writers of src/server. */
#ifndef TESTS_ENDPOINTS_H
#define TESTS_ENDPOINTS_H

#include "quire.h"

typedef struct endpoint_facts {
    const char *path; /* NULL: past the last endpoint */
    bool gives_text;  /* its dialect gives tokens, and the server has a route and a writer for it */
} endpoint_facts;

/* The compiler names an endpoint that is missing here. */
static inline endpoint_facts endpoint_facts_of(quire_endpoint e) {
    switch (e) {
    case QUIRE_COMPLETIONS:
        return (endpoint_facts){"/v1/completions", true};
    case QUIRE_CHAT:
        return (endpoint_facts){"/v1/chat/completions", true};
    case QUIRE_MESSAGES:
        return (endpoint_facts){"/v1/messages", true};
    case QUIRE_EMBEDDINGS:
        return (endpoint_facts){"/v1/embeddings", false};
    case QUIRE_OLLAMA_CHAT:
        return (endpoint_facts){"/api/chat", true};
    case QUIRE_OLLAMA_GENERATE:
    case QUIRE_OLLAMA_RAW:
        return (endpoint_facts){"/api/generate", true};
    case QUIRE_RESPONSES:
        return (endpoint_facts){"/v1/responses", true};
    }
    return (endpoint_facts){NULL, false};
}

#endif
