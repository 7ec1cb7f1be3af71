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
    FLAG_SWITCH,       /* bool: true if given */
    FLAG_TEXT,         /* const char * */
    FLAG_COUNT,        /* int32_t in minimum..maximum */
    FLAG_POWER_OF_TWO, /* int32_t: a power of two in minimum..maximum */
    FLAG_PART,         /* double in minimum..maximum */
    FLAG_SECONDS,      /* int64_t of microseconds; the range is in seconds */
    FLAG_MILLISECONDS, /* int64_t of microseconds; the range is in milliseconds */
    FLAG_BYTES,        /* int64_t from minimum: a number, perhaps with K, M, G or T for powers of 1,024 */
    FLAG_GIB,          /* int64_t: as FLAG_BYTES, but in GiB unless a letter gives another unit */
    FLAG_CHOICE,       /* an enum: the `value` of one of choices */
    FLAG_NAME,         /* const char *: the `text` of one of choices */
    /* sets another row's option to the only choice; without a value; not in --help */
    FLAG_SYNONYM,
    FLAG_LIST, /* const char *: the values of all its occurrences, joined by commas */
    /* const char *: the values of all its occurrences, one per line, each with the words
     * after it that contain '=' or begin with '{' */
    FLAG_LINES,
    /* as FLAG_LINES; a number after a word is joined to it by a colon */
    FLAG_SCALED,

    /* Types for command lines only, which set several members (cli/set_flag.c). */
    FLAG_KEY,           /* appended to api_keys */
    FLAG_PREFIX,        /* a file, appended to prefix_files */
    FLAG_FIELD_INTEGER, /* request field: integer */
    FLAG_FIELD_NUMBER,  /* request field: number */
    FLAG_FIELD_SWITCH,  /* request field: true */
    FLAG_FIELD_TEXT,    /* request field: a text, or the content of the file of this name */
    FLAG_FIELD_TEXTS,   /* request field: array of strings; each occurrence adds one */
    FLAG_FIELD_IDS,     /* request field: array of token ids, given as 1,2,3 */
    /* request field: an object of numbers by token id; each ID+X or ID-X adds one */
    FLAG_FIELD_BIAS,
    FLAG_FIELD_CHOICE, /* request field: one of choices, whose texts are JSON */
    FLAG_FIELD_PRESET, /* request field: the only choice's JSON; takes no value */
    FLAG_FIELDS,       /* request fields: the members of a JSON object */
    FLAG_NAMES,        /* appended to served_names, as are the words that follow */
    FLAG_PINNED,       /* a model's name, appended to pinned */

    /* Flags of other servers (cli/flags.c), not in --help. `meaning` is the reason. */
    FLAG_TAKEN,        /* ignored; takes no value */
    FLAG_TAKEN_VALUE,  /* ignored, with a value: one of choices if there are any */
    FLAG_TAKEN_CHOICE, /* as FLAG_TAKEN_VALUE, but the value may be missing */
    FLAG_LATER,        /* refused: not implemented yet */
    FLAG_REFUSED       /* refused: `meaning` names a replacement */
} flag_type;

/* The struct that a row's offset indexes: the options of a command, which begin with the
 * engine's, or those of the server. */
typedef enum flag_struct { FLAG_OF_COMMAND, FLAG_OF_SERVER } flag_struct;

/* A spelling and its meaning: `value` for FLAG_CHOICE and its synonyms, else `text`. The
 * first spelling of a value is shown in --help. */
typedef struct flag_choice {
    const char *spelling, *text;
    int value;
} flag_choice;

typedef struct flag {
    const char *names; /* separated by spaces: Quire's name, then aliases; NULL ends a group */
    const char *value; /* the value's name in --help; NULL for switches and choices */
    const char *meaning;
    flag_type type;
    size_t offset; /* into the struct of options */
    flag_struct of;
    double minimum, maximum;
    /* the default as stored: microseconds, bytes, an enum's value; a switch is false */
    double number;
    const char *text;           /* default of a text; NULL: no default, and the member may be NULL */
    const flag_choice *choices; /* ends with a NULL spelling */
    /* describes the choices that --help omits; NULL: they are aliases of shown ones */
    const char *others;
    const char *field; /* OpenAI's name of the request field */
    bool rare;         /* --help omits it, --help-all shows it */
    bool secret;       /* its environment variable is erased once read */
} flag;

/* Returns the next of a flag's names and moves *names past it; **names is 0 at the end.
 * Begin with *names = flag.names. */
str flag_next_name(const char **names);
/* Whether `name` is one of the flag's names. */
bool flag_is(const flag *f, str name);
/* Whether the flag takes no value. */
bool flag_is_switch(const flag *f);
/* Whether the flag sets a single member of a struct of options. */
bool flag_is_option(const flag *f);
/* Whether help, man pages and completions show the flag: Quire's own, no synonym. */
bool flag_is_own(const flag *f);
/* Whether help lists a choice of the flag: a first spelling, of no synonym. */
bool flag_choice_is_shown(const flag *f, const flag_choice *c);
/* Returns the choice with a spelling, or NULL. */
const flag_choice *flag_choice_find(const flag_choice *choices, const char *spelling);
/* Returns the first spelling of an enum's value; "?" if no choice has it. */
const char *flag_choice_name(const flag_choice *choices, int value);
/* Writes the choices that help shows, or the others, to out[0..n) as "a, b". */
void flag_list_choices(const flag *f, bool shown, char *out, size_t n);

/* Parse a number, an integer, or the value of a switch, such as "on" or "0" (NULL: on).
 * QUIRE_INVALID: *out is unchanged; the message begins with name and text. */
quire_err flag_parse_number(const char *name, const char *text, double *out, quire_error *err);
quire_err flag_parse_integer(const char *name, const char *text, int64_t *out, quire_error *err);
quire_err flag_parse_switch(const char *name, const char *text, bool *out, quire_error *err);

/* Sets the member of the struct `options` that the flag (flag_is_option, or a synonym)
 * describes. text: the value, borrowed; NULL for a switch that is given, and for a
 * synonym. name: the flag as the user wrote it; every error begins with it.
 * QUIRE_INVALID: nothing is changed. */
quire_err flag_set_option(const flag *f, const char *name, const char *text, void *options, quire_error *err);
/* Sets the member of the struct `options` to the option's default. */
void flag_set_default(const flag *f, void *options);
/* Sets all options of `groups`, a list that ends with NULL, to their defaults. */
void flags_set_defaults(const flag *const *groups, void *options);
/* Checks the option's value in the struct. QUIRE_INVALID: flag_set_option would refuse
 * it; err names the flag and its valid values. */
quire_err flag_check_option(const flag *f, const void *options, quire_error *err);
/* Checks all options of the groups, and reports the first error. */
quire_err flags_check(const flag *const *groups, const void *options, quire_error *err);
/* Writes the option's value to out[0..n) as one would give it on a command line. False:
 * it has no such form (a switch, a NULL text, an enum's value that no choice has). */
bool flag_show_option(const flag *f, const void *options, char *out, size_t n);

#endif
