/* The interpreter of programs: runs the steps of states over an executor; only the
 * executor knows a model. Executors: the engine (execute/engine_call.h) and a remote API.
 *
 * state: WAITING (its FORK did not run) -> READY -> CALLING | JOINING -> READY .. -> REST
 *        any of these -> FAILED
 *
 * A state's steps run one after the other; steps of different states run as soon as their
 * inputs are available. REST: no step is left; a call may append more. One thread owns
 * everything: that of the quire_programs. */
#ifndef PROGRAM_PROGRAM_STATE_H
#define PROGRAM_PROGRAM_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash_index.h"
#include "base/str.h"
#include "quire_program.h"

/* ---- program_steps.c: a program as steps ---- */

#define PROGRAM_NAME_BYTES 64 /* most bytes of a variable's name, with the 0 byte */

typedef enum step_kind {
    STEP_TEXT,   /* appends `text` */
    STEP_TOKENS, /* appends the tokens `ids` */
    STEP_ROLE,   /* appends a turn of `role`, and runs lists[0] in it */
    STEP_END,    /* ends a turn that a call began by a STEP_ROLE without a list */
    STEP_GEN,    /* generates `name` with `fields` */
    STEP_SELECT, /* chooses `name` among `choices` */
    STEP_FORK,   /* begins a branch for each list or, on lists[0], for each item */
    STEP_JOIN,   /* waits for the branches, and copies their variables to the state */
    STEP_IF,     /* runs lists[0] if the test holds, else lists[1] */
    STEP_REPEAT, /* runs lists[0] up to `times` times, until the test holds */
    STEP_SET     /* sets `name` to `text`, or to its parts between `split` */
} step_kind;

/* A constant text, the value of a variable, or an item of a variable's list. */
typedef struct step_piece {
    char *text; /* [n] the constant; NULL: the piece is the value of `name` */
    size_t n;
    char name[PROGRAM_NAME_BYTES];
    int32_t item; /* index of the item; -1: the whole value */
} step_piece;

/* A text with variables: the concatenation of its pieces. */
typedef struct step_text {
    step_piece *pieces;
    size_t n;
} step_text;

typedef enum step_test_kind {
    TEST_NONE,
    TEST_IS,       /* the value is one of the texts */
    TEST_CONTAINS, /* the value contains one of the texts */
    TEST_LIKE,     /* the value matches a pattern; * is any text, ? any byte */
    TEST_MATCHES   /* one of the texts, a regex, matches in the value */
} step_test_kind;

typedef struct step_test {
    step_test_kind kind;
    step_text value;
    step_text *texts; /* [n] */
    size_t n;
} step_test;

typedef struct step step;

typedef struct step_list {
    step **items;
    size_t n, cap;
} step_list;

struct step {
    step_kind kind;
    /* variable that GEN, SELECT or SET sets; FORK: variable of the items, or "" */
    char name[PROGRAM_NAME_BYTES];
    char role[PROGRAM_NAME_BYTES];
    step_text text;
    int32_t *ids;
    size_t n_ids;
    char *fields; /* [n_fields] GEN: request fields as a JSON object; NULL: none */
    size_t n_fields;
    step_text *choices; /* [n_choices] choices of SELECT; items of FORK, or of SET's list */
    size_t n_choices;
    char over[PROGRAM_NAME_BYTES]; /* FORK: the variable with the items; "": choices has them */
    quire_select_method method;
    step_list *lists; /* [n_lists] the lists of steps that the step runs */
    size_t n_lists;
    int32_t times; /* REPEAT: most rounds; FORK: number of equal branches, or 0 */
    step_test test;
    char *split;     /* SET: separator at which the text is split; NULL: not split */
    bool is_of_call; /* FORK: quire_state_fork has made its states */
    bool is_list;    /* SET: the value is the list in choices */
    bool is_input;   /* SET: the variable is an input of the program */
};

