/* Structural tags: rules made of texts, free text, tags and grammars, in the formats of
 * xgrammar, vLLM and SGLang.
 *
 *   {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": [..],
 *    "tags": [{"begin", "content", "end"}]}}
 *   the older form: {"type": "structural_tag", "structures": [{"begin", "schema", "end"}],
 *    "triggers": [..]} */
#ifndef ANSWER_STRUCTURAL_TAG_H
#define ANSWER_STRUCTURAL_TAG_H

#include "answer/part_arena.h"
#include "json/json.h"

/* Converts the structural tag v to a grammar part, whose texts lie in v and in the arena.
 * QUIRE_INVALID: v is malformed; QUIRE_UNSUPPORTED: it uses an unsupported feature; *err
 * says where and what. The caller must also check a->failed. */
quire_err structural_tag_read(part_arena *a, const json_value *v, grammar_part *out, quire_error *err);

/* Checks that v, which structural_tag_read accepted, has no token that ends the answer at
 * a place where something must follow: QUIRE_INVALID otherwise, and *err says where.
 * ends: [n_ends] the end tokens. A regex, grammar or schema counts as something, even if
 * it may match the empty text. */
quire_err structural_tag_check_ends(const json_value *v, const grammar_marks *marks, const int32_t *ends,
                                    int32_t n_ends, quire_error *err);

#endif
