/* A model on disk, whatever its form: a GGUF file (one or split), a Hugging Face directory or a packed model (packed.h), opened read-only
 * and mapped.
 *
 * Gives three things: metadata by key, tensors by name, and the vocabulary with chat template. It checks that what it gives lies inside the
 * file; what it means is for src/model (numbers) and src/text (tokens). Everything borrowed lives until model_file_close. Immutable after
 * open: any thread may read. */
#ifndef FILE_MODEL_FILE_H
#define FILE_MODEL_FILE_H

#include "base/str.h"
#include "core/dtype.h"
#include "core/tensor.h"
#include "core/vocab.h"

typedef struct model_file model_file;

typedef enum model_format { MODEL_GGUF, MODEL_HF } model_format;

/* path: a .gguf file (of a split one the first part), a packed model, a directory with config.json or at least tokenizer.json, or a file
 * inside such a directory. Fills err with file, place and what to do. *out is untouched after a failure. A file without tensors (a
 * vocabulary) or without a vocabulary opens. The files must not be cut while they are open. */
quire_err model_file_open(const char *path, model_file **out, quire_error *err);
/* A GGUF or packed model that lies in memory (the built-in model); bytes stay with the caller. name is used in messages. */
quire_err model_file_open_memory(const void *bytes, size_t n, const char *name, model_file **out, quire_error *err);
/* One user less; the last one's call closes it. */
void model_file_close(model_file *f);
/* One user more: f itself. */
model_file *model_file_share(model_file *f);

/* Of a packed model: of what it was made. */
model_format model_file_format(const model_file *f);
/* Whether it is packed, and, if so, for which compute mode. */
bool model_file_packed_for(const model_file *f, compute_mode *out);
const char *model_file_path(const model_file *f);

/* ---- tensors ---- */
int32_t model_file_n_tensors(const model_file *f);
const tensor_view *model_file_tensor(const model_file *f, int32_t i);
/* By exact name, NULL when there is none. O(log n) or better. */
const tensor_view *model_file_find(const model_file *f, const char *name);
/* A safetensors file may hold tensors that a tensor_view cannot carry: a dtype this build does not read, over 4 dimensions, no elements.
 * They are not counted and not found; this says why ("F8_E4M3"). NULL when the file does not have such a tensor. A GGUF file with such a
 * tensor is refused. */
const char *model_file_why_unread(const model_file *f, const char *name);

/* ---- metadata: GGUF keys ("llama.block_count"), or config.json by dotted path ("rope_scaling.factor", "text_config.hidden_size").
 * Each returns QUIRE_NOT_FOUND when absent (or JSON null), QUIRE_BAD_FILE when there with another type (or out of the range of the result);
 * out is then untouched. Integers are accepted for f32; a float that is a whole number is accepted for i64. ---- */
quire_err model_file_i64(const model_file *f, const char *key, int64_t *out);
quire_err model_file_f32(const model_file *f, const char *key, float *out);
quire_err model_file_bool(const model_file *f, const char *key, bool *out);
quire_err model_file_str(const model_file *f, const char *key, str *out);
/* Array of numbers; also accepts one number as an array of one. Writes at most max values and the array's real length to *n. */
quire_err model_file_i64s(const model_file *f, const char *key, int64_t *out, size_t max, size_t *n);
quire_err model_file_f32s(const model_file *f, const char *key, float *out, size_t max, size_t *n);
/* Array of strings: element i; *n (when not NULL) its length. QUIRE_NOT_FOUND past the end, *n is then set. */
quire_err model_file_str_at(const model_file *f, const char *key, size_t i, str *out, size_t *n);
/* model_file_i64s for generation_config.json of a Hugging Face directory (NOT_FOUND for GGUF). */
quire_err model_file_generation_i64s(const model_file *f, const char *key, int64_t *out, size_t max, size_t *n);
/* Every metadata key in file order, for `quire inspect`: name and a short printable value; false past the end. GGUF only, config.json's top
 * level otherwise. */
bool model_file_meta_at(const model_file *f, int32_t i, str *key, char *value, size_t n_value);

/* ---- text ---- */
/* The vocabulary as the file gives it; source VOCAB_NONE when it has none. */
const vocab *model_file_vocab(const model_file *f);
/* The chat template: chat_template.jinja, tokenizer_config.json's chat_template (the one named "default" of several), or
 * tokenizer.chat_template; empty when none. */
str model_file_chat_template(const model_file *f);

#endif