/* A whole program. */
typedef struct program_steps {
    step_list steps;
    step_list inputs; /* SET steps for the program's input variables */
    char *fields;     /* [n_fields] default request fields of gens, a JSON object; NULL: none */
    size_t n_fields;
    char *common; /* [n_common] those of `fields` that apply to prefixes and choices too; NULL: none */
    size_t n_common;
    char *chat; /* [n_chat] fields for the chat template, a JSON object; NULL: none */
    size_t n_chat;
    char *model; /* name of the model; NULL: not given */
    uint64_t seed;
    bool has_seed, stream, explain;
} program_steps;

/* Appends a new step to the list; NULL: out of memory. */
step *step_list_add(step_list *l, step_kind kind);
void step_list_deinit(step_list *l);
void step_list_drop_last(step_list *l);
/* Moves all steps of `from` to the end of `to`. QUIRE_NO_MEMORY: nothing changed. */
quire_err step_list_move(step_list *from, step_list *to);
void program_steps_deinit(program_steps *p);

/* Parses a text with variables: {{name}} or {{name[2]}}; {{{{ is two braces. *out must be
 * empty, and is after a failure. QUIRE_BAD_REQUEST: braces that name no variable. */
quire_err step_text_read(str text, step_text *out, quire_error *err);
/* Makes a text without variables; braces are literal. QUIRE_NO_MEMORY. */
quire_err step_text_plain(str text, step_text *out);
/* Copies a variable's name. QUIRE_BAD_REQUEST: it is not valid, or too long. */
quire_err step_name_set(char to[PROGRAM_NAME_BYTES], str name, quire_error *err);

/* ---- programs and their states ---- */

/* A text shared by reference count, with the spans in which the names of special tokens
 * are ordinary text: each is the offset of its first byte and of the byte after it. */
typedef struct program_text {
    int32_t refs;
    strbuf text;
    size_t *plain; /* [2 * n_plain] */
    size_t n_plain, cap_plain;
} program_text;

/* The value of a variable, a text or a list. Shared by reference count. */
typedef struct program_value {
    int32_t refs;
    strbuf text;
    struct program_value **items; /* [n_items] of a list */
    size_t n_items, cap_items;
    int32_t *ids; /* [n_ids] ids that a gen sampled */
    size_t n_ids;
    quire_error *error; /* why there is no value; otherwise NULL */
    bool is_list;
    int32_t choice; /* index of the choice that a select chose; otherwise -1 */
    double *scores; /* [n_scores] of a select: scores of the choices */
    size_t n_scores;
    int32_t record; /* index in root->records of the call that made the value; -1: none */
    quire_finish finish;
    uint64_t seed;
    bool has_seed;
} program_value;

typedef struct program_variable {
    char name[PROGRAM_NAME_BYTES];
    program_value *value;
    uint32_t hash; /* hash of the name, by variable_hash */
    bool is_own;   /* set by a step of this state; not inherited, an input or a fork's item */
    int32_t join;  /* number of the state's last join that set it; 0: none */
} program_variable;

typedef enum program_part_kind {
    PART_TEXT,
    PART_TOKENS, /* the ids of a step */
    PART_TURN,   /* the beginning of a turn */
    PART_END,    /* the end of the turn */
    PART_VALUE   /* the output of a gen or select */
} program_part_kind;

/* A piece of what was appended to a state. Executors read them in order. */
typedef struct program_part {
    program_part_kind kind;
    program_text *text;   /* PART_TEXT */
    const step *step;     /* PART_TOKENS; lives as long as the root */
    const char *role;     /* PART_TURN; lives as long as the root */
    program_value *value; /* PART_VALUE */
} program_part;

/* One output of a gen. */
typedef struct program_output {
    strbuf text;
    /* parts of a chat's answer, if has_parts; calls: JSON objects with commas between */
    strbuf content, reasoning, calls;
    strbuf arguments; /* arguments of the current tool call */
    bool has_parts;
    int32_t *ids; /* [n_ids] sampled ids, mem_new'd; or NULL */
    size_t n_ids, cap_ids;
    quire_finish finish;
} program_output;

typedef struct program_root program_root;

