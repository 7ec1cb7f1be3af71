/* Structural tags: rules made of texts, free text, tags and grammars, as xgrammar has
 * them and vLLM and SGLang take them.
 *
 *   {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": [..],
 *    "tags": [{"begin", "content", "end"}]}}
 *   {"type": "structural_tag", "structures": [{"begin", "schema", "end"}],
 *    "triggers": [..]}: the older form */
#ifndef ANSWER_STRUCTURAL_TAG_H
#define ANSWER_STRUCTURAL_TAG_H

#include "answer/part_arena.h"
#include "json/json.h"

/* Reads v. Texts of *out lie in v and in the arena. QUIRE_INVALID: it is malformed;
 * QUIRE_UNSUPPORTED: it uses an unsupported feature; *err says where and what. The caller
 * checks the arena for a failure. */
quire_err structural_tag_read(part_arena *a, const json_value *v, grammar_part *out, quire_error *err);

/* Checks that no token that ends the answer stands in v where something must follow it:
 * otherwise QUIRE_INVALID, and *err says where. v was accepted by structural_tag_read.
 * Text of a regex, a grammar or a schema counts as something, even if it may be empty. */
quire_err structural_tag_check_ends(const json_value *v, const grammar_marks *marks, const int32_t *ends,
                                    int32_t n_ends, quire_error *err);

#endif
