/* The contents of an open model file, shared by the readers of this room: model_file.c dispatches; open_gguf.c, open_hf.c and
 * open_packed.c fill it. */
#ifndef FILE_OPEN_FILE_H
#define FILE_OPEN_FILE_H

#include "core/vocab.h"
#include "file/gguf.h"
#include "file/json_doc.h"
#include "file/map.h"

/* A section of a packed model. */
typedef struct file_section {
    str name, data;
} file_section;

typedef struct model_file {
    model_format format;
    int32_t n_users;
    char *path;     /* as the caller gave it, or the directory */
    file_map *maps; /* every mapped file */
    size_t n_maps, cap_maps;
    tensor_dir tensors;

    gguf gguf; /* MODEL_GGUF: keys of the first part */

    bool is_packed;
    file_map whole; /* of a packed model: all its bytes */
    compute_mode compute; /* of a packed model */
    file_section *sections;
    size_t n_sections;

    json_doc config, generation, tokenizer_config; /* MODEL_HF; root NULL when the file is absent */
    str config_text, generation_text, template_text; /* the files */

    vocab vocab;
    float *scores; /* memory of vocab's arrays that are copies */
    int32_t *types;
    str chat_template;
} model_file;

/* Joins dir and name. The caller deinits *out. */
quire_err open_file_join(strbuf *out, const char *dir, const char *name, quire_error *err);
/* Maps a file until f is closed. */
quire_err open_file_map(model_file *f, const char *path, size_t max_bytes, file_map *out, quire_error *err);

/* Each fills a zeroed *f whose path is set. After a failure model_file_close frees the contents. */
quire_err gguf_open(model_file *f, file_map first, quire_error *err);
quire_err gguf_open_memory(model_file *f, const void *bytes, size_t n, quire_error *err);
quire_err hf_open(model_file *f, const char *dir, quire_error *err);
quire_err packed_open(model_file *f, file_map map, quire_error *err);
/* True when dir has config.json or tokenizer.json. */
bool hf_is_directory(const char *dir);

/* True when a file begins like a packed model. */
bool packed_is(file_map map);
/* A section's bytes; p NULL when there is none. */
str packed_section(const model_file *f, const char *name);
/* Reads the small files of a Hugging Face directory, or of a packed one. */
quire_err hf_read_texts(model_file *f, quire_error *err);
/* Reads tokenizer.ggml.* as a vocabulary, and tokenizer.chat_template. */
quire_err gguf_read_vocab(model_file *f, quire_error *err);

#endif
