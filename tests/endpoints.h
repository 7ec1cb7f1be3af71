/* Properties of every quire_endpoint, to test the two tables indexed by it: the dialects
 * of src/request and the response writers of src/server. */
#ifndef TESTS_ENDPOINTS_H
#define TESTS_ENDPOINTS_H

#include "quire.h"

typedef struct endpoint_facts {
    const char *path; /* URL path; NULL: not an endpoint */
    bool gives_text;  /* returns tokens; the server has a route and a writer for it */
    bool gives_rows;  /* returns rows (embeddings, scores); has a route and a writer too */
    bool prompt_only; /* handles prompts without generating; has a route and a writer too */
    bool is_form;     /* shares the fields of an earlier endpoint */
} endpoint_facts;

/* Returns an endpoint's properties. The compiler warns about an endpoint missing here. */
static inline endpoint_facts endpoint_facts_of(quire_endpoint e) {
    switch (e) {
    case QUIRE_COMPLETIONS:
        return (endpoint_facts){"/v1/completions", .gives_text = true};
    case QUIRE_CHAT:
        return (endpoint_facts){"/v1/chat/completions", .gives_text = true};
    case QUIRE_EMBEDDINGS:
        return (endpoint_facts){"/v1/embeddings", .gives_rows = true};
    case QUIRE_OLLAMA_CHAT:
        return (endpoint_facts){"/api/chat", .gives_text = true};
    case QUIRE_OLLAMA_GENERATE:
    case QUIRE_OLLAMA_RAW:
        return (endpoint_facts){"/api/generate", .gives_text = true};
    case QUIRE_POOLING:
        return (endpoint_facts){"/pooling", .gives_rows = true, .is_form = true};
    case QUIRE_EMBEDDING:
        return (endpoint_facts){"/embedding", .gives_rows = true, .is_form = true};
    case QUIRE_SCORE:
        return (endpoint_facts){"/score", .gives_rows = true};
    case QUIRE_RERANK:
        return (endpoint_facts){"/rerank", .gives_rows = true};
    case QUIRE_RERANKING:
        return (endpoint_facts){"/reranking", .gives_rows = true, .is_form = true};
    case QUIRE_COMPLETIONS_RENDER:
        return (endpoint_facts){"/v1/completions/render", .prompt_only = true, .is_form = true};
    case QUIRE_CHAT_BATCH:
        return (endpoint_facts){"/v1/chat/completions/batch", .gives_text = true, .is_form = true};
    case QUIRE_CHAT_RENDER:
        return (endpoint_facts){"/v1/chat/completions/render", .prompt_only = true, .is_form = true};
    case QUIRE_TOKENIZE:
        return (endpoint_facts){"/tokenize", .prompt_only = true};
    case QUIRE_TOKENIZE_CHAT:
    case QUIRE_TOKENIZE_CONTENT:
        return (endpoint_facts){"/tokenize", .prompt_only = true, .is_form = true};
    case QUIRE_DETOKENIZE:
        return (endpoint_facts){"/detokenize", .prompt_only = true};
    case QUIRE_APPLY_TEMPLATE:
        return (endpoint_facts){"/apply-template", .prompt_only = true, .is_form = true};
    case QUIRE_LLAMA_COMPLETION:
        return (endpoint_facts){"/completion", .gives_text = true};
    case QUIRE_LLAMA_INFILL:
        return (endpoint_facts){"/infill", .gives_text = true, .is_form = true};
    case QUIRE_OLLAMA_EMBED:
        return (endpoint_facts){"/api/embed", .gives_rows = true};
    case QUIRE_OLLAMA_EMBEDDINGS:
        return (endpoint_facts){"/api/embeddings", .gives_rows = true};
    case QUIRE_SGLANG_GENERATE:
        return (endpoint_facts){"/generate", .gives_text = true};
    case QUIRE_SGLANG_ENCODE:
        return (endpoint_facts){"/encode", .gives_rows = true};
    case QUIRE_MESSAGES:
        return (endpoint_facts){"/v1/messages", .gives_text = true};
    case QUIRE_RESPONSES:
        return (endpoint_facts){"/v1/responses", .gives_text = true};
    }
    return (endpoint_facts){.path = NULL};
}

#endif
