/* A tokenizer's tables as one block of bytes (vocab.tables): the pieces and their index,
 * the merges, and adjacent characters, in the layout in which the tokenizer searches
 * them.
 *
 * Building the tables takes nearly all the time of opening a tokenizer. With a packed
 * model they are used in place; the rest of the tokenizer is read from the metadata as
 * usual.
 *
 * tables_header comes first, then, each at a multiple of 64: texts, spans and slots of
 * the pieces; the same of the inner characters; slots of the pairs; slots of the
 * neighbours; units of the trie; scores. A kind of model (piece_model.h) has those that
 * it searches. */
#ifndef TEXT_TABLES_H
#define TEXT_TABLES_H

#include "text/tokenizer.h"

/* Version of the layout, the hash functions, the meaning of ranks, and which tokens are
 * added. */
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
    double unknown_score; /* Unigram */
} tables_header;

/* Appends t's tables to *out, which is empty. QUIRE_NO_MEMORY. */
quire_err tables_write(const tokenizer *t, strbuf *out);
/* Uses bytes, untrusted and aligned to 64, as the tables of a tokenizer of which only the
 * kind of model is set; borrows them until it is closed. QUIRE_UNSUPPORTED: another
 * version; QUIRE_BAD_FILE. */
quire_err tables_take(tokenizer *t, str bytes, quire_error *err);

#endif
