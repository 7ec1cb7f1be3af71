/* Texts and values of programs: shared, counted, and made of steps' texts. */
#ifndef PROGRAM_PROGRAM_VALUES_H
#define PROGRAM_PROGRAM_VALUES_H

#include "program/program_state.h"

/* New ones with one reference, empty; NULL: out of memory. */
program_text *program_text_new(void);
program_value *program_value_new(void);
/* A value that is an error. */
program_value *program_value_failed(const quire_error *why);
/* Appends an item to a list. It takes the reference, also on failure; NULL is
 * NO_MEMORY. */
quire_err program_value_add(program_value *list, program_value *item);
/* A value that is a text. */
program_value *program_value_of(str text);
/* A list of a text's parts between the separators, without empty ones. */
program_value *program_value_split(str text, const char *separator);

/* Counts n bytes of text. TOO_LARGE past the bound: the program is to fail. */
quire_err program_count_bytes(program_root *r, size_t n, quire_error *err);
/* Counts n units of work that makes no text: bytes that are compared, variables that are
 * looked for. TOO_LARGE as above. */
quire_err program_count_work(program_root *r, size_t n, quire_error *err);
/* The variable of a name; NULL: there is none. */
program_variable *program_variable_find(quire_state *s, const char *name);
/* Sets a variable of s to a value, of which it takes a reference. TOO_LARGE: s has as
 * many variables as it may. */
quire_err program_variable_set(quire_state *s, const char *name, program_value *v, quire_error *err);
/* The same of one that no step has set: an input, or the item of a fork. */
quire_err program_variable_give(quire_state *s, const char *name, program_value *v, quire_error *err);
/* The text of a value; of a list that of its items, a line each. BAD_REQUEST: it is an
 * error; err says which. */
quire_err program_value_text(const program_value *v, const char *name, strbuf *to, quire_error *err);
/* Whether a text is the same whatever value the variables in `names` get, and those that
 * it has are set. */
bool program_text_is_constant(const quire_state *s, const step_text *t, const char *const *names, size_t n);
/* Appends a text with the values of its variables; counts nothing. BAD_REQUEST: one is not
 * set. */
quire_err program_text_add(const quire_state *s, const step_text *t, program_text *to, quire_error *err);
/* Makes a text with the values of its variables; *out has one reference. BAD_REQUEST: one
 * is not set. */
quire_err program_text_expand(const quire_state *s, const step_text *t, program_text **out, quire_error *err);

#endif
