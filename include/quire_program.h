/* Quire: programs. A program is states and steps; it holds no model. What many calls of
 * one application have in common is computed once (docs/programs.md).
 *
 *   quire_programs_open -> quire_state_open -> quire_state_text, _gen, _fork, ..
 *   quire_programs_next (events) -> quire_state_get -> quire_state_close
 *   quire_programs_close
 *
 * A state is a list of token ids, which only grows, and variables, which are texts. A
 * step is appended to a state and returns at once: it runs when the steps before it have,
 * and steps of different states run in the same batches. An error stops the state in
 * which it happened and what reads its variables, nothing else.
 *
 * Threads: everything of one quire_programs is called on one thread. Texts are UTF-8 with
 * explicit length. */
#ifndef QUIRE_PROGRAM_H
#define QUIRE_PROGRAM_H

#include "quire.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

typedef struct quire_programs quire_programs;
typedef struct quire_state quire_state;

/* How select scores a choice from the log-probabilities of its tokens: by their mean;
 * token by token, the likeliest first, where a choice that has ended goes on with its
 * mean; or by the mean of their differences to those that the same tokens have with
 * nothing before them. */
typedef enum quire_select_method {
    QUIRE_SELECT_TOKEN_LENGTH_NORMALIZED,
    QUIRE_SELECT_GREEDY_TOKEN_SELECTION,
    QUIRE_SELECT_UNCONDITIONAL_LIKELIHOOD_NORMALIZED
} quire_select_method;

/* Bounds of a program, that is of a root state and all states forked from it. A
 * program that exceeds one fails with QUIRE_TOO_LARGE. */
typedef struct quire_program_limits {
    size_t size;        /* of this struct in the caller's quire_program.h */
    int32_t max_states; /* states in all, also one after the other (1,024) */
    int32_t max_depth;  /* forks within forks, and steps within steps (16) */
    int64_t max_steps;  /* steps run; a repeated step counts each time (65,536) */
    int64_t max_tokens; /* tokens of all prompts and outputs of gens and selects (4,194,304) */
    int64_t max_bytes;  /* bytes of texts, given tokens and lists that steps make (64 MiB) */
    int64_t max_us;     /* time from start to end, or to close if built by calls; 0: no bound (0) */
} quire_program_limits;

/* Sets the defaults in a struct of `size` bytes. */
void quire_program_limits_init_sized(quire_program_limits *l, size_t size);
static inline void quire_program_limits_init(quire_program_limits *l) {
    quire_program_limits_init_sized(l, sizeof *l);
}

/* ---- what runs programs ---- */

/* Opens a runner of any number of programs on an engine. Close it before the engine.
 * NO_MEMORY. */
quire_err quire_programs_open(quire_engine *e, quire_programs **out);
/* Closes all states, waits until the engine has dropped their requests, frees
 * everything. */
void quire_programs_close(quire_programs *ps);
/* Whether all cancelled requests have ended and quire_programs_next was called since,
 * so that quire_programs_close does not wait once all states are closed. */
bool quire_programs_idle(const quire_programs *ps);
/* A file descriptor that is readable while there may be events. */
int quire_programs_fd(const quire_programs *ps);
/* Blocks until the fd is readable, timeout_us have passed (-1: for ever), or the time of a
 * program is up. */
void quire_programs_wait(quire_programs *ps, int64_t timeout_us);

typedef enum quire_program_event_kind {
    QUIRE_PROGRAM_TEXT,   /* new text of a gen's output */
    QUIRE_PROGRAM_VALUE,  /* a gen, select or set has ended: quire_state_get has the variable */
    QUIRE_PROGRAM_FAILED, /* a step failed (error says why); the state's later steps do not run */
    QUIRE_PROGRAM_IDLE    /* root state: all steps of it and its branches are over */
} quire_program_event_kind;