/* A gen, a select or a fork's prefix in progress. The interpreter makes and frees it. */
typedef struct program_call {
    quire_state *state;
    const step *step;
    int32_t number; /* index among the state's gens and selects */
    uint64_t seed;  /* seed of the gen if has_seed: its fields set none */
    bool has_seed;
    program_text **choices; /* [n_choices] of a select: their expanded texts */
    size_t n_choices;
    int64_t ready_us; /* time at which its inputs were available, on clock_us */
    /* The executor fills in the members from here on, before program_call_end. */
    int64_t submitted_us, first_us; /* times of its submission to the engine and of its first token, or 0 */
    int64_t prompt_tokens, computed_tokens, completion_tokens, queue_us;
    int64_t first_step, last_step; /* the engine's steps that sampled its first and last token; -1: unknown */
    bool is_ahead;                 /* its request was made while the call before it ran */
    program_output *outputs;       /* [n_outputs] of a gen: one per choice; of a select: one, without text */
    size_t n_outputs;
    int32_t chosen; /* index of the best choice of a select; otherwise -1 */
    double *scores; /* [n_choices] of a select, mem_new'd; or NULL */
    void *of_executor;
} program_call;

/* The functions of an executor, called on the thread that owns the programs. */
typedef struct program_ops {
    /* Begin a call, which ends when poll calls program_call_end for it; gen and select
     * must not. An error fails the state. */
    quire_err (*gen)(void *executor, program_call *c, quire_error *err);
    quire_err (*select)(void *executor, program_call *c, quire_error *err);
    /* Begins a call that tokenises and computes what the state has so far, so that its
     * forks find it in the cache. *is_there: it is already computed, and no call has
     * begun. prefix NULL: forks do not need it. */
    quire_err (*prefix)(void *executor, program_call *c, bool *is_there, quire_error *err);
    /* Cancels a call in progress; the executor does not end it. The caller frees it. */
    void (*cancel)(void *executor, program_call *c);
    /* Sets to->of_executor for a fork that gets the parts of `from`; drop frees it. */
    quire_err (*fork)(void *executor, const quire_state *from, quire_state *to);
    /* Called when s has no steps left: releases what only later steps would need. settle
     * NULL: nothing to release. */
    void (*settle)(void *executor, quire_state *s);
    void (*drop)(void *executor, quire_state *s);
    /* Returns the token ids of a state, which the executor owns, or NULL. */
    const int32_t *(*tokens)(void *executor, const quire_state *s, size_t *n);
    /* Handles events that have arrived, and ends calls. Never blocks. False: none. */
    bool (*poll)(void *executor);
    int (*fd)(void *executor);
    void (*wait)(void *executor, int64_t timeout_us);
    /* Whether no call is in progress, not even a cancelled one. NULL: always true. */
    bool (*idle)(const void *executor);
    /* Waits until cancelled calls have ended, and frees the executor. */
    void (*close)(void *executor);
} program_ops;

typedef enum program_status {
    STATE_WAITING,
    STATE_READY,
    STATE_CALLING,
    STATE_JOINING,
    STATE_REST,
    STATE_FAILED
} program_status;

/* A list of steps that is being run. */
typedef struct program_frame {
    const step_list *list;
    size_t next;
    const step *of; /* the step that holds the list; NULL: the state's own list */
    int32_t left;   /* rounds that a REPEAT may still run after this one */
} program_frame;

/* An event that waits to be delivered. */
typedef struct program_event {
    struct program_event *next;
    quire_program_event event;
    char name[PROGRAM_NAME_BYTES];
    strbuf text;
    bool is_kept; /* a member of a state or root; false: mem_new'd */
    bool is_queued;
} program_event;

