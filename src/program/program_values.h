/* Texts and values of programs: reference counts, bounds, and expansion of steps'
 * texts. */
#ifndef PROGRAM_PROGRAM_VALUES_H
#define PROGRAM_PROGRAM_VALUES_H

#include "program/program_state.h"

/* Make an empty text or value with one reference; NULL: out of memory. */
program_text *program_text_new(void);
program_value *program_value_new(void);
/* Makes a value that is an error. */
program_value *program_value_failed(const quire_error *why);
/* Appends an item to a list. Takes the item's reference, also on failure; item NULL:
 * NO_MEMORY. */
quire_err program_value_add(program_value *list, program_value *item);
/* Makes a value that is a text. */
program_value *program_value_of(str text);
/* Makes a list of a text's parts between separators, leaving out empty ones. */
program_value *program_value_split(str text, const char *separator);

/* Counts n bytes of text. TOO_LARGE beyond the bound: the program must fail. */
quire_err program_count_bytes(program_root *r, size_t n, quire_error *err);
/* Counts n units of work that makes no text, such as bytes compared and variables
 * searched. TOO_LARGE as above. */
quire_err program_count_work(program_root *r, size_t n, quire_error *err);
/* Finds a variable; NULL: there is none. */
program_variable *program_variable_find(quire_state *s, const char *name);
/* Sets a variable of s to a value, and takes a reference to it. TOO_LARGE: s has too
 * many variables. */
quire_err program_variable_set(quire_state *s, const char *name, program_value *v, quire_error *err);
/* The same for one that no step sets: an input, or the item of a fork. */
quire_err program_variable_give(quire_state *s, const char *name, program_value *v, quire_error *err);
/* The text of a value; for a list its items, one a line. BAD_REQUEST: the value is an
 * error, which err repeats. */
quire_err program_value_text(const program_value *v, const char *name, strbuf *to, quire_error *err);
/* Whether a text has only variables that are set, and none of `names`. */
bool program_text_is_constant(const quire_state *s, const step_text *t, const char *const *names, size_t n);
/* Appends a text with its variables expanded; counts nothing. BAD_REQUEST: one is not
 * set. */
quire_err program_text_add(const quire_state *s, const step_text *t, program_text *to, quire_error *err);
/* Expands the variables of a text; *out has one reference. BAD_REQUEST: one is not
 * set. */
quire_err program_text_expand(const quire_state *s, const step_text *t, program_text **out, quire_error *err);

#endif