/* Valid until the next call of quire_programs_next, and as long as the state is open. */
typedef struct quire_program_event {
    size_t size; /* of this struct in the library; later versions add members at the end */
    quire_program_event_kind kind;
    quire_state *state;
    void *user;       /* of the root state */
    const char *name; /* of the step's variable, if it has one; else NULL */
    int32_t choice;   /* TEXT of a gen with n: which of its outputs */
    const char *text; /* TEXT: not 0-terminated */
    size_t n_text;
    const quire_error *error; /* FAILED; else NULL */
} quire_program_event;

/* Runs the steps that can run, and gets the next event; false when there is none. Call
 * it until false, then wait for the fd. */
bool quire_programs_next(quire_programs *ps, quire_program_event *out);
/* For a thread that has other work: makes quire_programs_next return false once `us`
 * microseconds from now have passed (0: never). If quire_programs_has_more then, the
 * fd does not signal it: begin another turn after the other work. */
void quire_programs_turn(quire_programs *ps, int64_t us);
bool quire_programs_has_more(const quire_programs *ps);

/* ---- states ---- */

typedef struct quire_state_options {
    size_t size;                        /* of this struct in the caller's quire_program.h */
    const char *tenant;                 /* as in quire_request_tenant; NULL: the common tenant. Copied */
    void *user;                         /* for events */
    const quire_program_limits *limits; /* NULL: the defaults. Copied */
} quire_state_options;

/* Opens a root state, which is empty. o may be NULL. NO_MEMORY, INVALID. */
quire_err quire_state_open(quire_programs *ps, const quire_state_options *o, quire_state **out,
                           quire_error *err);
/* The same with the steps of a program in JSON (docs/programs.md). BAD_REQUEST: err
 * says where, and what is expected; TOO_LARGE: a bound. */
quire_err quire_program_open(quire_programs *ps, const char *json, size_t n, const quire_state_options *o,
                             quire_state **out, quire_error *err);
/* Cancels the unfinished steps of a state and of those forked from it, and frees what
 * they hold. Closing a root state makes the handles of all its forks invalid; a closed
 * fork counts as failed (QUIRE_CANCELLED) where it is joined. No more events come.
 * Does not block. */
void quire_state_close(quire_state *s);
/* Cancels the same but keeps the state open, so that its variables can be read. Its
 * FAILED and the root's IDLE event come. */
void quire_state_cancel(quire_state *s);
/* The path of a state among the forks: [*n] its branch number at each fork, from the
 * root; empty for a root. The state owns it. */
const int32_t *quire_state_branch(const quire_state *s, size_t *n);

/* ---- steps: each call appends one, and returns at once ----
 *
 * Errors of the call: BAD_REQUEST for what is wrong with the step itself, which is then
 * not appended, TOO_LARGE for a bound, NO_MEMORY. What goes wrong later is an event. */

/* Appends text, in which {{name}} is the value of a variable and {{name[2]}} an item
 * of a list; {{{{ is two braces. Special tokens are parsed in the text itself, and are
 * ordinary text in values. Earlier tokens do not change; the first text of an empty
 * state begins with BOS if the model's setting says so. */
quire_err quire_state_text(quire_state *s, const char *text, size_t n, quire_error *err);
/* Appends token ids. Copied. */
quire_err quire_state_tokens(quire_state *s, const int32_t *ids, size_t n, quire_error *err);
/* Begins a turn of a role ("system", "user", "assistant") as the chat template writes
 * it, and ends an open one; what is appended up to its end is its content. A state
 * begins with a turn or has none. A text, gen or select after a turn and outside of
 * one begins one of the assistant. */
quire_err quire_state_role(quire_state *s, const char *role, quire_error *err);
/* Ends the turn that is open. */
quire_err quire_state_role_end(quire_state *s, quire_error *err);
/* Generates text, which is appended and becomes the variable's value. fields: a JSON
 * object of n_fields bytes with fields of a completion (docs/api.md), except those of
 * the prompt, streaming and log-probabilities; NULL: none. With n above 1 the variable
 * is a list, whose first item is appended. In a state with turns the fields are a
 * chat's; if answers are split, the variable is the content, and NAME_reasoning and
 * NAME_calls are set too (docs/programs.md). */
quire_err quire_state_gen(quire_state *s, const char *name, const char *fields, size_t n_fields,
                          quire_error *err);
