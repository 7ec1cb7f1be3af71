/* Options as rows: name on the command line, meaning, place in a struct, range and
 * default.
 *
 * One row describes an option completely. Everything else is derived from it: the default
 * in the struct, the checks of its value, the flag, its environment variable, its line of
 * --help, its paragraph of the manual page and docs/flags.md. Quire's own name comes
 * first, then aliases: vLLM's, llama.cpp's short ones. Rows are constant; any thread. */
#ifndef OPTIONS_FLAG_H
#define OPTIONS_FLAG_H

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

typedef enum flag_type {
    FLAG_SWITCH,       /* bool: true when given */
    FLAG_TEXT,         /* const char * */
    FLAG_COUNT,        /* int32_t in minimum..maximum */
    FLAG_POWER_OF_TWO, /* int32_t, the same */
    FLAG_PART,         /* double in minimum..maximum */
    FLAG_SECONDS,      /* int64_t of microseconds; the range is in seconds */
    FLAG_MILLISECONDS, /* int64_t of microseconds; the range is in milliseconds */
    FLAG_BYTES,        /* int64_t from minimum: a number, perhaps with K, M, G or T for powers of 1,024 */
    FLAG_GIB,          /* int64_t: the same, in GiB unless a letter gives another unit */
    FLAG_CHOICE,       /* an enum: the value of one of choices */
    FLAG_NAME,         /* const char *: the text of one of choices */
    FLAG_SYNONYM,      /* the only choice of another row's option; takes no value, and --help omits it */
    FLAG_LIST,         /* const char *: the values of all its occurrences, joined by commas */
    /* const char *: the values of all its occurrences, one a line, and the words after
     * each that contain '=' or begin with '{' */
    FLAG_LINES,
    /* the same; a number after a word is joined to it by a colon */
    FLAG_SCALED,

    /* Types for command lines only, which set more than one member of a struct
     * (cli/set_flag.c). */
    FLAG_KEY,           /* appended to api_keys */
    FLAG_PREFIX,        /* a file, appended to prefix_files */
    FLAG_FIELD_INTEGER, /* request field: integer */
    FLAG_FIELD_NUMBER,  /* request field: number */
    FLAG_FIELD_SWITCH,  /* request field: true */
    FLAG_FIELD_TEXT,    /* request field: a text, or the content of the file of this name */
    FLAG_FIELD_TEXTS,   /* request field: array of strings, one more each time */
    FLAG_FIELD_IDS,     /* request field: array of token ids, given as 1,2,3 */
    /* request field: an object of numbers by token id; each occurrence adds one, given as
     * ID+X or ID-X */
    FLAG_FIELD_BIAS,
    FLAG_FIELD_CHOICE, /* request field: one of choices, whose texts are JSON */
    FLAG_FIELD_PRESET, /* request field: the only choice's JSON; takes no value */
    FLAG_FIELDS,       /* request fields: a JSON object of them */
    FLAG_NAMES,        /* appended to served_names, with the words that follow */
    FLAG_PINNED,       /* appended to pinned */

    /* flags of other servers (cli/flags.c), which --help omits; `meaning` is the
     * reason */
    FLAG_TAKEN,        /* without effect here; takes no value */
    FLAG_TAKEN_VALUE,  /* the same with a value, one of its choices if it has any */
    FLAG_TAKEN_CHOICE, /* the same; the value may be missing */
    FLAG_LATER,        /* refused: not implemented yet */
    FLAG_REFUSED       /* refused: the reason names a replacement */
} flag_type;

/* The struct of options to which a row's offset belongs, in programs with several: a
 * command's own, which begins with the engine's, or the server's. */
typedef enum flag_struct { FLAG_OF_COMMAND, FLAG_OF_SERVER } flag_struct;

/* A spelling and its value: a number for FLAG_CHOICE and its synonyms, else a text. The
 * first spelling of a value is shown in --help. */
typedef struct flag_choice {
    const char *spelling, *text;
    int value;
} flag_choice;

typedef struct flag {
    const char *names; /* separated by spaces: its own, then aliases. NULL ends a group */
    const char *value; /* the value's name in --help; NULL for switches and choices */
    const char *meaning;
    flag_type type;
    size_t offset; /* into the struct of options */
    flag_struct of;
    double minimum, maximum;
    /* the default as stored in the struct: microseconds, bytes, an enum's value; false
     * for a switch */
    double number;
    const char *text;           /* default of a text; NULL: none, and the member may be NULL */
    const flag_choice *choices; /* ends with a NULL spelling */
    /* describes the choices that --help does not show; NULL: all are aliases of shown
     * ones */
    const char *others;
    const char *field; /* OpenAI's name of the request field */
    bool rare;         /* --help omits it, --help-all shows it */
    bool secret;       /* its variable is erased once read */
} flag;

/* Returns the next of a flag's names and moves *names past it, at the end to its
 * terminating 0. Begin with *names = flag.names. */
str flag_next_name(const char **names);
/* Whether `name` is one of the flag's names. */
bool flag_is(const flag *f, str name);
/* Whether the flag takes no value. */
bool flag_is_switch(const flag *f);
/* Whether the value is a single member of a struct of options. */
bool flag_is_option(const flag *f);
/* Whether the flag is Quire's own and not a synonym: help, man pages and completions show
 * only these. */
bool flag_is_own(const flag *f);
/* Whether help lists a choice of the flag: second spellings of a choice and synonyms are
 * left out. */
bool flag_choice_is_shown(const flag *f, const flag_choice *c);
/* The choice of a spelling, or NULL. */
const flag_choice *flag_choice_find(const flag_choice *choices, const char *spelling);
/* The spelling of an enum's value; "?" if it is none of the choices. */
const char *flag_choice_name(const flag_choice *choices, int value);
/* Lists the spellings of the choices that are shown, or of the others, in out of n bytes:
 * "a, b". */
void flag_list_choices(const flag *f, bool shown, char *out, size_t n);

/* Parses a number, a whole one, or a word that turns a switch on or off (NULL: on).
 * INVALID: name and text begin the message. */
quire_err flag_parse_number(const char *name, const char *text, double *out, quire_error *err);
quire_err flag_parse_integer(const char *name, const char *text, int64_t *out, quire_error *err);
quire_err flag_parse_switch(const char *name, const char *text, bool *out, quire_error *err);

/* Sets the option (flag_is_option, or a synonym) in the struct `options` to text, which
 * is borrowed; NULL sets a switch and a synonym. name: what the user wrote; every error
 * begins with it. QUIRE_INVALID: nothing is changed. */
quire_err flag_set_option(const flag *f, const char *name, const char *text, void *options, quire_error *err);
/* Sets the option's default. */
void flag_set_default(const flag *f, void *options);
/* The defaults of all options of the groups, a list that ends with NULL. */
void flags_set_defaults(const flag *const *groups, void *options);
/* QUIRE_INVALID: the struct has a value that no text could set; err names the flag and
 * its valid values. */
quire_err flag_check_option(const flag *f, const void *options, quire_error *err);
/* Checks all options of the groups, and reports the first error. */
quire_err flags_check(const flag *const *groups, const void *options, quire_error *err);
/* Writes the option's value in the form of a command line to out, of n bytes; returns
 * false if there is none to write: a switch, a text that is NULL, an enum's value that no
 * choice has. */
bool flag_show_option(const flag *f, const void *options, char *out, size_t n);

#endif
