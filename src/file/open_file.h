/* The contents of an open model file, private to this room: open_formats.c fills it, and
 * model_file.c gives access to it. */
#ifndef FILE_OPEN_FILE_H
#define FILE_OPEN_FILE_H

#include "core/vocab.h"
#include "file/gguf.h"
#include "file/json_doc.h"
#include "file/map.h"
#include "file/overrides.h"

/* A section of a packed model (packed.h). */
typedef struct file_section {
    str name, data;
} file_section;

/* A module of a sentence-transformers model (model_file.h). */
typedef struct file_module {
    char path[64]; /* the module's directory, a plain name; empty: the model's own */
    str type, config_text;
    json_doc config;
} file_module;

#define MAX_MODULES 16

/* A chat template besides the default one (model_file.h). */
#define MAX_TEMPLATES       16
#define MAX_TEMPLATE_NAME   64
#define TEMPLATES_DIRECTORY "additional_chat_templates"
typedef struct file_template {
    char name[MAX_TEMPLATE_NAME];
    str text;
} file_template;

typedef struct model_file {
    model_format format;
    int32_t n_users;
    char *path;     /* the path that the caller gave, or the directory */
    file_map *maps; /* all mapped files */
    size_t n_maps, cap_maps;
    tensor_dir tensors;

    gguf gguf; /* MODEL_GGUF: keys of the first part */

    const model_overrides *given; /* overrides to apply, set only during the open; NULL: none */
    overrides *overrides;         /* overrides in force; NULL: none */
    char *quantise;               /* value of --quantization; NULL: not given */
    load_watch watch;

    bool is_packed;
    file_map whole;       /* all bytes of a packed model */
    compute_mode compute; /* compute mode of a packed model */
    file_section *sections;
    size_t n_sections;

    /* MODEL_HF; root is NULL if the file is absent */
    json_doc config, generation, tokenizer_config, template_json;
    str config_text, generation_text, template_json_text, template_text; /* texts of these files */
    /* memory of config_text if settings of another file were added to it */
    strbuf config_joined;
    json_doc modules_list; /* modules.json */
    str modules_text;
    json_doc index; /* index of shards; may name tensors that no shard has */
    file_module modules[MAX_MODULES];
    int32_t n_modules;

    vocab vocab;
    float *scores; /* memory of those of vocab's arrays that were copied */
    int32_t *types;
    str chat_template;
    file_template templates[MAX_TEMPLATES];
    size_t n_templates;
} model_file;

/* Appends the path of `name` in dir. The caller deinits *out. */
quire_err open_file_join(strbuf *out, const char *dir, const char *name, quire_error *err);
/* Maps a file until f is closed. */
quire_err open_file_map(model_file *f, const char *path, size_t max_bytes, file_map *out, quire_error *err);

/* Returns a key's value: the operator's, else the file's. */
meta_value open_file_meta(const model_file *f, const char *key);
/* Reads the overrides. Call it when the format is known, before any key that they may set
 * is looked up. */
quire_err open_file_overrides(model_file *f, quire_error *err);

/* The next functions fill a zeroed *f whose path is set. After a failure model_file_close
 * frees the contents. */
quire_err gguf_open(model_file *f, file_map first, quire_error *err);
/* Reads only the keys: neither other parts nor tensors, whatever their types. */
quire_err gguf_open_vocabulary(model_file *f, file_map first, quire_error *err);
quire_err gguf_open_memory(model_file *f, const void *bytes, size_t n, quire_error *err);
quire_err hf_open(model_file *f, const char *dir, quire_error *err);
/* Reads dir's tokenizer_config.json and special_tokens_map.json for a vocabulary; both
 * may be missing. */
quire_err hf_read_config(model_file *f, const char *dir, quire_error *err);
/* Reads a directory without its weights. QUIRE_NOT_FOUND: it has no tokenizer. */
quire_err hf_open_vocabulary(model_file *f, const char *dir, quire_error *err);
quire_err packed_open(model_file *f, file_map map, quire_error *err);
/* Whether dir has config.json or tokenizer.json. */
bool hf_is_directory(const char *dir);

/* Whether a file begins like a packed model. */
bool packed_is(file_map map);
/* Returns a section's bytes; p is NULL if it is absent. */
str packed_section(const model_file *f, const char *name);
/* Whether a name is a plain file name, which cannot lead out of the directory. */
bool hf_is_plain_name(str name);
/* Reads the bytes of the directory's file `name`, which may be "DIRECTORY/NAME"; empty:
 * there is no such file. */
quire_err hf_read_text(model_file *f, const char *name, size_t max_bytes, str *out, quire_error *err);
/* Reads the chat templates. tokenizer_config must have been read. */
quire_err hf_read_templates(model_file *f, quire_error *err);
void gguf_read_templates(model_file *f);
/* Read and parse the directory's file `name`: hf_read_json an object, hf_read_list a list.
 * *text and *out stay absent if there is no such file. */
quire_err hf_read_json(model_file *f, const char *name, size_t max_bytes, str *text, json_doc *out,
                       quire_error *err);
quire_err hf_read_list(model_file *f, const char *name, size_t max_bytes, str *text, json_doc *out,
                       quire_error *err);
/* Reads modules.json and the configs of its modules (model_file.h). */
quire_err modules_read(model_file *f, quire_error *err);
/* Adds the tensors of the modules' directories, as those of parts numbered from
 * `part`. */
quire_err modules_add_weights(model_file *f, int32_t part, quire_error *err);
/* Sets *v to an empty vocabulary. */
void vocab_init(vocab *v);
/* Reads the vocabulary from tokenizer.ggml.*, and tokenizer.chat_template. */
quire_err gguf_read_vocab(model_file *f, quire_error *err);

#endif
