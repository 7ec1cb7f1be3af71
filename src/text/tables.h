/* A tokenizer's tables in one block of bytes (vocab.tables): the pieces and their index,
 * the merges, and adjacent characters, in the form in which the tokenizer searches them.
 *
 * Building the tables takes nearly all the time of opening a tokenizer. From a packed
 * model they are used in place. Everything else about a tokenizer is read from the
 * metadata as usual.
 *
 *   tables_header; then, each at a multiple of 64: texts, spans and slots of the pieces,
 *   those of the inner characters, slots of the pairs,
 *   slots of the neighbours, units of the trie, scores. Each kind of model
 *   (piece_model.h) has those that it searches. */
#ifndef TEXT_TABLES_H
#define TEXT_TABLES_H

#include "text/tokenizer.h"

/* of the layout, the hash functions, the meaning of ranks, and which tokens are added */
#define TABLES_VERSION 4

typedef struct tables_pieces {
    uint64_t n_ids, n_text, n_slots, seed;
} tables_pieces;

typedef struct tables_pairs {
    uint64_t n, n_slots, seed;
} tables_pairs;

typedef struct tables_header {
    uint64_t version;
    tables_pieces vocab, inner; /* n_slots 0: no such table */
    tables_pairs pairs, neighbours;
    uint64_t n_units, n_scores;
    double unknown_score; /* of Unigram */
} tables_header;

/* Appends t's tables to *out, which is empty. */
quire_err tables_write(const tokenizer *t, strbuf *out);
/* Uses bytes, at a multiple of 64 and hostile, as the tables of a tokenizer that has
 * none, but the kind of its model. They are borrowed until it is closed. */
quire_err tables_take(tokenizer *t, str bytes, quire_error *err);

#endif
