/* A generation: everything that a request asks for, fully validated and with defaults
 * filled in. It holds no JSON and no engine state. Its texts belong to the request that
 * contains it. */
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

/* One prompt: ids if not NULL, else text. */
typedef struct request_prompt {
    str text;
    str pair;     /* the second text of a scored pair; p NULL: none */
    str shown;    /* text returned in START; p NULL: none */
    int32_t *ids; /* [n_ids] allocated with mem_new */
    int32_t n_ids;
    int32_t *types; /* [n_ids] token types, allocated with mem_new; NULL: all 0 */
} request_prompt;

typedef struct generation {
    quire_request_info info;
    quire_request_more more;

    /* Completions and embeddings: n_prompts >= 1 prompts. Chats: the conversation in
     * messages. */
    request_prompt *prompts;
    int32_t n_prompts;
    /* embeddings: index of the first input, when inputs are split over several
     * requests */
    size_t first_input;
    chat_messages messages;
    str reasoning_effort, verbosity; /* empty: not given */
    str prediction;                  /* text that the client expects in the answer; empty: none */
    bool add_generation_prompt, continue_final_message;
    /* add the tokenizer's special tokens to texts: all of them, or only BOS */
    bool add_special, add_bos;
    bool special_is_text; /* special tokens in a prompt's text are plain text */
    /* longer prompts are truncated to this many tokens; -1: to what fits;
     * GENERATION_UNCUT: they are refused */
    int32_t truncate_prompt_tokens;
    /* first prompt token, from 1, whose log-probability is reported */
    int32_t prompt_logprobs_start;
    int32_t max_prompt_tokens; /* longer prompts are refused; -1: only the model's limit applies */
    /* which end of a truncated prompt is kept: 1: the end; 0: the beginning; -1: not
     * given */
    int32_t keeps_end;

    sampling_params sampling;
    /* [n_prompts] sampling parameters per prompt, allocated with mem_new and holding
     * references to their lists; `sampling` then has the largest max_tokens. NULL:
     * `sampling` applies to all prompts */
    sampling_params *each;
    beam_params beams;      /* width 0: no beam search */
    pooling_params pooling; /* embeddings only */
    /* from the field `attention`: a reference; NULL: no mask_mod or score_mod */
    attn_mods *mods;
    /* the request names its adapters (`adapter` or `lora`), which replace the engine's */
    bool has_own_adapters;
    str adapter; /* adapter by name, 0-terminated; empty: none */
    /* [n_loras] adapters by number (field `lora`), if none is named */
    want_part loras[ADAPTER_MAX_PARTS];
    int32_t n_loras;
    bool has_attention; /* the request gives `attention`, which replaces the engine's mods */

    str stops[PARAMS_MAX_STOP + CHAT_FORM_STOPS];
    int32_t n_stops;
    bool include_stop, skip_special;
    bool include_reasoning, parallel_calls;
    int32_t max_tool_calls;   /* most tool calls in an answer; -1: the server's default */
    int32_t thinking_budget;  /* most tokens of reasoning; -1: no limit */
    grammar_space json_space; /* white space in JSON that a rule describes */
    grammar_order json_order;
    grammar_numbers json_numbers;
    grammar_additional json_additional;

    float ttft_deadline_ms;              /* 0: none */
    int64_t waited_us;                   /* part of ttft_deadline_ms that passed before quire_submit */
    int32_t priority;                    /* under the priority policy, lower values are admitted first */
    char tenant[QUIRE_TENANT_BYTES + 1]; /* 0-terminated; see quire_request_tenant */
    str cache_salt;                      /* empty: none */
    int32_t cache_priority;              /* -1: not given */
    float cache_ttl_s;                   /* 0: never expires */
} generation;

/* Time from submission by which the first token must come; 0: no deadline; negative: it
 * has already passed. */
static inline int64_t request_deadline_us(const generation *g) {
    const int64_t all_us = (int64_t)((double)g->ttft_deadline_ms * 1e3);
    return g->ttft_deadline_ms <= 0.0f ? 0 : all_us > g->waited_us ? all_us - g->waited_us : -1;
}

/* Number of log-probabilities reported per token, with n_top most likely tokens; n_top
 * -1: 0. */
static inline int32_t generation_listed(const generation *g, int32_t n_top) {
    return n_top < 0 ? 0 : 1 + n_top + sampling_n_scored(&g->sampling);
}

#endif
