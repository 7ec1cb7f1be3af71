/* A model on disk in any format: a GGUF file (one, or the parts of a split model), a
 * Hugging Face directory or a packed model (packed.h), opened read-only and mapped.
 *
 * It has three parts: metadata by key, tensors by name, and the vocabulary with chat
 * templates. This room checks that they lie inside the file; src/model interprets the
 * numbers and src/text the tokens. Everything borrowed is valid until model_file_close.
 * Immutable after open: any thread may read. */
#ifndef FILE_MODEL_FILE_H
#define FILE_MODEL_FILE_H

#include "base/str.h"
#include "core/dtype.h"
#include "core/tensor.h"
#include "core/vocab.h"
#include "file/meta.h"

typedef struct model_file model_file;

/* Opens a model. path: a .gguf file (the first part of a split model), a packed model, a
 * directory with config.json or at least tokenizer.json, or a file inside such a
 * directory. A file without tensors (a vocabulary) or without a vocabulary can be opened.
 * The files must not be truncated while they are open. err names the file, the position
 * and the remedy; *out is then unchanged. */
quire_err model_file_open(const char *path, model_file **out, quire_error *err);
/* Opens a GGUF or packed model in memory (the built-in model). Borrows bytes until the
 * close. name: for messages. */
quire_err model_file_open_memory(const void *bytes, size_t n, const char *name, model_file **out,
                                 quire_error *err);

/* Opens only what a tokenizer needs, for a model of any architecture, with or without
 * weights. path: a directory, a GGUF file, a packed model, or a tokenizer file
 * (tokenizer.json, a SentencePiece .model, a rank file, tekken.json). QUIRE_NOT_FOUND:
 * the directory has no tokenizer. */
quire_err model_file_open_vocabulary(const char *path, model_file **out, quire_error *err);

/* Like model_file_open and model_file_open_memory, with overrides (meta.h) that are
 * borrowed for the call; set may be NULL. QUIRE_INVALID: err names the flag and the
 * key. */
quire_err model_file_open_with(const char *path, const model_overrides *set, model_file **out,
                               quire_error *err);
quire_err model_file_open_memory_with(const void *bytes, size_t n, const char *name,
                                      const model_overrides *set, model_file **out, quire_error *err);
/* The overrides in force, including those that a packed model carries; they are part of
 * the model's identity. Equal texts are equal overrides; empty: none. Borrowed. */
str model_file_overrides(const model_file *f);
/* Whether the key is null in config.json, which means "none" and not "the default". False
 * for GGUF files and overridden keys. */
bool model_file_is_null(const model_file *f, const char *key);
/* Whether the key's value in config.json is an object. */
bool model_file_is_object(const model_file *f, const char *key);
/* Returns the flag that overrides the key; NULL: no flag does. */
const char *model_file_set_by(const model_file *f, const char *key);
/* Checks that every override was looked up; call it once all metadata were read.
 * QUIRE_INVALID: err names one that was not. */
quire_err model_file_check_overrides(const model_file *f, quire_error *err);

/* The value of --quantization; empty: not given. Borrowed from the file. */
const char *model_file_quantise(const model_file *f);

/* Sets the watcher of the load. Call it before the tensors are loaded, while f has no
 * other user. */
void model_file_watch(model_file *f, load_watch watch);
load_watch model_file_watcher(const model_file *f);

/* Drops a reference; the last one closes the file. */
void model_file_close(model_file *f);
/* Adds a reference and returns f. */
model_file *model_file_share(model_file *f);

/* The format of the model; of a packed model the format of its source. */
model_format model_file_format(const model_file *f);
/* Whether the model is packed; *out is then its compute mode. */
bool model_file_packed_for(const model_file *f, compute_mode *out);
const char *model_file_path(const model_file *f);

/* ---- tensors ---- */
int32_t model_file_n_tensors(const model_file *f);
/* Tensor i < n_tensors, in file order. Borrowed. */
const tensor_view *model_file_tensor(const model_file *f, int32_t i);
/* Finds a tensor by its exact name; NULL: there is none. At most O(log n). */
const tensor_view *model_file_find(const model_file *f, const char *name);
/* Says why a tensor cannot be read ("F8_E5M2"); NULL: the file has no such tensor. A
 * safetensors file may hold tensors that a tensor_view cannot describe (an unknown dtype,
 * over 4 dimensions, no elements), and an index may name some that no file has. They are
 * neither counted nor found. A GGUF file with such a tensor is refused. */
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
/* Reads an array of numbers, or of true and false as 1 and 0; one number counts as an
 * array of one. Writes at most max values, and the array's whole length to *n. */
quire_err model_file_i64s(const model_file *f, const char *key, int64_t *out, size_t max, size_t *n);
/* Like model_file_i64s, as f32. After an error out may be partly written. */
quire_err model_file_f32s(const model_file *f, const char *key, float *out, size_t max, size_t *n);
/* Reads element i of an array of numbers. QUIRE_NOT_FOUND: past the end, or null. */
quire_err model_file_f32_at(const model_file *f, const char *key, size_t i, float *out);
/* Reads element i of an array of strings, and the array's length to *n unless n is NULL.
 * QUIRE_NOT_FOUND: past the end; *n is set. */
quire_err model_file_str_at(const model_file *f, const char *key, size_t i, str *out, size_t *n);
/* Like model_file_i64s, for the generation_config.json of a Hugging Face directory;
 * QUIRE_NOT_FOUND for GGUF. */
quire_err model_file_generation_i64s(const model_file *f, const char *key, int64_t *out, size_t max,
                                     size_t *n);
/* ---- text ---- */
/* The vocabulary of the file; source is VOCAB_NONE if there is none. Borrowed. */
const vocab *model_file_vocab(const model_file *f);
/* The default chat template: chat_template.jinja, chat_template of tokenizer_config.json
 * (of several the one named "default") or chat_template.json, or tokenizer.chat_template.
 * Empty: there is none. Borrowed. */
str model_file_chat_template(const model_file *f);

/* The modules of a sentence-transformers model: those that modules.json lists, in order.
 * Each has a directory with its config.json and perhaps weights. The first is the model
 * itself, in the directory "".
 *
 * This room reads them and checks that they stay inside the model's directory; src/model
 * interprets them. A module's tensors are the file's, named "DIRECTORY/NAME"
 * ("2_Dense/linear.weight"). GGUF files have no modules. All results are borrowed. */

int32_t model_file_n_modules(const model_file *f);
/* The full name of the module's class: "sentence_transformers.models.Pooling". */
str model_module_type(const model_file *f, int32_t i);
/* The module's directory: "1_Pooling". */
const char *model_module_path(const model_file *f, int32_t i);
/* A value of the module's config.json, by dotted path; META_ABSENT also if it has no
 * config.json. */
meta_value model_module_value(const model_file *f, int32_t i, const char *key);

/* A model's chat templates besides the default one, by name: "tool_use", "rag".
 *
 * A Hugging Face directory has them as additional_chat_templates/NAME.jinja, or in the
 * list chat_template of tokenizer_config.json; a GGUF file as
 * tokenizer.chat_template.NAME. Borrowed. */

size_t model_file_n_templates(const model_file *f);
/* Gets the name, which is never "default", and the text of template i < n. */
void model_file_template(const model_file *f, size_t i, str *name, str *text);

#endif