struct quire_state {
    program_root *root;
    quire_state *parent;              /* NULL: this is the root state */
    quire_state *next_of_all;         /* next state in root->states */
    quire_state *first, *last, *next; /* first and last fork; next fork of its parent */
    quire_state *next_ready;
    int32_t *branch; /* [n_branch] the branch taken at each fork from the root state to this one */
    size_t n_branch;
    program_status status;
    bool is_queued;  /* in the list of ready states */
    bool is_of_call; /* made by quire_state_fork: its steps are appended later */
    bool is_joined;  /* a join of its parent has copied its variables */
    bool is_alike;   /* all forks of the step that began it run the same list */
    bool has_prefix; /* its prefix is computed, so that its FORK step may run */
    bool in_turn, has_turns;
    step_list own; /* steps appended by calls */
    program_frame *frames;
    size_t n_frames, cap_frames;
    program_part *parts;
    size_t n_parts, cap_parts;
    program_variable *variables;
    size_t n_variables, cap_variables;
    hash_index names; /* index of the variables by program_variable.hash */
    /* value of variables that this state has not set, for joins; NULL: not made yet */
    program_value *absent;
    program_call *call;   /* the call in progress, or NULL */
    int32_t n_calls;      /* number of gens and selects begun */
    int32_t n_joins;      /* number of joins run */
    int32_t depth;        /* number of calls and forks from the program's start to here */
    int32_t record;       /* index in root->records of the last call that the state waited for; -1: none */
    quire_error error;    /* why the state is FAILED */
    program_event failed; /* its FAILED event */
    void *of_executor;
};

/* What the report says about a call. Times and counts are those of program_call. */
typedef struct program_record {
    const step *step; /* GEN, SELECT or FORK */
    const quire_state *state;
    int32_t after; /* index of the record of the call that it waited for; -1: none */
    int64_t ready_us, submitted_us, first_us, end_us, queue_us;
    int64_t prompt_tokens, computed_tokens, completion_tokens;
    int64_t first_step, last_step; /* the engine's steps of its first and last token; -1: unknown */
    bool is_ahead;
    program_value *value; /* result of a gen or select, borrowed; NULL: it failed */
} program_record;

struct program_root {
    quire_programs *all;
    program_root *next, *previous;
    quire_state *states; /* list of all states, newest first; the last one is `top` */
    quire_state *top;
    program_steps program; /* the program of quire_program_open; otherwise empty */
    quire_program_info info;
    bool is_without_adapter; /* info.model names no adapter */
    char tenant[QUIRE_TENANT_BYTES + 1];
    void *user;
    quire_program_limits limits;
    int32_t n_states, n_busy;
    int64_t n_steps, n_tokens, n_bytes, n_work, began_us, ended_us;
    uint64_t seed, number; /* number: random and odd, identifies the program */
    program_record *records;
    size_t n_records, cap_records;
    program_event idle; /* the root's IDLE event */
    void *of_executor;  /* NULL at first; the executor frees what it keeps here with its calls */
};

struct quire_programs {
    const program_ops *ops;
    void *executor;
    program_root *roots;
    quire_state *ready, **ready_last;
    program_event *events, **events_last, *delivered;
    int64_t turn_ends_us; /* end of the turn on clock_us; 0: it has none */
    bool is_cut;          /* the turn ended before all was done */
    bool has_worked;      /* a step or event was handled in this turn */
};

/* Opens a runner of programs. Owns the executor: QUIRE_NO_MEMORY closes it too. */
quire_err programs_open(const program_ops *ops, void *executor, quire_programs **out);
/* Closes all programs and the executor. NULL is allowed. */
void programs_close(quire_programs *ps);

/* Opens a root state that runs *program. Takes over *program and leaves it empty, even on
 * failure; NULL: calls append steps later. */
quire_err program_open(quire_programs *ps, program_steps *program, const quire_state_options *o,
                       quire_state **out, quire_error *err);
/* Cancels what the program runs, and frees it with its undelivered events. */
void program_close(program_root *r);
/* Returns the microseconds until the first program reaches its time limit; -1: no
 * limit. */
int64_t programs_time_left(const quire_programs *ps);
/* Begins a turn of `us` microseconds, after which programs_next_event returns false; 0:
 * no end. */
