/* A generation: what a request asks for, plain and final. It holds no JSON and nothing of
 * an engine. Its texts belong to the request that contains it. */
#ifndef REQUEST_GENERATION_H
#define REQUEST_GENERATION_H

#include "base/str.h"
#include "chat/chat_form.h"
#include "chat/messages.h"
#include "core/adapter_ref.h"
#include "core/attn_program.h"
#include "core/params.h"
#include "quire.h"

#define GENERATION_UNCUT (-2)

/* One prompt: a text, or ids where ids is not NULL. */
typedef struct request_prompt {
    str text;
    str pair;     /* second text of a scored pair; p NULL: none */
    str shown;    /* START's text; p NULL: none */
    int32_t *ids; /* mem_new'd */
    int32_t n_ids;
    int32_t *types; /* [n_ids] their token types, mem_new'd, or NULL: all 0 */
} request_prompt;

typedef struct generation {
    quire_request_info info;
    quire_request_more more;

    /* Completions and embeddings: n_prompts >= 1. Chat: the conversation in the
     * template's form. */
    request_prompt *prompts;
    int32_t n_prompts;
    size_t first_input; /* of embeddings: the number of its first input among all that its maker has */
    chat_messages messages;
    str reasoning_effort, verbosity; /* empty: not given */
    str prediction;                  /* the text that the client expects; empty: none */
    bool add_generation_prompt, continue_final_message;
    /* special tokens of the tokenizer: all, or BOS alone where its texts begin with
     * one */
    bool add_special, add_bos;
    bool special_is_text; /* special tokens that a prompt's text names are ordinary text */
    /* tokens to which a longer prompt is cut; -1: as many as fit; GENERATION_UNCUT: it is
     * refused */
    int32_t truncate_prompt_tokens;
    /* the first prompt token whose log-probability is wanted, from 1 on */
    int32_t prompt_logprobs_start;
    int32_t max_prompt_tokens; /* longer prompts are refused; -1: the model's bound alone */
    int32_t keeps_end; /* which end of a long prompt is cut: 1, its end; 0, its beginning; -1: not given */

    sampling_params sampling;
    /* [n_prompts] mem_new'd: each prompt's own, with references to their lists; then
     * `sampling` has the largest max_tokens. NULL: `sampling` applies to all */
    sampling_params *each;
    beam_params beams;      /* width 0: no beam search */
    pooling_params pooling; /* of embeddings */
    /* of its field `attention`, a reference; or NULL: neither mask nor change of
     * scores */
    attn_mods *mods;
    bool has_own_adapters; /* `adapter` or the field `lora` is given: they go before the engine's */
    str adapter;           /* by name; empty: none. 0-terminated */
    /* [n_loras] else the adapters of the field `lora`, by number */
    want_part loras[ADAPTER_MAX_PARTS];
    int32_t n_loras;
    bool has_attention; /* the field is given: mods go before the engine's */

    str stops[PARAMS_MAX_STOP + CHAT_FORM_STOPS];
    int32_t n_stops;
    bool include_stop, skip_special;
    bool include_reasoning, parallel_calls;
    int32_t max_tool_calls;   /* calls of an answer; -1: as the server has it */
    int32_t thinking_budget;  /* tokens of reasoning; -1: no bound */
    grammar_space json_space; /* white space in the JSON of a rule */
    grammar_order json_order;
    grammar_numbers json_numbers;
    grammar_additional json_additional;

    float ttft_deadline_ms;              /* 0: none */
    int64_t waited_us;                   /* part of that time that passed before it was submitted */
    int32_t priority;                    /* the lower is admitted first, under that policy */
    char tenant[QUIRE_TENANT_BYTES + 1]; /* 0-terminated; see quire_request_tenant */
    str cache_salt;                      /* empty: none */
    int32_t cache_priority;              /* -1: not given */
    float cache_ttl_s;                   /* 0: no end */
} generation;

/* How long after its submission a request's first token may come; 0: there is no
 * deadline; less than 0: it has waited longer before. */
static inline int64_t request_deadline_us(const generation *g) {
    const int64_t all_us = (int64_t)((double)g->ttft_deadline_ms * 1e3);
    return g->ttft_deadline_ms <= 0.0f ? 0 : all_us > g->waited_us ? all_us - g->waited_us : -1;
}

/* How many log-probabilities a token has with n_top likeliest ones; 0 for -1: it has
 * none. */
static inline int32_t generation_listed(const generation *g, int32_t n_top) {
    return n_top < 0 ? 0 : 1 + n_top + sampling_n_scored(&g->sampling);
}

#endif
