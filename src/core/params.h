/* The parameters of a request that the engine reads, their bounds, and the form of its
 * rule. */
#ifndef CORE_PARAMS_H
#define CORE_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "core/model_desc.h"

/* The lists of a request's sampling parameters: token ids that are allowed, banned or
 * biased. Made once, then read-only and reference-counted: the request and its sequences
 * share them. Any thread. */

/* n sequences of tokens, stored one after the other: sequence i is tokens[starts[i] ..
 * starts[i + 1]). */
typedef struct token_seqs {
    int32_t n;
    int32_t *starts, *tokens;
    size_t cap_starts, cap_tokens;
} token_seqs;

typedef struct sampling_lists {
    int32_t n_bias, *bias_ids; /* logit_bias */
    float *bias;
    bool has_allowed; /* allowed_token_ids: only these may be chosen */
    int32_t n_allowed, *allowed;
    int32_t n_scored, *scored; /* ids whose log-probabilities are reported wherever any are */
    token_seqs bad_words;
    token_seqs dry_breakers;
} sampling_lists;

/* New empty lists with one reference; NULL without memory. */
sampling_lists *sampling_lists_new(void);
sampling_lists *sampling_lists_hold(sampling_lists *lists);
/* Drops a reference; the last one frees the lists. NULL is allowed. */
void sampling_lists_drop(sampling_lists *lists);

/* Only while the maker holds the only reference. QUIRE_NO_MEMORY leaves the lists
 * unchanged. */
quire_err sampling_lists_set_bias(sampling_lists *lists, const int32_t *ids, const float *bias, int32_t n);
quire_err sampling_lists_set_allowed(sampling_lists *lists, const int32_t *ids, int32_t n);
quire_err sampling_lists_set_scored(sampling_lists *lists, const int32_t *ids, int32_t n);
/* Adds a sequence of n >= 1 tokens. O(n) on average. */
quire_err token_seqs_add(token_seqs *s, const int32_t *tokens, int32_t n);

#define PARAMS_MAX_STOP        16
#define PARAMS_MAX_TTL_S       (10.0 * 365 * 24 * 3600) /* the longest cache_ttl */
#define PARAMS_MAX_SALT_BYTES  4096
#define PARAMS_MAX_STOP_TOKENS 64
#define PARAMS_MAX_LOGPROBS    20
#define PARAMS_MAX_SCORED      64   /* ids whose log-probabilities are reported at each position */
#define PARAMS_MAX_CHOICES     1024 /* choices of one request */

#define PARAMS_MAX_BEAMS       128
#define PARAMS_MAX_RULE_BYTES  ((size_t)1 << 20) /* the text of a rule for responses */
#define PARAMS_MAX_TOOLS_BYTES ((size_t)4 << 20) /* a list of tools */

/* When a beam search ends: the values false, true and "never" of the field
 * early_stopping. */
typedef enum beam_stopping {
    /* when the best beam, at its current length, could not rank among the finished
     * ones */
    BEAM_STOPPING_LIKELY,
    BEAM_STOPPING_EARLY, /* when there are as many finished beams as the width */
    BEAM_STOPPING_NEVER  /* when no beam could ever rank among the finished ones */
} beam_stopping;

/* The parameters of beam search, which replaces sampling. Plain data. */
typedef struct beam_params {
    int32_t width;    /* beams in all; 0: no beam search */
    int32_t n_groups; /* sets of width / n_groups beams each; divides width; 1: plain beam search */
    /* subtracted from a token's log-probability for each beam of earlier sets that chose
     * it in this step; at least 0 */
    float diversity_penalty;
    float length_penalty; /* the sum of log-probabilities is divided by length^length_penalty */
    beam_stopping stopping;
} beam_params;

/* The parameters of a request for one pooled row in place of tokens: an embedding, or
 * scores. Plain data. */
