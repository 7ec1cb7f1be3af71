/* The settings of tokenizer_config.json for the vocabulary beside it. Every call takes
 * NULL for no such file. */
#ifndef TEXT_TOKENIZER_CONFIG_H
#define TEXT_TOKENIZER_CONFIG_H

#include "text/tokenizer_impl.h"
#include "json/json.h"

/* The text of "bos_token": "<s>", or of {"content": "<s>", ...}; borrowed, empty if there
 * is none. */
str config_special(json_value *config, const char *key);
/* Reads a name of added_tokens_decoder, which is an id. */
bool config_token_id(const char *name, int64_t *id);
/* The value of add_bos_token: 0 or 1; -1: it is absent. */
int32_t config_says_bos(json_value *config);
/* Sets bos and eos of t (-1: none), and a post-processor with those that the file asks
 * for, else those of the flags. */
quire_err config_surround(tokenizer *t, json_value *config, int32_t bos, int32_t eos, bool add_bos,
                          bool add_eos);

#endif
