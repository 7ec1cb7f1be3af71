/* Structural tags: rules made of texts, free text, tags and grammars, as xgrammar has them and vLLM and SGLang take them.
 *
 *   {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": [..], "tags": [{"begin", "content", "end"}]}}
 *   {"type": "structural_tag", "structures": [{"begin", "schema", "end"}], "triggers": [..]}      the older form
 */
#ifndef API_STRUCTURAL_TAG_H
#define API_STRUCTURAL_TAG_H

#include "api/part_arena.h"
#include "json/json.h"

/* Reads v. Texts of *out lie in v and in the arena. QUIRE_INVALID: it is malformed; QUIRE_UNSUPPORTED: it holds what is not supported; *err
 * says where and what. A failure of the arena is the caller's to see. */
quire_err structural_tag_read(part_arena *a, const json_value *v, grammar_part *out, quire_error *err);

#endif
