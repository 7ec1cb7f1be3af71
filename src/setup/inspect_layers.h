/* The tables of `quire inspect`: layers, caches and rotary tables of a model. */
#ifndef SETUP_INSPECT_LAYERS_H
#define SETUP_INSPECT_LAYERS_H

#include "base/str.h"
#include "core/kv_layout.h"
#include "json/json_out.h"

/* Appends tables for people: a run of equal layers is one line, and so are its caches. l:
 * the layout of the pages with these caches. Errors of strbuf_add. */
quire_err inspect_layers_text(strbuf *b, const model_desc *d, const kv_layout *l);
/* Writes JSON members for programs: the arrays "layers", "caches" and "ropes". */
void inspect_layers_json(json_out *o, const model_desc *d, const kv_layout *l);

#endif
