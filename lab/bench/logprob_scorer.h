/* Log-probabilities of a text's own tokens, with keys and values of earlier tokens kept
 * in one of three ways.
 *
 *   paged        in pages of a real pool: a kv_seq's block tables, pages after windows
 *                freed while it grows
 *   contiguous   in one piece a cache, with room for the longest chunk (baseline_kv.h);
 *                nothing is paged or freed
 *   none         nothing is kept: every pass computes the whole prefix again
 *
 * By the rule (docs/design.md, Determinism) all give the same bits, for any number of
 * tokens a pass.
 *
 * To get the logits themselves, call logprob_scorer_pass repeatedly, then
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

const char *kv_way_name(kv_way way);

typedef struct logprob_scorer {
    model_runner b;
    kv_cache cache;
    kv_seq *seqs; /* [n_seqs]; the first is a chunk's */
    int32_t n_seqs, step, max_tokens;
    int64_t us[N_KV_WAYS]; /* time of the passes and of reading their logits, by figures_time_us */
} logprob_scorer;

/* What a scorer is opened for: chunks of at most max_tokens tokens (at least 2), `step`
 * of them a pass; recomputes: by SCORE_NONE too, which takes passes of whole chunks.
 * max_len: positions that rotary tables reach. n_seqs: sequences with pages,
 * at most SCORE_MAX_SEQS; 0 counts as 1. */
typedef struct logprob_scorer_options {
    const quire_options *engine;
    int32_t step, max_tokens, max_len, n_seqs;
    bool recomputes;
} logprob_scorer_options;

/* On failure err says why, and nothing is left open. */
quire_err logprob_scorer_open(const logprob_scorer_options *o, logprob_scorer *out, quire_error *err);
void logprob_scorer_close(logprob_scorer *s);

/* out[0 .. n - 1): log-probabilities of tokens[1..n) after those before them, in double
 * precision from a row's logits. 2 <= n <= max_tokens. QUIRE_UNSUPPORTED: pieces cannot
 * hold keys and values of this type. QUIRE_BAD_FILE: a logit is not finite. SCORE_PAGED
 * audits the cache. */
quire_err logprob_scorer_chunk(logprob_scorer *s, kv_way way, const int32_t *tokens, int32_t n, double *out,
                               quire_error *err);

/* ---- passes by hand, in pages ---- */

/* The next n tokens (1..step) of the first sequence, tokens being all of it;
 * model_runner_logits then has the rows of the last n_logits of them. Up to max_tokens
 * tokens. QUIRE_NO_ROOM, QUIRE_NO_MEMORY: the pass was not made. */
quire_err logprob_scorer_pass(logprob_scorer *s, const int32_t *tokens, int32_t n, int32_t n_logits);
/* Gives all other sequences copies of the first one's pages; they are empty before. */
quire_err logprob_scorer_copy(logprob_scorer *s);
/* One pass of the next token of each of the first n sequences, which are alike, with its
 * logits. They stay as long as they were, so that it can be repeated. Errors as
 * logprob_scorer_pass. */
quire_err logprob_scorer_decode(logprob_scorer *s, const int32_t *tokens, int32_t n);
/* Audits the cache and gives all pages back. QUIRE_INTERNAL: err says what is wrong. */
quire_err logprob_scorer_end(logprob_scorer *s, const int32_t *tokens, quire_error *err);
/* fn for each of n tasks, on the model's compute threads where it has some. */
void logprob_scorer_run_tasks(const logprob_scorer *s, thread_pool_fn fn, void *context, int32_t n);

/* ---- how far two models lie apart ---- */

/* Compares a model's next-token probabilities with another's: for one row of logits, and
 * in figures over many.
 *
 * Kullback-Leibler divergence KL(p || q) = sum over tokens of p (log p - log q), p of the
 * reference, q of the candidate, in nats; 0 where they are the same. All sums are in
 * double precision, rows in the order in which they are added: the same rows give the
 * same figures. */

/* One position of a text. */
typedef struct quality_row {
    double kl;
    double loss[2]; /* -log of the probability of the text's next token: of the reference, of the candidate */
    bool is_same;   /* both choose the same token; of equal logits each takes the lowest id */
} quality_row;

/* Rows of n_vocab logits; -inf is a masked token, which the reference's probability must
 * be 0 for where the candidate's is. Of logits that are not so, or not finite, kl or a
 * loss is not finite. Pure, any thread. */
quality_row quality_compare(const float *reference, const float *candidate, int32_t n_vocab, int32_t target);

/* Rows as they are added. */
typedef struct quality_stats {
    double *kls; /* [cap], n of them */
    int64_t n, cap, n_same;
    double loss[2]; /* sums */
} quality_stats;

typedef struct quality_figures {
    double mean_kl, p99_kl;
    double perplexity[2]; /* exp of the mean loss: of the reference, of the candidate */
    double same_percent;
} quality_figures;

/* Room for cap rows. QUIRE_TOO_LARGE for more than INT32_MAX, QUIRE_NO_MEMORY; then it is
 * empty. */
quire_err quality_stats_init(quality_stats *s, int64_t cap);
void quality_stats_deinit(quality_stats *s);
/* Adds a row, for which there must be room. */
void quality_stats_add(quality_stats *s, const quality_row *r);
/* Computes the figures and sorts kls; needs at least one row. */
quality_figures quality_stats_figures(quality_stats *s);

#endif