void programs_begin_turn(quire_programs *ps, int64_t us);
/* Runs the programs until there is an event. Its text and name are valid until the next
 * call. False: no event yet, or the turn is over. */
bool programs_next_event(quire_programs *ps, quire_program_event *out);

/* Makes n waiting forks of s, for a FORK step. QUIRE_TOO_LARGE, QUIRE_NO_MEMORY. */
quire_err program_fork(quire_state *s, int32_t n, quire_state **forks, quire_error *err);
/* ---- for the interpreter ---- */

/* Queues an event with a copy of the name and the text. QUIRE_NO_MEMORY. */
quire_err program_event_add(quire_state *s, quire_program_event_kind kind, const char *name, int32_t choice,
                            str text);
void program_event_free(program_event *e);
/* Sets a state's status, and queues the IDLE event once no state of its root is busy. */
void program_state_set(quire_state *s, program_status status);
/* Makes the state READY and queues it to run. */
void program_state_ready(quire_state *s);
/* Call when s may have ended: queues ancestors whose JOIN need not wait any more. */
void program_state_wake_parents(quire_state *s);
/* Whether all forks of s that are not joined yet have ended. */
bool program_forks_are_over(const quire_state *s);
/* Fails s and those of its forks that have not started; cancels its call. */
void program_state_fail(quire_state *s, const quire_error *why);
/* Fails all states of a program, because it exceeds a limit. */
void program_root_fail(program_root *r, const quire_error *why);
/* Counts n steps. QUIRE_TOO_LARGE: over the limit; the program must fail. */
quire_err program_count_steps(program_root *r, size_t n, quire_error *err);
/* Appends a part, whose references s takes over on success. QUIRE_NO_MEMORY. */
quire_err program_state_add(quire_state *s, program_part part, quire_error *err);
/* End the open turn, if any; begin a turn; begin an assistant's turn if the state has
 * turns but none is open. */
quire_err program_state_end_turn(quire_state *s, quire_error *err);
quire_err program_state_begin_turn(quire_state *s, const char *role, quire_error *err);
quire_err program_state_want_turn(quire_state *s, quire_error *err);
/* Makes the state run another list of steps before the rest of the current one. */
quire_err program_state_push(quire_state *s, program_frame frame, quire_error *err);
/* Makes a shadow: a copy of s that runs ahead the steps that s will run, and is not one
 * of the program's states. has_parts: with s's parts. It borrows the rest from s, and
 * must be freed before s. NULL: out of memory. */
quire_state *program_shadow_new(const quire_state *s, bool has_parts);
void program_shadow_free(quire_state *s);
/* Starts a waiting fork on a list of steps, with its parent's parts and variables. */
quire_err program_state_begin(quire_state *s, const step_list *list, quire_error *err);
/* Begins the call of a GEN or SELECT step, or the prefix call before a FORK step.
 * Afterwards s is CALLING, or its prefix is already computed. */
quire_err program_call_begin(quire_state *s, const step *st, quire_error *err);
/* Returns a call of a step of s that has not begun. number: program_call.number. */
program_call program_call_of(quire_state *s, const step *st, int32_t number);
void program_call_free(program_call *c);

/* Call after appending a step to s->own: queues s if it is at REST. */
void program_state_continue(quire_state *s);
/* Fails s and those of its descendants that are still busy, with QUIRE_CANCELLED. */
void program_state_cancel(quire_state *s);
/* Drops the undelivered events of s and its descendants, except IDLE. */
void program_state_mute(quire_state *s);
/* Returns the value of a variable, owned by s; NULL: it is not set. */
const program_value *program_state_find(const quire_state *s, const char *name);

/* ---- for executors ---- */

/* Queues a TEXT event: new text of an output of a gen. QUIRE_NO_MEMORY. */
quire_err program_call_text(program_call *c, int32_t output, str text);
/* Counts n more tokens. False: this exceeds the program's limit, so the program has
 * failed, and c is cancelled and freed. */
bool program_call_count(program_call *c, int64_t n);
/* Counts n tokens before they are submitted, so that one call cannot exceed the limit by
 * much. QUIRE_TOO_LARGE: none is counted, and the call must fail. */
