/* Pages of a pool, by the tokens of its sequences: a model's layers may be in several
 * groups, and a token takes room in a page of each; a group with a window keeps only the
 * last of a sequence's pages. Counts only; any thread. */
#ifndef LAB_BENCH_POOL_SIZE_H
#define LAB_BENCH_POOL_SIZE_H

#include "quire.h"

/* The most pages that a sequence of n_tokens holds in an open engine, in all groups; o:
 * what it was opened with. */
int64_t pool_size_sequence(const quire_options *o, const quire_engine *e, int64_t n_tokens);
/* Tokens that an open engine's pool holds where no window lets pages go. */
int64_t pool_size_tokens(const quire_info *i);

/* The pages in which n_seqs sequences of n_tokens each have room in an engine of these
 * options, which name a model; only its description is read. INVALID: more than a pool
 * can have; err begins with `flags`, the flags that ask for so many. */
quire_err pool_size_sequences(const quire_options *o, const char *flags, int64_t n_seqs, int64_t n_tokens,
                              int32_t *out, quire_error *err);
/* The pages of a pool of which each group has n_pages. The same otherwise. */
quire_err pool_size_groups(const quire_options *o, const char *flags, int64_t n_pages, int32_t *out,
                           quire_error *err);

#endif
