/* The table of flags behind cli_options: each flag's names, type and help. */
#ifndef CLI_FLAGS_H
#define CLI_FLAGS_H

#include "cli/options.h"

typedef enum flag_type {
    FLAG_SWITCH,        /* bool: true when given */
    FLAG_TEXT,          /* const char * */
    FLAG_COUNT,         /* int32_t in minimum..maximum */
    FLAG_POWER_OF_TWO,  /* int32_t, the same */
    FLAG_PART,          /* double in minimum..maximum */
    FLAG_SECONDS,       /* int64_t of microseconds */
    FLAG_MILLISECONDS,  /* the same */
    FLAG_BYTES,         /* int64_t: a number, perhaps with K, M, G or T for powers of 1,024 */
    FLAG_GIB,           /* int64_t: the same, in GiB where no letter says otherwise */
    FLAG_CHOICE,        /* const char *, one of choices */
    FLAG_PRESET,        /* const char *: the only choice's value; takes no value. A synonym of another flag, so --help omits it */
    FLAG_KEY,           /* appended to api_keys */
    FLAG_PREFIX,        /* a file, appended to prefix_files */
    FLAG_FIELD_INTEGER, /* request field: integer */
    FLAG_FIELD_NUMBER,  /* request field: number */
    FLAG_FIELD_SWITCH,  /* request field: true */
    FLAG_FIELD_TEXTS    /* request field: array of strings, one more each time */
} flag_type;

#define FLAG_RARE (1u << 31) /* --help omits it, --help-all shows it */

/* A spelling and its value. A spelling that is its own value is shown in --help. */
typedef struct flag_choice {
    const char *spelling, *value;
} flag_choice;

typedef struct flag {
    const char *names;           /* separated by spaces: its own, then aliases */
    const char *value;           /* the value's name in --help; NULL for switches and choices */
    const char *meaning;
    unsigned commands;           /* cli_command bits, and FLAG_RARE */
    flag_type type;
    size_t offset;               /* into cli_options */
    double minimum, maximum;
    const flag_choice *choices;  /* ends with a NULL spelling */
    const char *field;           /* OpenAI's name of the request field */
} flag;

extern const flag cli_flags[];
extern const int cli_n_flags;

#endif
