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

/* How select scores a choice of tokens t1..tn, with the log-probability of each where it
 * stands: by their mean; token by token, the likeliest first, where a choice that has
 * ended counts as going on with its mean; by the mean of their differences to the
 * log-probabilities that the same tokens have without anything before them. */
typedef enum quire_select_method {
    QUIRE_SELECT_TOKEN_LENGTH_NORMALIZED,
    QUIRE_SELECT_GREEDY_TOKEN_SELECTION,
    QUIRE_SELECT_UNCONDITIONAL_LIKELIHOOD_NORMALIZED
} quire_select_method;

/* Bounds of a program: of a root state and all that are forked from it. A program that
 * exceeds one fails: QUIRE_TOO_LARGE. */
typedef struct quire_program_limits {
    size_t size;        /* of this struct in the caller's quire_program.h */
    int32_t max_states; /* that it has in all, also one after the other (1,024) */
    int32_t max_depth;  /* of forks within forks, and of steps within steps (16) */
    int64_t max_steps;  /* that it runs, each time they run (65,536) */
    int64_t max_tokens; /* of the prompts and the outputs of its gens and selects (4,194,304) */
    int64_t max_bytes;  /* of the texts of its steps, states and variables (64 MiB) */
    int64_t max_us;     /* from its start to its end; of calls: until it is closed; 0: no bound (0) */
} quire_program_limits;

/* Sets the defaults in a struct of `size` bytes. */
void quire_program_limits_init_sized(quire_program_limits *l, size_t size);
static inline void quire_program_limits_init(quire_program_limits *l) {
    quire_program_limits_init_sized(l, sizeof *l);
}

/* ---- what runs programs ---- */

/* Opens what runs any number of programs on an engine. Close it before the engine.
 * NO_MEMORY. */
quire_err quire_programs_open(quire_engine *e, quire_programs **out);
/* Closes all states, waits until the engine has given up their requests, frees
 * everything. */
void quire_programs_close(quire_programs *ps);
/* Whether nothing of a request that was given up is still to come: quire_programs_next was
 * called since its end, and quire_programs_close does not wait once all states are closed. */
bool quire_programs_idle(const quire_programs *ps);
/* A file descriptor that is readable while there may be events. */
int quire_programs_fd(const quire_programs *ps);
/* Blocks until it is readable or timeout_us passed (-1: for ever). */
void quire_programs_wait(quire_programs *ps, int64_t timeout_us);

typedef enum quire_program_event_kind {
    QUIRE_PROGRAM_TEXT,   /* a gen goes on: text is new text of its choice */
    QUIRE_PROGRAM_VALUE,  /* a gen, a select or a set has ended: quire_state_get has the variable */
    QUIRE_PROGRAM_FAILED, /* a step failed: error says why, and the state's later steps do not run */
    QUIRE_PROGRAM_IDLE    /* a root state: all steps that it and its branches have are over */
} quire_program_event_kind;

/* Valid until the next call of quire_programs_next, and as long as the state is open. */
typedef struct quire_program_event {
    size_t size; /* of this struct in the library; later versions add members at the end */
    quire_program_event_kind kind;
    quire_state *state;
    void *user;       /* of the root state */
    const char *name; /* of the variable, of a step that has one; else NULL */
    int32_t choice;   /* TEXT of a gen with n: which of its outputs */
    const char *text; /* TEXT: not 0-terminated */
    size_t n_text;
    const quire_error *error; /* FAILED; else NULL */
} quire_program_event;

/* Runs the steps that can, and gets the next event; false when there is none. Call it
 * until false, then wait for the fd. */
bool quire_programs_next(quire_programs *ps, quire_program_event *out);
/* For a thread that has other work: quire_programs_next is false, too, once us microseconds
 * from now have passed (0: it is not). Then quire_programs_has_more, and no fd says so: begin
 * another turn after that work. */
void quire_programs_turn(quire_programs *ps, int64_t us);
bool quire_programs_has_more(const quire_programs *ps);

/* ---- states ---- */

typedef struct quire_state_options {
    size_t size;                        /* of this struct in the caller's quire_program.h */
    const char *tenant;                 /* as quire_request_tenant; NULL: the one tenant for all. Copied */
    void *user;                         /* for events */
    const quire_program_limits *limits; /* NULL: the defaults. Copied */
} quire_state_options;

/* Opens a root state, which is empty. o may be NULL. NO_MEMORY, INVALID. */
quire_err quire_state_open(quire_programs *ps, const quire_state_options *o, quire_state **out,
                           quire_error *err);
/* The same with the steps of a program in JSON (docs/programs.md). BAD_REQUEST: err says
 * where and what is right; TOO_LARGE: a bound. */
quire_err quire_program_open(quire_programs *ps, const char *json, size_t n, const quire_state_options *o,
                             quire_state **out, quire_error *err);
/* Cancels the steps of a state and of those forked from it that have not ended, and gives
 * back what they hold. Of a root state the handles of all its forks are invalid then; a
 * fork counts as failed, QUIRE_CANCELLED, where it is joined. No event comes any more.
 * Does not block. */
void quire_state_close(quire_state *s);
/* Cancels the same and keeps the state open: its variables can be read. Its FAILED and
 * the root's IDLE come. */
void quire_state_cancel(quire_state *s);
/* Where a state is among the forks: [*n] the number of its branch at each fork, from the
 * root. Empty for a root. The state owns it. */
const int32_t *quire_state_branch(const quire_state *s, size_t *n);

