/* Quire: programs. A program runs steps over states on an engine, and computes only once
 * what its calls have in common (docs/programs.md).
 *
 *   quire_programs_open -> quire_state_open -> quire_state_text, _gen, _fork, ..
 *   quire_programs_next (events) -> quire_state_get -> quire_state_close
 *   quire_programs_close
 *
 * A state is a list of token ids, which only grows, and variables, which are texts. A
 * call appends a step to a state and returns at once; the step runs after the state's
 * earlier steps, batched with those of other states. An error stops the state in which it
 * occurs and steps that read its variables, nothing else.
 *
 * Threads: all calls for one quire_programs come from one thread. Texts are UTF-8 with
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

/* How select scores a choice. TOKEN_LENGTH: mean log-probability of its tokens. GREEDY:
 * token by token, keeping the most likely choices; a choice that has ended continues with
 * its mean. UNCONDITIONAL: mean difference to the log-probabilities that the same tokens
 * have without the text before them. */
typedef enum quire_select_method {
    QUIRE_SELECT_TOKEN_LENGTH_NORMALIZED,
    QUIRE_SELECT_GREEDY_TOKEN_SELECTION,
    QUIRE_SELECT_UNCONDITIONAL_LIKELIHOOD_NORMALIZED
} quire_select_method;

/* Limits of a program: a root state and all states forked from it. A program that exceeds
 * one fails with QUIRE_TOO_LARGE. */
typedef struct quire_program_limits {
    size_t size;        /* sizeof this struct in the caller's quire_program.h */
    int32_t max_states; /* states over the program's life (1,024) */
    int32_t max_depth;  /* nesting of forks, and of steps inside steps (16) */
    int64_t max_steps;  /* steps run; every repetition counts (65,536) */
    int64_t max_tokens; /* tokens of all prompts and outputs of gens and selects (4,194,304) */
    int64_t max_bytes;  /* bytes of texts, token lists and lists that steps create (64 MiB) */
    int64_t max_us;     /* time from the start to the end, or to closing if built by calls; 0: no limit (0) */
} quire_program_limits;

/* Sets the defaults in a struct of `size` bytes. */
void quire_program_limits_init_sized(quire_program_limits *l, size_t size);
static inline void quire_program_limits_init(quire_program_limits *l) {
    quire_program_limits_init_sized(l, sizeof *l);
}

/* ---- runner ---- */

/* Opens a runner for any number of programs on an engine. Close it before the engine.
 * NO_MEMORY. */
quire_err quire_programs_open(quire_engine *e, quire_programs **out);
/* Closes all states, waits until the engine has dropped their requests and frees
 * everything. */
void quire_programs_close(quire_programs *ps);
/* Whether all cancelled requests have ended and quire_programs_next was called since. If
 * so, and if all states are closed, quire_programs_close does not block. */
bool quire_programs_idle(const quire_programs *ps);
/* A file descriptor that is readable while there may be events. */
int quire_programs_fd(const quire_programs *ps);
/* Blocks until the fd is readable, timeout_us have passed (-1: no limit) or a program
 * reaches its time limit. */
void quire_programs_wait(quire_programs *ps, int64_t timeout_us);

typedef enum quire_program_event_kind {
    QUIRE_PROGRAM_TEXT,   /* new text of a gen's output */
    QUIRE_PROGRAM_VALUE,  /* a gen, select or set has ended: quire_state_get has the variable */
    QUIRE_PROGRAM_FAILED, /* a step failed (error says why); the state's later steps do not run */
    QUIRE_PROGRAM_IDLE    /* root state: all steps of it and its forks are done */
} quire_program_event_kind;

/* An event. Valid until the next call of quire_programs_next and while the state is
 * open. */
typedef struct quire_program_event {
    size_t size; /* sizeof this struct in the library; later versions add members at the end */
    quire_program_event_kind kind;
    quire_state *state;
    void *user;       /* as given for the root state */
    const char *name; /* the step's variable; NULL: it has none */
    int32_t choice;   /* TEXT of a gen with n: index of the output */
    const char *text; /* TEXT: not 0-terminated */
    size_t n_text;
    const quire_error *error; /* FAILED; else NULL */
} quire_program_event;