typedef struct pooling_params {
    pooling_kind kind;  /* POOLING_NONE: the request is for tokens */
    int32_t dimensions; /* keeps the row's first so many elements (Matryoshka embeddings); 0: all */
    bool normalise;     /* the kept elements are divided by their length */
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

/* The engine's sampling parameters. Plain data, except for the lists, which are
 * reference-counted. Texts stay in the request. */
typedef struct sampling_params {
    float temperature; /* 0: greedy */
    float top_p, min_p, typical_p;
    float top_n_sigma;  /* standard deviations below the best logit; 0: off */
    int32_t top_k;      /* 0 or -1: off */
    int32_t max_tokens; /* -1: as many as fit */
    int32_t min_tokens;
    float repetition_penalty, frequency_penalty, presence_penalty; /* 1, 0, 0: off */
    /* the number of last tokens, of prompt and output, that the three penalties count;
     * -1: all; SAMPLING_PENALTIES_USUAL: repetition counts all tokens, the others the
     * output */
    int32_t penalty_last_n;
    /* the stages to run after the penalties, in this order, up to SAMPLING_END; if that
     * comes first: all, in the usual order (sample/sampler.h) */
    uint8_t order[SAMPLING_N_STAGES];
    int32_t no_repeat_ngram_size;                   /* 0: off */
    float dry_multiplier, dry_base;                 /* multiplier 0: off */
    int32_t dry_allowed_length, dry_penalty_last_n; /* -1: all tokens */
    float xtc_probability, xtc_threshold;           /* probability 0: off */
    float dynatemp_range, dynatemp_exponent;        /* range 0: off */
    int32_t mirostat;                               /* mirostat_version */
    /* target surprise in bits; learning rate */
    float mirostat_tau, mirostat_eta;
    bool ignore_eos;
    bool has_seed;
    uint64_t seed;
    int32_t n_stop_tokens, stop_tokens[PARAMS_MAX_STOP_TOKENS + 1]; /* one more: the end of a chat's turn */
    /* NULL: none. Each stored copy of the struct holds a reference
     * (sampling_lists_hold) */
    sampling_lists *lists;
} sampling_params;

/* The number of ids that are reported beside the likeliest. */
static inline int32_t sampling_n_scored(const sampling_params *p) {
    return p->lists != NULL ? p->lists->n_scored : 0;
}

/* Sets temperature 1, no filters, penalties or biases, as many tokens as fit, no seed. */
void sampling_params_init(sampling_params *p);

/* ---- the form of a rule ---- */

/* The form of a rule for an answer: the notation of its text, and the style of the JSON
 * that it allows. */

typedef enum grammar_kind {
    GRAMMAR_REGEX,       /* text: a regular expression that the whole answer matches */
    GRAMMAR_SCHEMA,      /* text: a JSON Schema, draft 2020-12 or 7 */
    GRAMMAR_JSON_OBJECT, /* any JSON object; text is unused */
    GRAMMAR_CHOICE,      /* text: a JSON array of strings; the answer is one of them */
    GRAMMAR_EBNF,        /* text: rules in GBNF; the answer matches the rule `root` */
    GRAMMAR_W3C,         /* text: rules in W3C's EBNF; the first rule is the answer's */
    GRAMMAR_LARK         /* text: rules in Lark's notation; the answer matches the rule `start` */
} grammar_kind;

/* White space between the tokens of JSON. */
typedef enum grammar_space {
    GRAMMAR_SPACE_COMPACT, /* none */
    /* none, a space, or one or two line ends, then at most GRAMMAR_SPACE_MAX spaces and
     * tabs */
    GRAMMAR_SPACE_LINES,
    GRAMMAR_SPACE_ANY /* wherever JSON allows it, at most GRAMMAR_SPACE_MAX bytes */
} grammar_space;
#define GRAMMAR_SPACE_MAX 20

/* Order of an object's members. */
typedef enum grammar_order {
    GRAMMAR_ORDER_SCHEMA, /* the order of `properties`, other names last */
    GRAMMAR_ORDER_ANY
} grammar_order;

/* How integers and the numbers of enum and const are written. */
typedef enum grammar_numbers {
    GRAMMAR_NUMBERS_SHORT, /* 1 */
    GRAMMAR_NUMBERS_ANY    /* 1, 1.0, 1.000: without exponent */
} grammar_numbers;

/* What an object may hold besides the names that its schema lists. */
typedef enum grammar_additional {
    GRAMMAR_ADDITIONAL_SCHEMA, /* as the standard says: any name that is not forbidden */
    /* nothing, if a `properties` lists names and no keyword describes others, as with
     * unevaluatedProperties: false. Not within `not`, `if` and `contains` */
    GRAMMAR_ADDITIONAL_CLOSED
} grammar_additional;

#endif
