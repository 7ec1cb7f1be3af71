/* A LoRA adapter on disk: a directory as PEFT writes it (adapter_config.json and
 * adapter_model.safetensors), or a GGUF file of llama.cpp's convert_lora_to_gguf.py
 * (general.type "adapter").
 *
 * Files are untrusted. They are read whole into memory, so a file that is replaced or
 * truncated later changes nothing that was checked. Immutable after open: any thread may
 * read. */
#ifndef FILE_ADAPTER_FILE_H
#define FILE_ADAPTER_FILE_H

#include "base/sha256.h"
#include "base/str.h"
#include "file/gguf.h"
#include "file/tensors.h"

/* ---- patterns for the names of modules ---- */

/* Keys of a PEFT config's rank_pattern and alpha_pattern: regular expressions for names
 * of modules. A key matches a name if Python's re matches `(.*\.)?(KEY)$` from its start.
 *
 * A list is filled by one thread, and immutable after that. */

typedef struct adapter_pattern {
    char *plain; /* a key of letters, digits, '_', '-' and '.' (any character); \1: a literal dot; or NULL */
    void *code;  /* a compiled expression; or NULL */
    double value;
} adapter_pattern;

/* A zero-initialised list is empty. */
typedef struct adapter_patterns {
    adapter_pattern *list;
    size_t n, cap, n_compiled;
} adapter_patterns;

void adapter_patterns_deinit(adapter_patterns *p);
/* Adds a key after the others; where: the file, for messages. QUIRE_BAD_FILE: not a valid
 * expression. QUIRE_TOO_LARGE: the key is too long, or there are too many. */
quire_err adapter_patterns_add(adapter_patterns *p, str key, double value, const char *where,
                               quire_error *err);
/* Sets *value to that of the first pattern that matches the name; false: none does. A
 * match that takes too many steps counts as none. Any thread. */
bool adapter_patterns_find(const adapter_patterns *p, str name, double *value);

/* ---- adapter_config ---- */

typedef enum adapter_format { ADAPTER_PEFT, ADAPTER_GGUF } adapter_format;

/* Facts that an adapter's files state. */
typedef struct adapter_facts {
    adapter_format format;
    int32_t rank;          /* largest rank in config and tensors */
    int64_t n_bytes;       /* size of the file of tensors */
    char base[256];        /* name of its base model, for messages; "": not stated */
    char architecture[64]; /* architecture of the base model, from a GGUF file; "": not stated */
    bool has_dora;         /* the config says that the tensors have DoRA magnitudes */
    bool is_activated;     /* activated LoRA: it names invocation tokens */
} adapter_facts;

/* An adapter that was read. Members are read-only. */
typedef struct adapter_file {
    adapter_facts facts;
    char *path;                   /* the directory, or the GGUF file */
    void *config_text, *content;  /* contents of the files; config_text NULL: a GGUF file */
    gguf keys;                    /* keys of a GGUF file */
    tensor_dir tensors;           /* f32, f16, bf16 and other types; names as in the file */
    uint8_t digest[SHA256_BYTES]; /* SHA-256 of the bytes of config and tensors */
    int32_t *invocation;          /* [n_invocation] tokens that activate it */
    int32_t n_invocation;
    char *invocation_text; /* text of these tokens, if the config has no list of them; or NULL */
    /* parameters of scales, 0: not stated; a GGUF file has only alpha */
    int64_t rank;
    double alpha;
    int32_t peft_minor; /* N if PEFT 0.N wrote it; INT32_MAX: 1.0 or later; 0: not stated */
    bool ties;          /* changes of tied embeddings apply to the head too */
    bool by_root;       /* rsLoRA: alpha / sqrt(rank) */
    adapter_patterns ranks, alphas;
} adapter_file;

/* Opens and reads an adapter. path: a directory, a file in one, or a GGUF file.
 * QUIRE_NOT_FOUND: it does not exist. QUIRE_UNSUPPORTED: another kind of adapter, or an
 * option; err says what to do. QUIRE_TOO_LARGE: over max_bytes. QUIRE_BAD_FILE. */
quire_err adapter_file_open(const char *path, int64_t max_bytes, adapter_file **out, quire_error *err);
/* Like adapter_file_open, from bytes in memory, which are copied. config.p NULL: content
 * is a GGUF file. name: for messages. */
quire_err adapter_file_open_memory(str config, str content, const char *name, adapter_file **out,
                                   quire_error *err);
/* Closes the adapter; NULL does nothing. */
void adapter_file_close(adapter_file *f);

/* Sets *out to the factor of a module's LoRA product. The config's patterns choose rank
 * and alpha by the module's name. rank: that of its tensors. QUIRE_BAD_FILE: it differs
 * from the config's. */
quire_err adapter_file_scale(const adapter_file *f, str module, int64_t rank, float *out, quire_error *err);

#endif
