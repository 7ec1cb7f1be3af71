/* The added tokens of a Hugging Face tokenizer: those of tokenizer.json, and those that
 * only tokenizer_config.json's added_tokens_decoder names, as transformers adds them to
 * it.
 *
 * A token whose text the vocabulary has keeps that id; another one gets the next free id,
 * in the order of the names in the decoder. Of a token that both files name, the
 * decoder's flags count. */
#ifndef TEXT_ADDED_LIST_H
#define TEXT_ADDED_LIST_H

#include "json/json.h"

typedef struct added_entry {
    json_value *flags; /* the object that describes it; borrowed */
    str content;
    int32_t id;     /* -1: not known yet, or the file has none */
    int64_t order;  /* the decoder's name for it; -1: of tokenizer.json */
    bool by_config; /* its flags are tokenizer_config.json's */
    bool special;
} added_entry;

typedef struct added_list {
    added_entry *entries; /* those of tokenizer.json, then the others by order */
    size_t n, cap, n_file;
    size_t *by_content; /* [n - n_file] the others by their content */
} added_list;

/* Reads the tokens; both are borrowed until the deinit. added: tokenizer.json's array;
 * config: tokenizer_config.json; both may be NULL. QUIRE_NO_MEMORY. Deinit in any case.
 * O(n log n). */
quire_err added_list_read(added_list *l, json_value *added, json_value *config);
void added_list_deinit(added_list *l);
/* Whether some ids are to be found in the vocabulary: added_list_note is then to be
 * called with each piece of it. */
bool added_list_is_open(const added_list *l);
void added_list_note(added_list *l, str piece, int32_t id);
/* Gives ids to those whose text no piece had; n_vocab: the model's own pieces. */
void added_list_number(added_list *l, int64_t n_vocab);
/* The largest id, or -1. */
int64_t added_list_max_id(const added_list *l);

#endif
