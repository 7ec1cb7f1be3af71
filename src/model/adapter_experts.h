/* Adapters of experts whose weights are one parameter for all of a layer (PEFT's
 * target_parameters): for model_adapter.c.
 *
 * PEFT's A is [E rank, d1] and its B [d2, rank E]; the parameter [E, d1, d2] gets, of
 * expert e, scale times the sum over k of A[e rank + k, i] B[j, k E + e]. */
#ifndef MODEL_ADAPTER_EXPERTS_H
#define MODEL_ADAPTER_EXPERTS_H

#include "model/adapter_change.h"

/* Whether a module is a layer's experts. */
bool adapter_experts_is(const adapter_opening *o, const adapter_module *module);
/* Adds the changes of all its experts. Errors as model_adapter_open. */
quire_err adapter_experts_bind(adapter_opening *o, const adapter_module *module);

#endif
