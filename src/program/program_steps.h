/* A program as data: steps, with the texts and lists that they hold. Doors write it
 * (execute/program_json.h, the calls of quire_program.h), an interpreter reads it
 * (program_state.h). It names no model and no tokens but those that are given.
 *
 * Owner: a program, or the state to which a call has appended a step. A step does not
 * change once it is in a list, and its address stays the same. */
#ifndef PROGRAM_PROGRAM_STEPS_H
#define PROGRAM_PROGRAM_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "quire_program.h"

#define PROGRAM_NAME_BYTES 64 /* of a variable's name, with the 0 byte */

typedef enum step_kind {
    STEP_TEXT,   /* appends `text` */
    STEP_TOKENS, /* appends ids */
    STEP_ROLE,   /* a turn of role `role`, whose content is lists[0] */
    STEP_END,    /* ends that turn; of calls alone: a role's list ends by itself */
    STEP_GEN,    /* generates `name` with `fields` */
    STEP_SELECT, /* chooses `name` among `choices` */
    STEP_FORK,   /* begins branches: lists[i] each, or lists[0] for each item */
    STEP_JOIN,   /* waits for them, and takes their variables */
    STEP_IF,     /* lists[0], or else lists[1] */
    STEP_REPEAT, /* lists[0], `times` at most, until the test holds */
    STEP_SET     /* `name` becomes `text`, or its parts between `split` */
} step_kind;

/* A constant text, or the value of a variable, or of one item of it. */
typedef struct step_piece {
    char *text; /* [n] the constant; NULL: a variable's value */
    size_t n;
    char name[PROGRAM_NAME_BYTES];
    int32_t item; /* -1: the whole value */
} step_piece;

/* A text with variables: its pieces one after the other. */
typedef struct step_text {
    step_piece *pieces;
    size_t n;
} step_text;

typedef enum step_test_kind {
    TEST_NONE,
    TEST_IS,       /* the value is one of the texts */
    TEST_CONTAINS, /* it contains one of them */
    TEST_LIKE      /* it is like one of them, in which * stands for any text, ? for a byte */
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
    char name[PROGRAM_NAME_BYTES]; /* of GEN, SELECT, SET; of FORK: of its items, or empty */
    char role[PROGRAM_NAME_BYTES];
    step_text text;
    int32_t *ids;
    size_t n_ids;
    char *fields; /* [n_fields] a JSON object, or NULL */
    size_t n_fields;
    step_text *choices; /* [n_choices]; of FORK: the items; of SET: of a list */
    size_t n_choices;
    char over[PROGRAM_NAME_BYTES]; /* of FORK: the variable that has the items; empty: choices */
    quire_select_method method;
    step_list *lists; /* [n_lists] */
    size_t n_lists;
    int32_t times; /* of REPEAT; of FORK: equal branches, or 0 */
    step_test test;
    char *split;     /* of SET; NULL: it is one text */
    bool is_of_call; /* of FORK: its states are made already */
    bool is_list;    /* of SET: to the texts in choices */
    bool is_input;   /* of SET: the variable is the program's input */
};

/* A whole program. */
typedef struct program_steps {
    step_list steps;
    step_list inputs; /* SET steps of the variables that it begins with */
    char *fields;     /* [n_fields] a JSON object: fields of every gen that does not set them; NULL: none */
    size_t n_fields;
    char *chat; /* [n_chat] a JSON object: a chat's fields that its template sees; NULL: none */
    size_t n_chat;
    char *model; /* NULL: not named */
    uint64_t seed;
    bool has_seed, stream, explain;
} program_steps;

/* A new step at the list's end; NULL: out of memory. */
step *step_list_add(step_list *l, step_kind kind);
void step_list_deinit(step_list *l);
void step_list_drop_last(step_list *l);
/* Moves the steps of `from`, which is empty then, to the end of `to`. NO_MEMORY: nothing
 * changed. */
quire_err step_list_move(step_list *from, step_list *to);
void step_text_deinit(step_text *t);
void program_steps_deinit(program_steps *p);

/* Reads a text with variables: {{name}} or {{name[2]}}; {{{{ is two braces. *out is empty
 * before, and after a failure. BAD_REQUEST for braces that name no variable. */
quire_err step_text_read(str text, step_text *out, quire_error *err);
/* The same of a text that is taken as it is. NO_MEMORY. */
quire_err step_text_plain(str text, step_text *out);
/* Whether a text may be the name of a variable: a letter or _, then these and digits. */
bool step_name_is_valid(str name);
/* Copies a name. BAD_REQUEST for one that is none, and where it is too long. */
quire_err step_name_set(char to[PROGRAM_NAME_BYTES], str name, quire_error *err);

#endif
