/* Derives the numeric configuration and the sizes of an engine from options and model.
 * `quire inspect` uses it too. */
#ifndef SETUP_ENGINE_CONFIG_H
#define SETUP_ENGINE_CONFIG_H

#include "answer/answer_format.h"
#include "core/kv_layout.h"
#include "core/model_desc.h"
#include "engine/engine.h"
#include "file/model_file.h"
#include "kv/most_pages.h"
#include "quire.h"

/* Copies a caller's options, which may have the layout of another version's header
 * (quire_options_init), and checks what does not depend on the model. QUIRE_INVALID:
 * their size, a count or a text is wrong; err says which. */
quire_err options_read(const quire_options *given, quire_options *out, quire_error *err);
/* The bytes of a built-in model (builtin.c): a GGUF file inside the binary, static and
 * aligned to 64 bytes. Names: "builtin", and "builtin-small", a draft model of a seventh
 * of its size. NULL for other names. */
const void *options_builtin_model(const char *name, size_t *n_bytes);
/* Opens the model file o->model, a path or a built-in model's name, with o's
 * overrides. */
quire_err options_open_file(const quire_options *o, model_file **out, quire_error *err);
/* The formats of responses. On entry *out has those found in the chat template; options
 * that name a format replace them. QUIRE_INVALID: an unknown name; err lists all. */
quire_err options_formats(const quire_options *o, output_formats *out, quire_error *err);
/* The compute mode. "auto": f32 for F32 weights, bf16 for 16-bit weights, int8 for
 * quantised ones. A packed model supports one mode only. */
quire_err options_compute(const quire_options *o, const model_desc *d, compute_mode *out, quire_error *err);
/* The types of keys and values. "auto": fp8_e4m3 if the checkpoint specifies it, else f32
 * in compute mode f32, else bf16. */
kv_types options_kv_types(const quire_options *o, const model_desc *d, compute_mode compute);
/* The most tokens of a sequence: o->max_model_len or the model's own limit. More than the
 * model was trained for is refused if positions are learned; otherwise it is logged as a
 * warning, unless the rotary scaling adapts. */
quire_err options_max_model_len(const quire_options *o, const model_desc *d, int32_t *out, quire_error *err);
/* The most rows in a step: o->max_batched_tokens or, without chunked prefill, enough for
 * the longest prompt and a row of each other sequence. */
int32_t options_max_rows(const quire_options *o, int32_t max_model_len);
/* The most pages that a sequence holds in an engine with steps of max_rows rows. */
kv_most options_most_pages(const quire_options *o, const model_desc *d, const kv_layout *l, int32_t max_rows);
/* Translates o to engine options, except for the tiers' version; n_pages and
 * max_model_len may still be 0. QUIRE_INVALID: err names the flag. */
quire_err options_engine(const quire_options *o, engine_options *out, quire_error *err);
/* Whether o has a tier that outlives the process or is shared with other processes: only
 * then do its pages need a version. */
bool options_tiers_last(const quire_options *o);

#endif
