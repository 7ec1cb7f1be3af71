/* Resolves options and model to the numeric configuration and sizes of an engine, for an
 * engine and for `quire inspect`. */
#ifndef SETUP_ENGINE_CONFIG_H
#define SETUP_ENGINE_CONFIG_H

#include "answer/answer_format.h"
#include "core/kv_layout.h"
#include "core/model_desc.h"
#include "engine/engine.h"
#include "file/model_file.h"
#include "kv/most_pages.h"
#include "quire.h"

/* Copies a caller's options, which may come from another version's header
 * (quire_options_init). INVALID if their size, counts, or texts that do not depend on the
 * model are wrong; err explains it. */
quire_err options_read(const quire_options *given, quire_options *out, quire_error *err);
/* The bytes of a built-in model, a GGUF file inside the binary, aligned to 64, and their
 * number; static. Names: "builtin", or "builtin-small", a seventh of its size, which can
 * draft for it; NULL for other names (builtin.c). */
const void *options_builtin_model(const char *name, size_t *n_bytes);
/* Opens the file that o->model names: a path, or a built-in model, with o's overrides. */
quire_err options_open_file(const quire_options *o, model_file **out, quire_error *err);
/* The formats of responses: on entry *out has those found in the chat template; options
 * replace them by name. INVALID: an unknown name; err lists all. */
quire_err options_formats(const quire_options *o, output_formats *out, quire_error *err);
/* The compute mode. "auto" depends on the weights: F32: f32, 16-bit: bf16, quantised:
 * int8. A packed model has one mode only. */
quire_err options_compute(const quire_options *o, const model_desc *d, compute_mode *out, quire_error *err);
/* The types of keys and of values. "auto" is fp8_e4m3 if the checkpoint specifies it,
 * else f32 with f32 compute, else bf16. */
kv_types options_kv_types(const quire_options *o, const model_desc *d, compute_mode compute);
/* The longest sequence: o->max_model_len or the model's own. A length beyond the model's
 * trained one is refused if positions are learned; otherwise it gives a warning, unless
 * the rotary scaling adapts. */
quire_err options_max_model_len(const quire_options *o, const model_desc *d, int32_t *out, quire_error *err);
/* Rows in a step: o->max_batched_tokens or, without chunked prefill, enough for the
 * longest prompt besides the other sequences. */
int32_t options_max_rows(const quire_options *o, int32_t max_model_len);
/* The most pages that a sequence holds in such an engine, max_rows being the rows of a
 * step. */
kv_most options_most_pages(const quire_options *o, const model_desc *d, const kv_layout *l, int32_t max_rows);
/* The engine's options that follow from o, except for the tiers' version; n_pages and
 * max_model_len may still be 0. INVALID: err names the flag. */
quire_err options_engine(const quire_options *o, engine_options *out, quire_error *err);
/* Whether o has a tier that outlives the process, or is shared with others: only then do
 * its pages need a version. */
bool options_tiers_last(const quire_options *o);

#endif
