/* Executes programs on an OpenAI-compatible API, and speculates across calls: a gen that
 * is followed by constant text and another gen is requested past its end, and later gens
 * take what came as long as it agrees (api_guess.h). Greedy results are the same, and
 * there are never more calls.
 *
 * States without turns are texts for /completions, those with turns are messages for
 * /chat/completions. A select is one call of /completions for all of its choices,
 * whose log-probabilities the API echoes. */
#ifndef CLI_API_EXECUTOR_H
#define CLI_API_EXECUTOR_H

#include "cli/api_client.h"
#include "program/program_state.h"

typedef struct api_executor api_executor;

typedef struct api_executor_options {
    api_client_options client;
    const char *model; /* NULL: the program's, else the first that the API lists */
    int32_t most_more; /* most tokens to request past a gen's end; 0: no speculation */
} api_executor_options;

/* What calls have cost, and what speculation has saved. */
typedef struct api_counts {
    int64_t n_calls, n_reused;                /* requests sent; gens that needed none */
    int64_t prompt_tokens, completion_tokens; /* as the API counts them */
    int64_t saved_prompt_tokens;              /* of the prompts of those gens */
    int64_t unused_tokens;                    /* tokens generated past an end that no gen took */
} api_counts;

extern const program_ops api_ops;

/* Opens an executor; *out is for programs_open with api_ops. The options' texts are borrowed
 * until it is closed. Errors of api_client_open; NO_MEMORY. */
quire_err api_executor_open(const api_executor_options *o, api_executor **out, quire_error *err);
api_counts api_executor_count(const api_executor *x);

#endif
