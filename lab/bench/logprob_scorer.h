/* Log-probabilities of a text's own tokens, with keys and values of earlier tokens kept
 * in one of three ways.
 *
 *   paged        in pages of a real pool: a kv_seq's block tables; pages before windows
 *                are freed as it grows
 *   contiguous   in one piece per cache, with room for the longest chunk (baseline_kv.h);
 *                nothing is paged or freed
 *   none         not kept: every pass recomputes the whole prefix
 * By the determinism law (docs/design.md) all give the same bits, for any number of
 * tokens per pass.
 *
 * For the logits themselves, call logprob_scorer_pass repeatedly, then
 * logprob_scorer_end. Owner: one thread. */
#ifndef LAB_BENCH_LOGPROB_SCORER_H
#define LAB_BENCH_LOGPROB_SCORER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "kv/kv_seq.h"
#include "lab/bench/model_runner.h"

typedef enum kv_way { KV_WAY_PAGED, KV_WAY_CONTIGUOUS, KV_WAY_NONE } kv_way;
#define N_KV_WAYS (KV_WAY_NONE + 1)
enum { LOGPROB_MAX_SEQS = 16 };

extern const char *const kv_way_names[N_KV_WAYS];

typedef struct logprob_scorer {
    model_runner b;
    kv_cache cache;
    kv_seq *seqs; /* [n_seqs]; the first one is used for chunks */
    int32_t n_seqs, step, max_tokens;
    int64_t us[N_KV_WAYS]; /* time of the passes and of reading their logits, by figures_time_us */
} logprob_scorer;

/* Options of a scorer: chunks of at most max_tokens (at least 2) tokens, `step` of them
 * per pass. recomputes: also supports KV_WAY_NONE, whose passes take whole chunks.
 * max_len: length of the rotary tables. n_seqs: sequences with pages, at most
 * LOGPROB_MAX_SEQS; 0 counts as 1. */
typedef struct logprob_scorer_options {
    const quire_options *engine;
    int32_t step, max_tokens, max_len, n_seqs;
    bool recomputes;
} logprob_scorer_options;

/* On failure err says why, and nothing is left open. */
quire_err logprob_scorer_open(const logprob_scorer_options *o, logprob_scorer *out, quire_error *err);
void logprob_scorer_close(logprob_scorer *s);

/* out[0 .. n - 1): log-probabilities of tokens[1..n) given those before them, computed
 * from logits in double precision. 2 <= n <= max_tokens. QUIRE_UNSUPPORTED: pieces cannot
 * hold keys and values of this type. QUIRE_BAD_FILE: a logit is not finite. KV_WAY_PAGED
 * also audits the cache. */
quire_err logprob_scorer_chunk(logprob_scorer *s, kv_way way, const int32_t *tokens, int32_t n, double *out,
                               quire_error *err);

/* ---- single passes, in pages ---- */

/* Computes the next n tokens (1..step) of the first sequence; tokens: all of it, at most
 * max_tokens. model_runner_logits then has the rows of its last n_logits tokens.
 * QUIRE_NO_ROOM, QUIRE_NO_MEMORY: nothing was computed. */
quire_err logprob_scorer_pass(logprob_scorer *s, const int32_t *tokens, int32_t n, int32_t n_logits);
/* Gives all other sequences, which must be empty, copies of the first one's pages. */
quire_err logprob_scorer_copy(logprob_scorer *s);
/* Computes the next token of each of the first n sequences, which are alike, with its
 * logits, in one pass. The sequences keep their length, so it can be repeated. Errors as
 * in logprob_scorer_pass. */
quire_err logprob_scorer_decode(logprob_scorer *s, const int32_t *tokens, int32_t n);
/* Audits the cache and releases all pages. QUIRE_INTERNAL: err says what is wrong. */
quire_err logprob_scorer_end(logprob_scorer *s, const int32_t *tokens, quire_error *err);
/* Runs fn for each of n tasks, on the model's compute threads if it has any. */
void logprob_scorer_run_tasks(const logprob_scorer *s, thread_pool_fn fn, void *context, int32_t n);

/* ---- comparison of two models ---- */

/* Compares next-token probabilities by the Kullback-Leibler divergence KL(p || q) = sum
 * over tokens of p (log p - log q), p of the reference, q of the candidate, in nats. All
 * sums are in double precision in the order in which rows are added, so the same rows give
 * the same figures. */

/* One position of a text. */
typedef struct quality_row {
    double kl;
    double loss[2]; /* -log of the probability of the text's next token: by the reference, by the candidate */
    bool is_same;   /* both choose the same token; ties go to the lowest id */
} quality_row;

/* Compares rows of n_vocab logits; -inf is a masked token. A token with probability 0 in
 * the candidate must have 0 in the reference; otherwise, or with logits that are not
 * finite, kl or a loss is not finite. Pure; any thread. */
quality_row quality_compare(const float *reference, const float *candidate, int32_t n_vocab, int32_t target);

/* Accumulated rows. */
typedef struct quality_stats {
    double *kls; /* [cap], n of them used */
    int64_t n, cap, n_same;
    double loss[2]; /* sums of losses */
} quality_stats;

typedef struct quality_figures {
    double mean_kl, p99_kl;
    double perplexity[2]; /* exp of the mean loss: of the reference, of the candidate */
    double same_percent;
} quality_figures;

/* Makes room for cap rows. QUIRE_TOO_LARGE: over INT32_MAX; QUIRE_NO_MEMORY. On failure
 * *s is empty. */
quire_err quality_stats_init(quality_stats *s, int64_t cap);
void quality_stats_deinit(quality_stats *s);
/* Adds a row; there must be room. */
void quality_stats_add(quality_stats *s, const quality_row *r);
/* Computes the figures from at least one row; sorts kls. */
quality_figures quality_stats_figures(quality_stats *s);

#endif
