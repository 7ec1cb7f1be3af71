/* A vocabulary of byte strings with ranks, as tiktoken has it: two neighbours merge if
 * they make a string of the vocabulary, the one of lowest rank first. Rank files and
 * tekken.json are read into it. */
#ifndef TEXT_RANK_MODEL_H
#define TEXT_RANK_MODEL_H

#include "text/tokenizer_impl.h"

#define RANK_MAX_IDS (1 << 24)

typedef struct rank_token {
    size_t at; /* its bytes in `bytes` */
    uint32_t n;
    int32_t id;
} rank_token;

typedef struct rank_special {
    size_t at;
    uint32_t n;
    int32_t id;
    bool is_control; /* not shown; else it is found in all texts */
} rank_special;

typedef struct rank_model {
    strbuf bytes;
    rank_token *tokens; /* ids ascend with the ranks */
    size_t n, cap;
    rank_special *specials;
    size_t n_specials, cap_specials;
    str pattern;      /* borrowed; in the syntax of Rust's expressions */
    const char *file; /* in messages */
} rank_model;

void rank_model_deinit(rank_model *m);
/* Adds a token whose bytes are base64. QUIRE_BAD_FILE where they are not, or are none, or
 * the id is not below RANK_MAX_IDS. */
quire_err rank_model_add(rank_model *m, str base64, int64_t id);
/* Adds a special token. One without text, or with an id that a token or an earlier
 * special one has, counts for nothing. */
quire_err rank_model_add_special(rank_model *m, str text, int64_t id, bool is_control);
/* The id of a special token, or -1. */
int32_t rank_model_find_special(const rank_model *m, str text);
/* Fills *t, but for its post-processor and bos and eos. tables: of a packed model, or
 * empty. */
quire_err rank_model_build(const rank_model *m, str tables, tokenizer *t, quire_error *err);

#endif
