/* The parameters of a request that the engine reads, their bounds, and the form of the
 * rule that its answer obeys. */
#ifndef CORE_PARAMS_H
#define CORE_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "core/model_desc.h"

/* A request's lists of token ids: allowed, banned, biased. Immutable once made, and
 * reference-counted: the request and its sequences share them. Any thread. */

/* A list of n token sequences, stored one after the other: sequence i is tokens[starts[i]
 * .. starts[i + 1]). */
typedef struct token_seqs {
    int32_t n;
    int32_t *starts, *tokens;
    size_t cap_starts, cap_tokens;
} token_seqs;

typedef struct sampling_lists {
    int32_t n_bias, *bias_ids; /* logit_bias */
    float *bias;
    bool has_allowed; /* allowed_token_ids: if true, only `allowed` may be chosen */
    int32_t n_allowed, *allowed;
    int32_t n_scored, *scored; /* ids whose log-probabilities are always among those reported */
    token_seqs bad_words;
    token_seqs dry_breakers;
} sampling_lists;

/* Empty, with one reference. NULL if out of memory. */
sampling_lists *sampling_lists_new(void);
sampling_lists *sampling_lists_hold(sampling_lists *lists);
/* Drops a reference; the last one frees the lists. NULL is allowed. */
void sampling_lists_drop(sampling_lists *lists);

/* Copies the arguments. Allowed only while the lists have one reference. QUIRE_NO_MEMORY
 * leaves them unchanged. */
quire_err sampling_lists_set_bias(sampling_lists *lists, const int32_t *ids, const float *bias, int32_t n);
quire_err sampling_lists_set_allowed(sampling_lists *lists, const int32_t *ids, int32_t n);
quire_err sampling_lists_set_scored(sampling_lists *lists, const int32_t *ids, int32_t n);
/* Appends a sequence of n >= 1 tokens. Amortised O(n). QUIRE_NO_MEMORY. */
quire_err token_seqs_add(token_seqs *s, const int32_t *tokens, int32_t n);

#define PARAMS_MAX_STOP        16
#define PARAMS_MAX_TTL_S       (10.0 * 365 * 24 * 3600) /* the longest cache_ttl */
#define PARAMS_MAX_SALT_BYTES  4096
#define PARAMS_MAX_STOP_TOKENS 64
#define PARAMS_MAX_LOGPROBS    20
#define PARAMS_MAX_SCORED      64   /* ids in `scored` */
#define PARAMS_MAX_CHOICES     1024 /* choices of one request */

#define PARAMS_MAX_BEAMS       128
#define PARAMS_MAX_RULE_BYTES  ((size_t)1 << 20) /* text of a rule */
#define PARAMS_MAX_TOOLS_BYTES ((size_t)4 << 20) /* text of a list of tools */

/* When a beam search ends: the values false, true and "never" of the field
 * early_stopping. */
typedef enum beam_stopping {
    /* when the best beam, at its current length, could not rank among the finished
     * ones */
    BEAM_STOPPING_LIKELY,
    BEAM_STOPPING_EARLY, /* when the number of finished beams reaches the width */
    BEAM_STOPPING_NEVER  /* when no beam could ever rank among the finished ones */
} beam_stopping;

/* The parameters of beam search, which replaces sampling. Plain data. */
typedef struct beam_params {
    int32_t width;    /* number of beams; 0: no beam search */
    int32_t n_groups; /* groups of width / n_groups beams; divides width; 1: plain beam search */
    /* subtracted from a token's log-probability for each beam of earlier groups that
     * chose it in the same step; at least 0 */
    float diversity_penalty;
    float length_penalty; /* scores are sums of log-probabilities divided by length^length_penalty */
    beam_stopping stopping;
} beam_params;

/* The parameters of a request for one pooled row (embedding or scores). Plain data. */
typedef struct pooling_params {
    pooling_kind kind;  /* POOLING_NONE: the request is for tokens */
    int32_t dimensions; /* keeps the row's first `dimensions` elements (Matryoshka embeddings); 0: all */
    bool normalise;     /* divides the kept elements by their length */
} pooling_params;

typedef enum mirostat_version { MIROSTAT_OFF, MIROSTAT_1, MIROSTAT_2 } mirostat_version;

/* The stages of sampling after the penalties. */
typedef enum sampling_stage {
    SAMPLING_END,
    SAMPLING_TEMPERATURE,
    SAMPLING_TOP_N_SIGMA,
    SAMPLING_MIN_P,
    SAMPLING_TOP_K,
    SAMPLING_TYPICAL_P,
    SAMPLING_TOP_P,
    SAMPLING_XTC,
    SAMPLING_N_STAGES
} sampling_stage;

