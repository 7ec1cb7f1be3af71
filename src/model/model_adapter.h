/* An adapter of an open model: a fine-tune's changes to its weights, read from a PEFT
 * directory or GGUF file (file/adapter_file.h), checked against the model and packed by
 * its backend.
 *
 * LoRA: Hu et al. 2021, arXiv:2106.09685; rsLoRA: Kalajdzievski 2023, arXiv:2312.03732;
 * DoRA: Liu et al. 2024, arXiv:2402.09353; activated LoRA: Greenewald et al. 2025,
 * arXiv:2504.12397.
 *
 * Threads: opening and closing work on any thread while steps run: they take no lock that
 * a step takes and read nothing that a step writes. An open adapter is immutable. */
#ifndef MODEL_MODEL_ADAPTER_H
#define MODEL_MODEL_ADAPTER_H

#include "file/adapter_file.h"
#include "model/model.h"

/* Limits; beyond them QUIRE_TOO_LARGE. */
typedef struct adapter_limits {
    int32_t max_rank;  /* largest rank of A and B; as step_limits.max_rank */
    int64_t max_bytes; /* bytes of the tensor file */
} adapter_limits;

typedef struct model_adapter {
    adapter *weights; /* the adapter that batches refer to */
    int32_t rank;     /* the largest rank of its modules; 0: it has no A and B */
    int64_t n_bytes;  /* bytes that it takes in the backend */
    /* digest of its files' contents, so that a replaced file gets another digest */
    uint8_t digest[SHA256_BYTES];
    /* [n_invocation] activated LoRA: the tokens from which it applies; NULL: it applies
     * to all */
    int32_t *invocation;
    int32_t n_invocation;
    char *invocation_text; /* their text, if the files do not give the tokens; or NULL */
    adapter_facts facts;   /* format, base model's name and so on */
} model_adapter;

/* Reads and checks the adapter at path, a directory or a GGUF file, and packs it into b,
 * in which m was opened. Close *out with model_adapter_close. On failure *out is
 * unchanged, and err names the tensor that does not fit and what to do: QUIRE_NOT_FOUND,
 * QUIRE_BAD_FILE, QUIRE_UNSUPPORTED (another kind of adapter, or a tensor for no weight
 * of the model), QUIRE_TOO_LARGE (over the limits), QUIRE_NO_MEMORY. Time: reading and
 * hashing the file; for DoRA also a pass over the base weights that it changes. */
quire_err model_adapter_open(const model *m, backend *b, const char *path, const adapter_limits *limits,
                             model_adapter *out, quire_error *err);
/* Frees an adapter that no running batch uses. *a may be zeroed. */
void model_adapter_close(backend *b, model_adapter *a);

#endif