/* Chooses the likeliest of n texts, which is appended and becomes the variable's
 * value. The last token before it may merge with the choice's first (token healing):
 * then it is scored too. Texts may have variables. sizes[i]: bytes of choices[i]. */
quire_err quire_state_select(quire_state *s, const char *name, const char *const *choices,
                             const size_t *sizes, size_t n, quire_select_method method, quire_error *err);
/* Sets a variable to a text, which may have variables. Appends nothing. */
quire_err quire_state_set(quire_state *s, const char *name, const char *text, size_t n, quire_error *err);
/* Makes n states that begin with the ids, turns and variables that s has once its
 * steps so far have run. s goes on too. forks: [n] handles, valid until s or its root
 * is closed. */
quire_err quire_state_fork(quire_state *s, int32_t n, quire_state **forks, quire_error *err);
/* Waits for all forks of s that are not joined yet, as far as their steps at that
 * time, and takes their variables: a value if one fork alone set it, else a list with
 * fork i's as {{name[i]}}. */
quire_err quire_state_join(quire_state *s, quire_error *err);
/* Appends steps in JSON: an array, as a program's "steps". */
quire_err quire_state_steps(quire_state *s, const char *json, size_t n, quire_error *err);

/* ---- results ---- */

/* A variable, valid until it is set again or its state closed. */
typedef struct quire_variable {
    size_t size; /* of this struct in the caller's quire_program.h: set before the call */
    const char *text;
    size_t n_text;
    /* [n_ids] of a gen: the appended ids; else none */
    const int32_t *ids;
    size_t n_ids;
    int32_t n_items; /* of a list; else 0 */
    int32_t choice;  /* of a select: index of the chosen text; else -1 */
    /* [n_scores] of a select: the score of each choice; under greedy_token_selection
     * its mean log-probability */
    const double *scores;
    size_t n_scores;
    /* of the step that set it; 0 if it computed nothing. computed_tokens: prompt
     * tokens that were not in the cache */
    int64_t prompt_tokens, computed_tokens, completion_tokens;
    quire_finish finish;
    uint64_t seed; /* of a gen, if has_seed: a plain request with it gives the same */
    bool has_seed;
} quire_variable;

/* Gets a variable, or with item >= 0 an item of a list. BUSY: not set yet, and the
 * state has steps left; NOT_FOUND: not set, and no steps are left; else the error of
 * the step that failed to set it. */
quire_err quire_state_get(const quire_state *s, const char *name, int32_t item, quire_variable *out,
                          quire_error *err);
/* The token ids of a state, without texts that no gen or select has read yet. The
 * state owns them; valid until its next step runs. */
const int32_t *quire_state_ids(const quire_state *s, size_t *n);
/* Writes the report of a root state: the JSON object that POST /v1/programs returns,
 * with variables, usage in all and of each step and, if requested, the critical path.
 * *json: n bytes and a 0, freed with quire_free. id: the object's, or NULL. NO_MEMORY. */
quire_err quire_state_report(const quire_state *s, const char *id, bool explain, char **json, size_t *n);
/* What a root state and its forks have computed so far. */
typedef struct quire_program_usage {
    size_t size;      /* of this struct in the caller's quire_program.h: set before the call */
    int64_t n_calls;  /* gens and selects that ended without an error */
    int64_t n_failed; /* states that failed */
    int64_t prompt_tokens, computed_tokens, completion_tokens;
    const quire_error *error; /* of the root state if it failed; else NULL */
} quire_program_usage;
void quire_state_usage(const quire_state *s, quire_program_usage *out);
/* What the JSON of a program opened by quire_program_open has as "stream", "explain"
 * and "model" (NULL: none; the state owns it). */
typedef struct quire_program_info {
    size_t size; /* of this struct in the library; later versions add members at the end */
    bool stream, explain;
    const char *model;
} quire_program_info;
const quire_program_info *quire_program_describe(const quire_state *s);
/* Makes the "model" of s's program mean the engine's own model, even if an adapter has that
 * name: its calls use no adapter. Call before it runs. */
void quire_program_without_adapter(quire_state *s);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