quire_err program_call_reserve(program_call *c, int64_t n, quire_error *err);
/* Looks ahead of the running gen c. If its state goes on with texts and turns that do not
 * depend on c's output, and then a gen, returns that gen as a call of a shadow of the
 * state. The shadow's parts from *n_before on follow c's output; before them, if the
 * state has turns, are its parts and a PART_VALUE without a value. NULL: something else
 * follows, the texts are too long, or out of memory. Counts towards no limit. Call
 * program_call_forget before c's state is freed. */
program_call *program_call_foresee(const program_call *c, size_t *n_before);
void program_call_forget(program_call *next);
/* Ends a call and frees it. err: why it failed; NULL: its results are complete. */
void program_call_end(program_call *c, const quire_error *err);

/* ---- select: scores choices with the formulas of SGLang's front end ---- */

/* The n >= 1 tokens of a choice: their log-probabilities, and `alone`, those with nothing
 * before the choice, the first being 0 (NULL if the method does not use them). */
typedef struct select_choice {
    const double *logprobs, *alone;
    size_t n;
} select_choice;

/* Scores n >= 1 choices; returns the index of the best, the first in a tie. scores: out,
 * [n]; under greedy_token_selection they are means and do not decide. */
int32_t select_score(const select_choice *choices, size_t n, quire_select_method method, double *scores);

/* ---- texts and values: reference counts, bounds, and expansion of steps' texts ---- */

/* Makes an empty value with one reference; NULL: out of memory. */
program_value *program_value_new(void);
program_text *program_text_share(program_text *t);
void program_text_drop(program_text *t);
program_value *program_value_share(program_value *v);
void program_value_drop(program_value *v);
/* Makes a value that is a copy of an error; NULL: out of memory. */
program_value *program_value_failed(const quire_error *why);
/* Appends an item to a list. Takes over the reference to it, even on failure.
 * QUIRE_NO_MEMORY, also for item NULL. */
quire_err program_value_add(program_value *list, program_value *item);
/* Makes a value that is a copy of a text; NULL: out of memory. */
program_value *program_value_of(str text);
/* Makes a list of the non-empty parts of a text between separators, and counts its items.
 * QUIRE_TOO_LARGE, QUIRE_NO_MEMORY. */
quire_err program_value_split(program_root *r, str text, const char *separator, program_value **out,
                              quire_error *err);

/* Counts n bytes of text, or n items of a list, that the program makes. QUIRE_TOO_LARGE
 * beyond the limit: the program must fail. */
quire_err program_count_bytes(program_root *r, size_t n, quire_error *err);
quire_err program_count_items(program_root *r, size_t n, quire_error *err);
/* Counts n units of work that makes no text, such as comparing bytes and looking up
 * variables. QUIRE_TOO_LARGE as above. */
quire_err program_count_work(program_root *r, size_t n, quire_error *err);
/* Returns the units of work that the program may still do; negative: over its limit. */
int64_t program_work_left(const program_root *r);
/* Finds a variable; NULL: there is none. */
program_variable *program_variable_find(quire_state *s, const char *name);
/* Sets a variable and adds a reference to v. QUIRE_TOO_LARGE: s has too many
 * variables. */
quire_err program_variable_set(quire_state *s, const char *name, program_value *v, quire_error *err);
/* As program_variable_set, for variables that joins ignore: an input, a fork's item. */
quire_err program_variable_give(quire_state *s, const char *name, program_value *v, quire_error *err);
/* Whether all variables of a text are set and none is in names[0..n). */
bool program_text_is_constant(const quire_state *s, const step_text *t, const char *const *names, size_t n);
/* Expands the variables of a text; *out has one reference. QUIRE_BAD_REQUEST: one is not
 * set; QUIRE_TOO_LARGE; QUIRE_NO_MEMORY. */
quire_err program_text_expand(const quire_state *s, const step_text *t, program_text **out, quire_error *err);

#endif
