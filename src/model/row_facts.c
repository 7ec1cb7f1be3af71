#include "model/row_facts.h"

#include <stdio.h>

#include "model/config.h"

quire_err row_facts_read(const model_file *f, row_facts *out, quire_error *err) {
    char prefix[64] = "";
    str arch = {0}, function = {0};
    size_t n = 0;
    if (model_file_str(f, "general.architecture", &arch) == QUIRE_OK) {
        (void)snprintf(prefix, sizeof prefix, "%.*s", (int)(arch.n < 60 ? arch.n : 60), arch.p);
    }
    const config c = config_of(f, prefix, err);
    *out = (row_facts){0};
    TRY(config_bool(&c, NULL, "is_matryoshka", &out->is_matryoshka));
    TRY(config_i32s(&c, NULL, "matryoshka_dimensions", out->widths, ROW_MAX_WIDTHS, &n));
    TRY(config_str(&c, NULL, "sentence_transformers.activation_fn|sbert_ce_default_activation_function",
                   &function));
    out->n_widths = (int32_t)n;
    out->is_matryoshka = out->is_matryoshka || n > 0;
    out->names_function = function.n > 0;
    return QUIRE_OK;
}
