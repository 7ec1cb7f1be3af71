/* A model on disk in any form: a GGUF file (one or split), a Hugging Face directory or a
 * packed model (packed.h), opened read-only and mapped.
 *
 * It has three parts: metadata by key, tensors by name, and the vocabulary with chat
 * template. It checks that they lie inside the file. src/model interprets the numbers and
 * src/text the tokens. Everything borrowed is valid until model_file_close. Immutable
 * after open: any thread may read. */
#ifndef FILE_MODEL_FILE_H
#define FILE_MODEL_FILE_H

#include "base/str.h"
#include "core/dtype.h"
#include "core/tensor.h"
#include "core/vocab.h"
#include "file/meta.h"

typedef struct model_file model_file;

/* path: a .gguf file (of a split one the first part), a packed model, a directory with
 * config.json or at least tokenizer.json, or a file inside such a directory. err names
 * the file, the position and the remedy. After a failure *out is unchanged. A file
 * without tensors (a vocabulary) or without a vocabulary can be opened. The files must
 * not be truncated while they are open. */
quire_err model_file_open(const char *path, model_file **out, quire_error *err);
/* Opens a GGUF or packed model in memory (the built-in model). The caller owns bytes.
 * name is used in messages. */
quire_err model_file_open_memory(const void *bytes, size_t n, const char *name, model_file **out,
                                 quire_error *err);

/* Opens only what a tokenizer needs, of a model of any architecture, with or without
 * weights: path is a directory, a GGUF file, a packed model, or a tokenizer file
 * (tokenizer.json, a SentencePiece .model, a rank file, tekken.json). QUIRE_NOT_FOUND for
 * a directory without a tokenizer. */
quire_err model_file_open_vocabulary(const char *path, model_file **out, quire_error *err);

/* The same two calls with overrides (meta.h), which are borrowed for the call; set may be
 * NULL. QUIRE_INVALID: err names the flag and the key. */
quire_err model_file_open_with(const char *path, const model_overrides *set, model_file **out,
                               quire_error *err);
quire_err model_file_open_memory_with(const void *bytes, size_t n, const char *name,
                                      const model_overrides *set, model_file **out, quire_error *err);
/* The overrides in force, also those that a packed model carries: part of the model's
 * identity. Equal texts are equal overrides; empty: none. Borrowed from the file. */
str model_file_overrides(const model_file *f);
/* Whether config.json has the key with null, which means "none" and not "the default".
 * Never for a GGUF file or an overridden key. */
bool model_file_is_null(const model_file *f, const char *key);
/* Whether the key's value in config.json is an object. */
bool model_file_is_object(const model_file *f, const char *key);
/* The flag that overrides the key; NULL: none. */
const char *model_file_set_by(const model_file *f, const char *key);
/* Call it once all metadata were read: QUIRE_INVALID names an override that was never
 * looked up. */
quire_err model_file_check_overrides(const model_file *f, quire_error *err);

/* The value of --quantization; empty: none. Borrowed from the file. */
const char *model_file_quantise(const model_file *f);

/* Call it before the tensors are loaded, by the only user of f. */
void model_file_watch(model_file *f, load_watch watch);
load_watch model_file_watcher(const model_file *f);

/* Drops a reference; the last one closes the file. */
void model_file_close(model_file *f);
/* Adds a reference and returns f. */
model_file *model_file_share(model_file *f);

/* The format; for a packed model its source's. */
model_format model_file_format(const model_file *f);
/* True when the model is packed; *out is then its compute mode. */
bool model_file_packed_for(const model_file *f, compute_mode *out);
const char *model_file_path(const model_file *f);

/* ---- tensors ---- */
int32_t model_file_n_tensors(const model_file *f);
const tensor_view *model_file_tensor(const model_file *f, int32_t i);
/* Finds a tensor by its exact name. NULL when there is none. O(log n) or better. */
const tensor_view *model_file_find(const model_file *f, const char *name);
/* Why a tensor cannot be read ("F8_E5M2"). A safetensors file may hold tensors that a
 * tensor_view cannot describe: an unknown dtype, over 4 dimensions, no elements; and an
 * index may name some that no file has. They are neither counted nor found. NULL when the
 * file has no such tensor. A GGUF file with such a tensor is refused. */
