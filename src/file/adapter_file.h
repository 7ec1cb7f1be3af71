/* An adapter on disk: a directory as PEFT writes it (adapter_config.json and
 * adapter_model.safetensors), or a GGUF file of llama.cpp's convert_lora_to_gguf.py
 * (general.type "adapter").
 *
 * Files are read whole into memory, so replacing or truncating one later changes
 * nothing that was checked. All of them are untrusted. Immutable after open: any
 * thread may read. */
#ifndef FILE_ADAPTER_FILE_H
#define FILE_ADAPTER_FILE_H

#include "base/sha256.h"
#include "base/str.h"
#include "file/gguf.h"
#include "file/tensors.h"

/* An adapter's config: adapter_config.json, or the keys of a GGUF file. Read by
 * adapter_file.c, then immutable. */

/* ---- patterns for the names of modules ---- */

/* Patterns of a PEFT config's rank_pattern and alpha_pattern: regular expressions for the
 * names of modules. A key matches a name where `(.*\.)?(KEY)$` does, as Python's re has
 * it.
 *
 * A list is filled by one thread and immutable after that. */

typedef struct adapter_pattern {
    char *plain; /* a key of letters and dots alone, where '.' stands for any character; or NULL */
    void *code;  /* a compiled expression; or NULL */
    double value;
} adapter_pattern;

/* Zero-initialised it is empty. */
typedef struct adapter_patterns {
    adapter_pattern *list;
    size_t n, cap, n_compiled;
} adapter_patterns;

void adapter_patterns_deinit(adapter_patterns *p);
/* Adds a key after the others. QUIRE_BAD_FILE for one that is not an expression,
 * QUIRE_TOO_LARGE for one that is too long, or one too many; where: of the message. */
quire_err adapter_patterns_add(adapter_patterns *p, str key, double value, const char *where,
                               quire_error *err);
/* The value of the first pattern that matches the name; false: none does. A match that
 * takes too many steps is none. Any thread. */
bool adapter_patterns_find(const adapter_patterns *p, str name, double *value);

/* ---- adapter_config ---- */

typedef enum adapter_format { ADAPTER_PEFT, ADAPTER_GGUF } adapter_format;

/* What an adapter's files say about it. */
typedef struct adapter_facts {
    adapter_format format;
    int32_t rank;          /* the largest in config and tensors */
    int64_t n_bytes;       /* of the file that holds the tensors */
    char base[256];        /* the model for which it was made, for people; "": not stated */
    char architecture[64]; /* architecture of that model, in a GGUF file; "": not stated */
    bool has_dora;         /* DoRA: the config says that there are magnitudes */
    bool is_activated;     /* it names invocation tokens (activated LoRA) */
} adapter_facts;

/* An adapter that is read. Members are read-only. */
typedef struct adapter_file {
    adapter_facts facts;
    char *path;                   /* the directory, or the GGUF file */
    void *config_text, *content;  /* memory of the files; config_text NULL: a GGUF file */
    gguf keys;                    /* of a GGUF file */
    tensor_dir tensors;           /* types f32, f16, bf16 and others; names as in the file */
    uint8_t digest[SHA256_BYTES]; /* of config and tensors, as their files have them */
    int32_t *invocation;          /* [n_invocation] the tokens that activate it */
    int32_t n_invocation;
    char *invocation_text; /* the text of these tokens, where the config has no list; or NULL */
    /* parameters of scales; in a GGUF file only alpha; 0: not stated */
    int64_t rank;
    double alpha;
    int32_t peft_minor; /* N of the PEFT 0.N that wrote it; INT32_MAX: 1.0 or later; 0: not stated */
    bool ties;          /* changes of tied embeddings apply to the head too */
    bool by_root;       /* rsLoRA: alpha / sqrt(rank) */
    adapter_patterns ranks, alphas;
} adapter_file;

/* path: a directory, a file of one, or a GGUF file. QUIRE_NOT_FOUND: there is none;
 * QUIRE_UNSUPPORTED names another kind of adapter, or an option, and what to do;
 * QUIRE_TOO_LARGE: over max_bytes; QUIRE_BAD_FILE. Reads the files and computes their
 * digest. */
quire_err adapter_file_open(const char *path, int64_t max_bytes, adapter_file **out, quire_error *err);
/* As above, of bytes in memory, which are copied; config.p NULL: content is a GGUF file.
 * name: for messages. */
quire_err adapter_file_open_memory(str config, str content, const char *name, adapter_file **out,
                                   quire_error *err);
/* NULL is allowed. */
void adapter_file_close(adapter_file *f);

/* The scale of a module's addend. module: its name, by which the config's patterns
 * choose rank and alpha; rank: that of its tensors, which must be the config's:
 * QUIRE_BAD_FILE. */
quire_err adapter_file_scale(const adapter_file *f, str module, int64_t rank, float *out, quire_error *err);

#endif
