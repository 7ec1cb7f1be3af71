/* The tables of `quire inspect`: layers, caches and rotary tables of a model. */
#ifndef SETUP_INSPECT_LAYERS_H
#define SETUP_INSPECT_LAYERS_H

#include "base/str.h"
#include "core/kv_layout.h"
#include "json/json_out.h"

/* For people: a run of equal layers is one line, and so are their caches. l: the pages in
 * which the caches are. */
quire_err inspect_layers_text(strbuf *b, const model_desc *d, const kv_layout *l);
/* For programs: "layers", "caches" and "ropes", an element each. */
void inspect_layers_json(json_out *o, const model_desc *d, const kv_layout *l);

#endif
