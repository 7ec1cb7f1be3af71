/* Flags: what each is called, takes and means, and the groups of them that several commands take.
 *
 * A flag has quire's name first, then its aliases (vLLM's names, llama.cpp's short ones). */
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
    FLAG_LIST,          /* const char *: those of all times, with commas between them */
    FLAG_KEY,           /* appended to api_keys */
    FLAG_PREFIX,        /* a file, appended to prefix_files */
    FLAG_FIELD_INTEGER, /* request field: integer */
    FLAG_FIELD_NUMBER,  /* request field: number */
    FLAG_FIELD_SWITCH,  /* request field: true */
    FLAG_FIELD_TEXT,    /* request field: a text, or that of the file of this name */
    FLAG_FIELD_TEXTS,   /* request field: array of strings, one more each time */
    FLAG_FIELD_IDS,     /* request field: array of token ids, given as 1,2,3 */
    FLAG_FIELD_BIAS,    /* request field: object of numbers by token id, given as ID+X or ID-X, one more each time */
    FLAG_FIELD_CHOICE,  /* request field: one of choices, whose values are JSON */
    FLAG_FIELD_PRESET,  /* request field: the only choice's JSON; takes no value */
    FLAG_FIELDS,        /* request fields: a JSON object of them */
    FLAG_NAMES,         /* appended to served_names: one, and those that follow it */
    /* flags of other servers (carried_flags.c), which --help omits; `meaning` is the reason */
    FLAG_TAKEN,        /* without effect here; takes no value */
    FLAG_TAKEN_VALUE,  /* the same with a value, one of choices where it has those */
    FLAG_TAKEN_CHOICE, /* the same; the value may be missing */
    FLAG_LATER,        /* refused: not here yet */
    FLAG_REFUSED       /* refused: the reason names what is used instead */
} flag_type;

/* A spelling and its value. A spelling that is its own value is shown in --help. */
typedef struct flag_choice {
    const char *spelling, *value;
} flag_choice;

typedef struct flag {
    const char *names; /* separated by spaces: its own, then aliases. NULL ends a group */
    const char *value; /* the value's name in --help; NULL for switches and choices */
    const char *meaning;
    flag_type type;
    size_t offset; /* into the command's options, which begin with a cli_options */
    double minimum, maximum;
    const flag_choice *choices; /* ends with a NULL spelling */
    const char *others;         /* what those are whose values --help does not show; NULL: all are other spellings of shown ones */
    const char *field;          /* OpenAI's name of the request field */
    bool rare;                  /* --help omits it, --help-all shows it */
    bool secret;                /* its variable is erased once read */
} flag;

extern const flag_choice choices_compute[], choices_quantization[], choices_kv_dtype[], choices_prefix_cache[], choices_isa[];

/* The row of --quantization, of commands whose options have it at another place too. */
#define FLAG_QUANTIZATION(place)                                                                                                           \
    {                                                                                                                                      \
        "--quantization", NULL, "quantise 16-bit weights while loading", FLAG_CHOICE, place,                                               \
            .choices = choices_quantization, .others = "what the file is already, without effect"                                          \
    }

/* The spelling's value, or NULL. */
const char *flag_choice_find(const flag_choice *choices, const char *spelling);

/* Flags of vLLM and llama-server that scripts carry over: taken without effect, or refused with the reason (docs/flags.md). A command's own
 * flags go before. */
extern const flag flags_carried[];

/* Groups of cli_options' own members; each ends with a flag without names. */
extern const flag flags_help[], flags_help_all[]; /* every command takes the first, last; the second where one of its flags is rare */
extern const flag flags_json[], flags_quiet[], flags_hub[], flags_model[], flags_prompt[], flags_out[], flags_generation_config[];
extern const flag flags_tokenizer[], flags_chat_template[], flags_answers[], flags_attention[];
extern const flag flags_compute[], flags_quantization[], flags_kv_dtype[], flags_prefix_cache[], flags_eviction[], flags_audit[];
extern const flag flags_schedule[], flags_step_target[], flags_isa[], flags_threads[], flags_cpu_bind[], flags_model_len[];
extern const flag flags_step_rows[], flags_seqs[], flags_chunk[], flags_page_size[], flags_pool[], flags_mlock[], flags_memory[];
extern const flag flags_pack_cache[], flags_pack_cache_place[], flags_tier_file[], flags_tier_file_bytes[], flags_tier_redis[],
    flags_tier_limits[];

/* Groups that every command with an engine takes; others may lie between them. */
#define FLAGS_NUMERIC flags_compute, flags_kv_dtype, flags_prefix_cache
#define FLAGS_MACHINE flags_isa, flags_threads, flags_cpu_bind
#define FLAGS_BATCH   flags_model_len, flags_step_rows, flags_seqs, flags_chunk, flags_page_size, flags_pool
#define FLAGS_MEMORY                                                                                                                       \
    flags_memory, flags_tier_file, flags_tier_file_bytes, flags_tier_redis, flags_tier_limits, flags_quiet, flags_help, flags_help_all

#endif
