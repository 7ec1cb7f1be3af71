/* An adapter of an open model: what a fine-tune changes of its weights, read from a PEFT
 * directory or a GGUF file (file/adapter_file.h), checked against the model and packed by
 * its backend.
 *
 * LoRA: Hu et al. 2021, arXiv:2106.09685; rsLoRA: Kalajdzievski 2023, arXiv:2312.03732;
 * DoRA: Liu et al. 2024, arXiv:2402.09353; activated LoRA: Greenewald et al. 2025,
 * arXiv:2504.12397.
 *
 * Opening and closing take no lock that a step takes and read nothing that a step writes:
 * any thread, also while steps run. An open adapter is immutable. */
#ifndef MODEL_MODEL_ADAPTER_H
#define MODEL_MODEL_ADAPTER_H

#include "file/adapter_file.h"
#include "model/model.h"

/* What is refused with QUIRE_TOO_LARGE. */
typedef struct adapter_limits {
    int32_t max_rank;  /* of any module's A and B; as step_limits.max_rank */
    int64_t max_bytes; /* of the file of tensors */
} adapter_limits;

typedef struct model_adapter {
    adapter *weights; /* as a batch names it */
    int32_t rank;     /* the largest of its modules; 0: it has no A and B */
    int64_t n_bytes;  /* that it takes in the backend */
    /* of the contents of its files: a replaced file never has the digest of the old
     * one */
    uint8_t digest[SHA256_BYTES];
    int32_t *invocation; /* [n_invocation] activated LoRA: the tokens from which on it is used; NULL: none */
    int32_t n_invocation;
    char *invocation_text; /* the text of these tokens, where the files do not say which; or NULL */
    adapter_facts facts;   /* format, base's name, .. */
} model_adapter;

/* Reads and checks the adapter at path, a directory or a GGUF file, and packs it into b,
 * in which m was opened. *out is owned by the caller: model_adapter_close. err names the
 * tensor that does not fit, and what to do: QUIRE_NOT_FOUND, QUIRE_BAD_FILE,
 * QUIRE_UNSUPPORTED (another kind of adapter, a tensor that belongs to no weight of the
 * model), QUIRE_TOO_LARGE (beyond limits), QUIRE_NO_MEMORY; *out is then unchanged. Time:
 * reading the file, a digest of it, and for a DoRA a pass over the base's weights that it
 * changes. */
quire_err model_adapter_open(const model *m, backend *b, const char *path, const adapter_limits *limits,
                             model_adapter *out, quire_error *err);
/* Frees it; no batch that names it may be running. A zeroed *a is allowed, and left. */
void model_adapter_close(backend *b, model_adapter *a);

#endif