/* Runs the steps that can run and gets the next event; false if there is none. Call it
 * until it returns false, then wait for the fd. */
bool quire_programs_next(quire_programs *ps, quire_program_event *out);
/* For a thread with other work: makes quire_programs_next return false after `us`
 * microseconds from now (0: no limit). If quire_programs_has_more is true then, call this
 * again after the other work: the fd does not become readable for steps left over. */
void quire_programs_turn(quire_programs *ps, int64_t us);
bool quire_programs_has_more(const quire_programs *ps);

/* ---- states ---- */

typedef struct quire_state_options {
    size_t size;                        /* sizeof this struct in the caller's quire_program.h */
    const char *tenant;                 /* as for quire_request_tenant; NULL: the default tenant. Copied */
    void *user;                         /* returned in events */
    const quire_program_limits *limits; /* NULL: the defaults. Copied */
} quire_state_options;

/* Opens an empty root state. o may be NULL. NO_MEMORY, INVALID. */
quire_err quire_state_open(quire_programs *ps, const quire_state_options *o, quire_state **out,
                           quire_error *err);
/* Opens a root state with the steps of a program in JSON (docs/programs.md). BAD_REQUEST:
 * err says where and what is expected. TOO_LARGE: a limit is exceeded. */
quire_err quire_program_open(quire_programs *ps, const char *json, size_t n, const quire_state_options *o,
                             quire_state **out, quire_error *err);
/* Cancels the unfinished steps of a state and its forks and frees everything they hold.
 * No more events come. Closing a root state invalidates the handles of all its forks; a
 * closed fork counts as failed (QUIRE_CANCELLED) when it is joined. Does not block. */
void quire_state_close(quire_state *s);
/* Like quire_state_close, but the state stays open so that its variables can be read. Its
 * FAILED event and the root's IDLE event still come. */
void quire_state_cancel(quire_state *s);
/* The branch numbers of a state, one per fork from the root: [*n]; none for a root. The
 * state owns them. */
const int32_t *quire_state_branch(const quire_state *s, size_t *n);

/* ---- steps: each call appends one and returns at once ----
 *
 * BAD_REQUEST: the step itself is wrong; it is not appended. TOO_LARGE: a limit.
 * NO_MEMORY. Later failures are events. */

/* Appends text. {{name}} is replaced by the value of a variable, {{name[2]}} by an item
 * of a list, {{{{ by two braces. Special tokens are parsed in the text but not in values.
 * Earlier tokens don't change. The first text of an empty state begins with BOS if the
 * model says so. */
quire_err quire_state_text(quire_state *s, const char *text, size_t n, quire_error *err);
/* Appends token ids. Copied. */
quire_err quire_state_tokens(quire_state *s, const int32_t *ids, size_t n, quire_error *err);
/* Begins a turn of a role ("system", "user", "assistant") as the chat template writes it,
 * and ends an open turn. What is appended until the turn ends is its content. A state
 * either begins with a turn or has none. In a state with turns, a text, gen or select
 * outside a turn begins an assistant turn. */
quire_err quire_state_role(quire_state *s, const char *role, quire_error *err);
/* Ends the open turn. */
quire_err quire_state_role_end(quire_state *s, quire_error *err);
/* Generates text, appends it and sets the variable to it. fields: a JSON object of
 * n_fields bytes with fields of a completion (docs/api.md), except those of the prompt,
 * streaming and log-probabilities; NULL: none. With n above 1 the variable is a list, and
 * its first item is appended. In a state with turns the fields are a chat's; if the
 * answer is split, the variable is its content, and NAME_reasoning and NAME_calls are set
 * too (docs/programs.md). */
quire_err quire_state_gen(quire_state *s, const char *name, const char *fields, size_t n_fields,
                          quire_error *err);
/* Appends the most likely of n texts and sets the variable to it. sizes[i] is the length
 * of choices[i] in bytes; texts may contain {{name}}. If the last token before the choice
 * merges with its first token, that token is scored too (token healing). */