const char *model_file_why_unread(const model_file *f, const char *name);

/* ---- metadata: GGUF keys ("llama.block_count"), or config.json by dotted path
 * ("rope_scaling.factor", "text_config.hidden_size"). Each call returns QUIRE_NOT_FOUND
 * when the key is absent (or JSON null), QUIRE_BAD_FILE when its value has another type
 * (or is out of the result's range). out is then unchanged. Integers are accepted for
 * f32; a float that is a whole number is accepted for i64. ---- */
quire_err model_file_i64(const model_file *f, const char *key, int64_t *out);
quire_err model_file_f32(const model_file *f, const char *key, float *out);
quire_err model_file_bool(const model_file *f, const char *key, bool *out);
quire_err model_file_str(const model_file *f, const char *key, str *out);
/* Array of numbers, or of true and false as 1 and 0; also accepts one number as an array
 * of one. Writes at most max values and the array's real length to *n. */
quire_err model_file_i64s(const model_file *f, const char *key, int64_t *out, size_t max, size_t *n);
/* Array of numbers as f32, likewise. On an error out may be partly written. */
quire_err model_file_f32s(const model_file *f, const char *key, float *out, size_t max, size_t *n);
/* Element i of an array of numbers. QUIRE_NOT_FOUND past the end, and where it is
 * null. */
quire_err model_file_f32_at(const model_file *f, const char *key, size_t i, float *out);
/* Element i of an array of strings. *n (when not NULL) gets the array's length.
 * QUIRE_NOT_FOUND past the end; *n is then set too. */
quire_err model_file_str_at(const model_file *f, const char *key, size_t i, str *out, size_t *n);
/* model_file_i64s for generation_config.json of a Hugging Face directory (NOT_FOUND for
 * GGUF). */
quire_err model_file_generation_i64s(const model_file *f, const char *key, int64_t *out, size_t max,
                                     size_t *n);
/* ---- text ---- */
/* The vocabulary in the file; source VOCAB_NONE: none. */
const vocab *model_file_vocab(const model_file *f);
/* The chat template: chat_template.jinja, tokenizer_config.json's chat_template (the one
 * named "default" of several), chat_template.json's, or tokenizer.chat_template. Empty
 * when there is none. */
str model_file_chat_template(const model_file *f);

/* The modules of a sentence-transformers model: what modules.json lists, in order, each
 * with a directory that has its config.json and perhaps weights. The first is the model
 * itself, in the directory "".
 *
 * The file room reads them and checks that they stay inside the model's directory;
 * src/model knows what they mean. A module's tensors are the file's, named
 * "DIRECTORY/NAME" ("2_Dense/linear.weight"). GGUF files have none. Borrowed, as all of
 * an open file. */

int32_t model_file_n_modules(const model_file *f);
/* The full name of its class: "sentence_transformers.models.Pooling". */
str model_module_type(const model_file *f, int32_t i);
/* Its directory: "1_Pooling". */
const char *model_module_path(const model_file *f, int32_t i);
/* A value of its config.json, by dotted path; META_ABSENT also if there is no such
 * file. */
meta_value model_module_value(const model_file *f, int32_t i, const char *key);

/* Templates: a model's chat templates besides its default one, by name: "tool_use",
 * "rag".
 *
 * A Hugging Face directory has them as additional_chat_templates/NAME.jinja, or in the
 * list that is tokenizer_config.json's chat_template; a GGUF file as
 * tokenizer.chat_template.NAME. Borrowed, as all of an open file. */

size_t model_file_n_templates(const model_file *f);
/* Template i < n: its name, which is never "default", and its text. */
void model_file_template(const model_file *f, size_t i, str *name, str *text);

#endif