#define SAMPLING_PENALTIES_USUAL (-2)

/* The engine's sampling parameters. Plain data except for the lists. Stop strings and
 * other texts stay in the request. */
typedef struct sampling_params {
    float temperature; /* 0: greedy */
    float top_p, min_p, typical_p;
    float top_n_sigma;  /* cutoff, in standard deviations below the best logit; 0: off */
    int32_t top_k;      /* 0 or -1: off */
    int32_t max_tokens; /* -1: as many as fit */
    int32_t min_tokens;
    float repetition_penalty, frequency_penalty, presence_penalty; /* 1, 0, 0: off */
    /* number of last tokens, of prompt and output, that the penalties count; -1: all;
     * SAMPLING_PENALTIES_USUAL: all for repetition, the output for the others */
    int32_t penalty_last_n;
    /* stages to run after the penalties, in this order, terminated by SAMPLING_END; if
     * empty: all, in the usual order (sample/sampler.h) */
    uint8_t order[SAMPLING_N_STAGES];
    int32_t no_repeat_ngram_size;                   /* 0: off */
    float dry_multiplier, dry_base;                 /* multiplier 0: off */
    int32_t dry_allowed_length, dry_penalty_last_n; /* -1: all tokens */
    float xtc_probability, xtc_threshold;           /* probability 0: off */
    float dynatemp_range, dynatemp_exponent;        /* range 0: off */
    int32_t mirostat;                               /* mirostat_version */
    /* target surprise, in bits; learning rate */
    float mirostat_tau, mirostat_eta;
    bool ignore_eos;
    bool has_seed;
    uint64_t seed;
    /* with room for the token that ends a chat's turn */
    int32_t n_stop_tokens, stop_tokens[PARAMS_MAX_STOP_TOKENS + 1];
    /* NULL: none. Each stored copy of the struct holds a reference
     * (sampling_lists_hold) */
    sampling_lists *lists;
} sampling_params;

/* The number of ids that are reported besides the likeliest ones. */
static inline int32_t sampling_n_scored(const sampling_params *p) {
    return p->lists != NULL ? p->lists->n_scored : 0;
}

/* Sets temperature 1, no filters, penalties, biases or seed, and no token limit. */
void sampling_params_init(sampling_params *p);

/* ---- the form of a rule ---- */

/* The form of a rule for an answer: the notation of its text, and how JSON is written. */

typedef enum grammar_kind {
    GRAMMAR_REGEX,       /* text: a regular expression that must match the whole answer */
    GRAMMAR_SCHEMA,      /* text: a JSON Schema, draft 2020-12 or 7 */
    GRAMMAR_JSON_OBJECT, /* any JSON object; text is unused */
    GRAMMAR_CHOICE,      /* text: a JSON array of strings, one of which is the answer */
    GRAMMAR_EBNF,        /* text: a grammar in GBNF with the start rule `root` */
    GRAMMAR_W3C,         /* text: a grammar in W3C's EBNF; it starts at the first rule */
    GRAMMAR_LARK         /* text: a grammar in Lark's notation with the start rule `start` */
} grammar_kind;

/* White space between the tokens of JSON. */
typedef enum grammar_space {
    GRAMMAR_SPACE_COMPACT, /* none */
    /* none, a space, or one or two newlines; then up to GRAMMAR_SPACE_MAX spaces and
     * tabs */
    GRAMMAR_SPACE_LINES,
    GRAMMAR_SPACE_ANY /* wherever JSON allows it, at most GRAMMAR_SPACE_MAX bytes */
} grammar_space;
#define GRAMMAR_SPACE_MAX 20

/* Order of an object's members. */
typedef enum grammar_order {
    GRAMMAR_ORDER_SCHEMA, /* in the order of `properties`, other names last */
    GRAMMAR_ORDER_ANY
} grammar_order;

/* Spelling of integers, and of numbers in enum and const. */
typedef enum grammar_numbers {
    GRAMMAR_NUMBERS_SHORT, /* 1, not 1.0 */
    GRAMMAR_NUMBERS_ANY    /* also with zeros after the point, as in 1.0 and 1.000; no exponent */
} grammar_numbers;

/* Which members an object may have besides those that its schema names. */
typedef enum grammar_additional {
    GRAMMAR_ADDITIONAL_SCHEMA, /* the standard's rule: any name that is not forbidden */
    /* none, if a `properties` lists names and no keyword describes others, as with
     * unevaluatedProperties: false. Does not apply within `not`, `if` and `contains` */
    GRAMMAR_ADDITIONAL_CLOSED
} grammar_additional;

#endif