/* ---- steps: each call appends one, and returns at once ----
 *
 * Errors of the call: BAD_REQUEST for what is wrong with the step itself, which is then
 * not appended, TOO_LARGE for a bound, NO_MEMORY. What goes wrong later is an event. */

/* Appends text, in which {{name}} is the value of a variable and {{name[2]}} one of a
 * list; {{{{ is two braces. Special tokens in the text are parsed, those in values are
 * ordinary text. Tokens that stood before stay as they are; the first text of an empty
 * state begins with BOS by the model's setting. */
quire_err quire_state_text(quire_state *s, const char *text, size_t n, quire_error *err);
/* Appends token ids. Copied. */
quire_err quire_state_tokens(quire_state *s, const int32_t *ids, size_t n, quire_error *err);
/* Begins a turn of a role ("system", "user", "assistant") as the chat template writes it;
 * what is appended up to the end of the turn is its content. A turn that is open ends. A
 * state begins with a turn or has none. A text, gen or select that follows a turn and is
 * in none begins one of the assistant. */
quire_err quire_state_role(quire_state *s, const char *role, quire_error *err);
/* Ends the turn that is open. */
quire_err quire_state_role_end(quire_state *s, quire_error *err);
/* Generates text, which becomes the variable and is appended. fields: a JSON object of
 * n_fields bytes with fields of a completion's request (docs/api.md), except those of the
 * prompt, of streaming and of log-probabilities; NULL: none. Of a gen with n above 1 the
 * variable is a list, and its first item is appended. In a state with turns the fields are
 * a chat's; where answers are split the variable is the content, and NAME_reasoning and
 * NAME_calls are set too (docs/programs.md). */
quire_err quire_state_gen(quire_state *s, const char *name, const char *fields, size_t n_fields,
                          quire_error *err);
/* Chooses one of n texts by their likelihood, which becomes the variable and is appended.
 * The last token before it may become another one with the choice's first (token
 * healing): it is scored then. Texts have variables too. sizes[i]: bytes of choices[i]. */
quire_err quire_state_select(quire_state *s, const char *name, const char *const *choices,
                             const size_t *sizes, size_t n, quire_select_method method, quire_error *err);
/* Sets a variable to a text, which may have variables. Appends nothing. */
quire_err quire_state_set(quire_state *s, const char *name, const char *text, size_t n, quire_error *err);
/* Makes n states that go on from what s has once its steps so far have run: its ids,
 * turns and variables. s goes on too. forks: [n] handles, valid until s or its root is
 * closed. */
quire_err quire_state_fork(quire_state *s, int32_t n, quire_state **forks, quire_error *err);
/* Waits for all forks of s that are not joined yet, at the steps that they have when it
 * runs, and takes their variables: one that a single fork has set is that value; of others
 * {{name[i]}} is that of fork i. */
quire_err quire_state_join(quire_state *s, quire_error *err);
/* Appends steps in JSON: an array, as a program's "steps". */
quire_err quire_state_steps(quire_state *s, const char *json, size_t n, quire_error *err);

/* ---- results ---- */

/* A variable, valid until it is set again or its state closed. */
typedef struct quire_variable {
    size_t size; /* of this struct in the caller's quire_program.h: set before the call */
    const char *text;
    size_t n_text;
    /* [n_ids] of a gen: the ids that were appended; of others none */
    const int32_t *ids;
    size_t n_ids;
    int32_t n_items; /* of a list; else 0 */
    int32_t choice;  /* of a select: the number of its choice; else -1 */
    /* [n_scores] of a select: of each choice. By greedy_token_selection the mean of its
     * log-probabilities */
    const double *scores;
    size_t n_scores;
    /* of the step that has set it; 0 where it computed nothing. computed_tokens: of the
     * prompt, those that were not found in the cache */
    int64_t prompt_tokens, computed_tokens, completion_tokens;
    quire_finish finish;
    uint64_t seed; /* of a gen, where has_seed: with it a plain request gives the same */
    bool has_seed;
} quire_variable;

/* Gets a variable, or with item >= 0 an item of a list. BUSY: no step has set it yet, and
 * the state has some to run; NOT_FOUND: none will; else the error of the step that failed
 * to. */
quire_err quire_state_get(const quire_state *s, const char *name, int32_t item, quire_variable *out,
                          quire_error *err);
/* The token ids that a state has. They do not have texts that no gen or select has read
 * yet. The state owns them; valid until its next step runs. */
const int32_t *quire_state_ids(const quire_state *s, size_t *n);
/* Writes what came of a root state as the JSON object that POST /v1/programs answers:
 * variables, usage of the whole and of each step and, if asked, its critical path. *json:
 * n bytes and a 0, freed with quire_free. id: the object's, or NULL. NO_MEMORY. */
quire_err quire_state_report(const quire_state *s, const char *id, bool explain, char **json, size_t *n);
/* What a root state and its forks computed so far. */
typedef struct quire_program_usage {
    size_t size;      /* of this struct in the caller's quire_program.h: set before the call */
    int64_t n_calls;  /* gens and selects that have ended, without an error */
    int64_t n_failed; /* states that failed */
    int64_t prompt_tokens, computed_tokens, completion_tokens;
    const quire_error *error; /* of the root state, where it failed; else NULL */
} quire_program_usage;
void quire_state_usage(const quire_state *s, quire_program_usage *out);
/* Whether the JSON of a program opened by quire_program_open has "stream" and "explain",
 * and its "model" (NULL: none), which the state owns. */
typedef struct quire_program_info {
    size_t size; /* of this struct in the library; later versions add members at the end */
    bool stream, explain;
    const char *model;
} quire_program_info;
const quire_program_info *quire_program_describe(const quire_state *s);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