quire_err quire_state_select(quire_state *s, const char *name, const char *const *choices,
                             const size_t *sizes, size_t n, quire_select_method method, quire_error *err);
/* Sets a variable to a text, which may contain {{name}}. Appends nothing. */
quire_err quire_state_set(quire_state *s, const char *name, const char *text, size_t n, quire_error *err);
/* Makes n states that begin with the ids, turns and variables of s after its steps so
 * far. s may continue too. forks: [n] handles, valid until they, s or its root are
 * closed. */
quire_err quire_state_fork(quire_state *s, int32_t n, quire_state **forks, quire_error *err);
/* Waits for all forks of s not joined yet, up to the steps that they have now, and takes
 * over their variables: as a value if only one fork set it, otherwise as a list in which
 * {{name[i]}} is fork i's. */
quire_err quire_state_join(quire_state *s, quire_error *err);
/* Appends steps from a JSON array, as in a program's "steps". */
quire_err quire_state_steps(quire_state *s, const char *json, size_t n, quire_error *err);

/* ---- results ---- */

/* A variable. Valid until it is set again or its state is closed. */
typedef struct quire_variable {
    size_t size; /* sizeof this struct in the caller's quire_program.h; set before the call */
    const char *text;
    size_t n_text;
    /* [n_ids] a gen's generated ids; none otherwise */
    const int32_t *ids;
    size_t n_ids;
    int32_t n_items; /* length of a list; 0 otherwise */
    int32_t choice;  /* select: index of the chosen text; -1 otherwise */
    /* [n_scores] select: the score of each choice; with GREEDY, its mean
     * log-probability */
    const double *scores;
    size_t n_scores;
    /* of the step that set it; 0 if it computed nothing. computed_tokens: prompt tokens
     * that were not cached */
    int64_t prompt_tokens, computed_tokens, completion_tokens;
    quire_finish finish;
    uint64_t seed; /* gen, if has_seed: a plain request with this seed gives the same output */
    bool has_seed;
} quire_variable;

/* Gets a variable or, with item >= 0, an item of a list. BUSY: not set yet, and the state
 * has steps left. NOT_FOUND: not set, and no steps are left. Otherwise the error of the
 * step that failed to set it. */
quire_err quire_state_get(const quire_state *s, const char *name, int32_t item, quire_variable *out,
                          quire_error *err);
/* The token ids of a state, without appended text that no gen or select has used yet. The
 * state owns them; valid until its next step runs. */
const int32_t *quire_state_ids(const quire_state *s, size_t *n);
/* Writes the report of a root state, as POST /v1/programs returns it: a JSON object with
 * variables, usage per step and in total and, with explain, the critical path. id: its
 * "id", or NULL. *json is n bytes and a 0; free it with quire_free. NO_MEMORY. */
quire_err quire_state_report(const quire_state *s, const char *id, bool explain, char **json, size_t *n);
/* What a root state and its forks have computed so far. */
typedef struct quire_program_usage {
    size_t size;      /* sizeof this struct in the caller's quire_program.h; set before the call */
    int64_t n_calls;  /* gens and selects that ended without an error */
    int64_t n_failed; /* states that failed */
    int64_t prompt_tokens, computed_tokens, completion_tokens;
    const quire_error *error; /* error of the root state; NULL if it has not failed */
} quire_program_usage;
void quire_state_usage(const quire_state *s, quire_program_usage *out);
/* The members "stream", "explain" and "model" of a program's JSON (quire_program_open).
 * model is NULL if absent; the state owns it. */
typedef struct quire_program_info {
    size_t size; /* sizeof this struct in the library; later versions add members at the end */
    bool stream, explain;
    const char *model;
} quire_program_info;
const quire_program_info *quire_program_describe(const quire_state *s);
/* Makes the program's "model" mean the engine's own model even if an adapter has that
 * name, so that its calls use no adapter. Call before it runs. */
void quire_program_without_adapter(quire_state *s);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
