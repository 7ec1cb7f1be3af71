/* Text that an API generated past the end of a gen, and what later gens take from it:
 * pure functions of texts and responses.
 *
 * A gen that is followed by constant text and another gen is sent without its stop
 * strings and with more tokens than its own. The text that comes is cut as the API
 * would have cut each gen: at the first token with which a stop string is complete, at
 * its most tokens, or at the model's end. What follows the cut is a guess of the
 * constant text and the later gens. As far as it agrees with the constant text, and a
 * token ends where that ends, it is what the API would (greedily) generate there, so
 * no call is needed. */
#ifndef CLI_API_GUESS_H
#define CLI_API_GUESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "quire.h"
#include "json/json.h"

/* A generated text. Shared by states. */
typedef struct api_text {
    int32_t refs;
    strbuf text;
    size_t *ends; /* [n_tokens] where each token ends in text, ascending */
    size_t n_tokens, cap_tokens;
    bool has_tokens; /* false: ends is not known */
    bool is_whole;   /* the model ended it; false: it was cut */
} api_text;

/* Where a gen ends. */
typedef struct api_rule {
    int32_t max_tokens; /* -1: not known */
    str stops[16];
    size_t n_stops;
} api_rule;

/* What a gen takes of a text: the bytes up to `end`, and n_tokens, the one that ended
 * it included. */
typedef struct api_cut {
    size_t end, n_tokens;
    quire_finish finish;
} api_cut;

/* Reads the text and tokens of a choice in a response of /chat/completions (is_chat) or
 * /completions. *out has one reference. IO: it is not a choice. */
quire_err api_text_read(const json_value *choice, bool is_chat, api_text **out);
api_text *api_text_share(api_text *t);
void api_text_drop(api_text *t);

/* Reads max_tokens and stop from a request's fields. False: too many stop strings, or
 * other types. The stops are borrowed. */
bool api_rule_read(const json_value *fields, api_rule *out);
/* Cuts the text from a byte at which a token begins as a gen with that rule would be
 * cut. False: the text ends before the gen does. O(bytes x stops). */
bool api_text_cut(const api_text *t, size_t from, const api_rule *rule, api_cut *out);
/* Whether a token begins at that byte, and the text from `from` on begins with `text`. */
bool api_text_agrees(const api_text *t, size_t from, str text);

/* What a response says. The choice with that index, or NULL; why a choice ended; a count
 * of tokens, 0 if it is not a valid one. */
const json_value *api_choice_at(const json_value *response, size_t index);
quire_finish api_finish_of(const json_value *choice);
int64_t api_count_of(const json_value *usage, const char *name);

#endif
