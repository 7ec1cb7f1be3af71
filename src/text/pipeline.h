/* Reads the steps of a tokenizer from tokenizer.json, component by component, into the
 * structs of normalize.h, pretokenize.h and decode.h. */
#ifndef TEXT_PIPELINE_H
#define TEXT_PIPELINE_H

#include "base/err.h"
#include "text/decode.h"
#include "text/normalize.h"
#include "text/pretokenize.h"
#include "json/json.h"

/* Parts of a post-processor's template: the text's ids, the second text's ids, or
 * tokens. */
typedef enum post_kind { POST_A, POST_B, POST_TOKENS } post_kind;

typedef struct post_part {
    post_kind kind;
    int32_t type_id;
    int32_t *ids; /* TOKENS; owned */
    size_t n_ids;
} post_part;

typedef struct post_template {
    post_part *parts;
    size_t n, cap;
    bool is_set;         /* true also for a template without parts, which gives no ids */
    const char *refusal; /* why it cannot encode texts (static); NULL: it can */
} post_template;

/* The tokens around one text, and around two. A template that is not set adds none. */
typedef struct postprocessor {
    post_template single, pair;
    post_template start; /* around a chat template's text: BOS, if texts of this vocabulary begin with one */
} postprocessor;

void postprocessor_deinit(postprocessor *p);
quire_err post_template_add(post_template *t, post_kind kind, int32_t type_id, const int32_t *ids,
                            size_t n_ids);

typedef quire_err pipeline_load_fn(json_value *o, void *out, quire_error *err);

/* These functions read a component from JSON ("null" or empty: no steps) into *out. The
 * caller zeroes *out before, and deinits it in any case. QUIRE_UNSUPPORTED names an
 * unknown type or option, QUIRE_BAD_FILE what is malformed. */
quire_err pipeline_load_normalizer(str json, normalizer *out, quire_error *err);
quire_err pipeline_load_pretokenizer(str json, pretokenizer *out, quire_error *err);
quire_err pipeline_load_decoder(str json, decoder *out, quire_error *err);
/* The tokens' ids must be below n_ids. */
quire_err pipeline_load_postprocessor(str json, int32_t n_ids, postprocessor *out, quire_error *err);

#endif
