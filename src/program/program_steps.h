/* A program as data: steps, with the texts and lists that they hold. program_json.h and
 * the calls of quire_program.h write it, the interpreter (program_state.h) reads it. It
 * knows no model, and no tokens but those that a step gives.
 *
 * Owner: a program, or the state to which a call has appended a step. A step does not
 * change once it is in a list, and its address stays the same. */
#ifndef PROGRAM_PROGRAM_STEPS_H
#define PROGRAM_PROGRAM_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "quire_program.h"

#define PROGRAM_NAME_BYTES 64 /* for a variable's name and a 0 byte */

typedef enum step_kind {
    STEP_TEXT,   /* appends `text` */
    STEP_TOKENS, /* appends ids */
    STEP_ROLE,   /* appends a turn of role `role` with the content of lists[0] */
    STEP_END,    /* ends the turn; only calls need it, since a role's list ends by itself */
    STEP_GEN,    /* generates `name` with `fields` */
    STEP_SELECT, /* chooses `name` among `choices` */
    STEP_FORK,   /* begins branches: lists[i] each, or lists[0] for each item */
    STEP_JOIN,   /* waits for the branches, and takes their variables */
    STEP_IF,     /* runs lists[0] if the test holds, else lists[1] */
    STEP_REPEAT, /* runs lists[0] up to `times` times, until the test holds */
    STEP_SET     /* sets `name` to `text`, or to its parts between `split` */
} step_kind;

/* A constant text, the value of a variable, or one item of that. */
typedef struct step_piece {
    char *text; /* [n] the constant; NULL: a variable's value */
    size_t n;
    char name[PROGRAM_NAME_BYTES];
    int32_t item; /* -1: the whole value */
} step_piece;

/* A text with variables, as its pieces in order. */
typedef struct step_text {
    step_piece *pieces;
    size_t n;
} step_text;

typedef enum step_test_kind {
    TEST_NONE,
    TEST_IS,       /* the value is one of the texts */
    TEST_CONTAINS, /* the value contains one of them */
    TEST_LIKE,     /* the value matches one of them, in which * is any text and ? one byte */
    TEST_MATCHES   /* one of them, a regex, matches somewhere in the value */
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
    char name[PROGRAM_NAME_BYTES]; /* the variable of GEN, SELECT, SET; of FORK that of its items, or empty */
    char role[PROGRAM_NAME_BYTES];
    step_text text;
    int32_t *ids;
    size_t n_ids;
    char *fields; /* [n_fields] a JSON object, or NULL */
    size_t n_fields;
    step_text *choices; /* [n_choices] of SELECT; the items of FORK, or of a list that SET makes */
    size_t n_choices;
    char over[PROGRAM_NAME_BYTES]; /* of FORK: the variable with the items; empty: choices has them */
    quire_select_method method;
    step_list *lists; /* [n_lists] */
    size_t n_lists;
    int32_t times; /* rounds of REPEAT; number of equal branches of FORK, or 0 */
    step_test test;
    char *split;     /* separator of SET; NULL: do not split */
    bool is_of_call; /* of FORK: quire_state_fork has made its states */
    bool is_list;    /* of SET: the value is the list in choices */
    bool is_input;   /* of SET: the variable is the program's input */
};

/* A whole program. */
typedef struct program_steps {
    step_list steps;
    step_list inputs; /* SET steps of the variables with which it begins */
    char *fields;     /* [n_fields] a JSON object: defaults for the fields of gens; NULL: none */
    size_t n_fields;
    char *chat; /* [n_chat] a JSON object: fields of a chat for its template; NULL: none */
    size_t n_chat;
    char *model; /* NULL: not named */
    uint64_t seed;
    bool has_seed, stream, explain;
} program_steps;

/* Appends a new step to the list; NULL: out of memory. */
step *step_list_add(step_list *l, step_kind kind);
void step_list_deinit(step_list *l);
void step_list_drop_last(step_list *l);
/* Moves all steps of `from` to the end of `to`. NO_MEMORY: nothing changed. */
quire_err step_list_move(step_list *from, step_list *to);
void step_text_deinit(step_text *t);
void program_steps_deinit(program_steps *p);

/* Parses a text with variables: {{name}} or {{name[2]}}; {{{{ is two braces. *out must
 * be empty, and is empty after a failure. BAD_REQUEST: braces that name no variable. */
quire_err step_text_read(str text, step_text *out, quire_error *err);
/* Makes a text without variables; braces are literal. NO_MEMORY. */
quire_err step_text_plain(str text, step_text *out);
/* Whether a text may be the name of a variable: letters, digits and _, not beginning
 * with a digit. */
bool step_name_is_valid(str name);
/* Copies a name. BAD_REQUEST if it is not a name or too long. */
quire_err step_name_set(char to[PROGRAM_NAME_BYTES], str name, quire_error *err);

#endif
