/* What follows the pooling of a model's rows. */
#include <string.h>

#include "model/arch.h"

int32_t model_pooled_width(const model *m) {
    return m->desc.d_model;
}

void model_pooled(const model *m, const float *row, float *out) {
    memcpy(out, row, (size_t)m->desc.d_model * sizeof *out);
}
