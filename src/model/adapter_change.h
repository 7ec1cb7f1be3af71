/* Converts the tensors of an adapter's module to changes of loaded weights, for
 * model_adapter.c. */
#ifndef MODEL_ADAPTER_CHANGE_H
#define MODEL_ADAPTER_CHANGE_H

#include "file/adapter_file.h"
#include "model/arch.h"

/* What an adapter's tensor is in its module. */
typedef enum adapter_part {
    PART_A,
    PART_B,
    PART_ROWS_A, /* for a table of rows: [rank, V] and [D, rank] */
    PART_ROWS_B,
    PART_MAGNITUDE,
    PART_BIAS,
    PART_WHOLE, /* replaces the base's weight */
    N_ADAPTER_PARTS
} adapter_part;

/* An adapter's tensors for one module; NULL: absent. */
typedef struct adapter_module {
    str name; /* name as the config's patterns match it, without PEFT's prefix and ".weight" */
    const tensor_view *parts[N_ADAPTER_PARTS];
} adapter_module;

/* State of opening an adapter. */
typedef struct adapter_opening {
    const model *m;
    backend *b;
    const adapter_file *f;
    int32_t max_rank; /* largest rank of A and B */
    quire_error *err;
    bool *taken; /* [m->weights.n] whether each entry already has a change */
    adapter_change *changes;
    size_t n, cap;
    void **memory; /* memory that changes point to */
    size_t n_memory, cap_memory;
    int32_t rank;
    int32_t n_of_towers; /* modules of image and audio towers, which are ignored */
} adapter_opening;

/* n zeroed elements that live until the adapter is packed; NULL: out of memory. */
void *adapter_memory(adapter_opening *o, size_t n, size_t size);
/* Copies a view to memory that lives as long. */
quire_err adapter_keep(adapter_opening *o, const tensor_view *t, const tensor_view **out);
/* Refuses a rank of 0 or over the limit; otherwise updates max_rank. */
quire_err adapter_check_rank(adapter_opening *o, const tensor_view *t, int64_t rank);
/* Finds a module's name in the model's table. Returns the number of refs; *first as in
 * weight_table_find. */
int32_t adapter_find_weight(const adapter_opening *o, str name, int32_t *first);
/* Adds a change to an entry of the table. t: the tensor, for messages. QUIRE_BAD_FILE:
 * the entry has a change already. */
quire_err adapter_change_add(adapter_opening *o, int32_t entry, const adapter_change *c,
                             const tensor_view *t);
/* Adds the changes of one module. Errors as in model_adapter_open. */
quire_err adapter_module_bind(adapter_opening *o, const adapter_module *module);
/* Refuses a tensor; `what` says why and what to do. */
quire_err adapter_refuse(const adapter_opening *o, quire_err code, const tensor_view *t, const char *what);

#endif
