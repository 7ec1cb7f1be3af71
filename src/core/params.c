#include "core/params.h"

void sampling_params_init(sampling_params *p) {
    *p = (sampling_params){.temperature = 1.0f,
                           .top_p = 1.0f,
                           .typical_p = 1.0f,
                           .max_tokens = -1,
                           .repetition_penalty = 1.0f,
                           .dry_base = 1.75f,
                           .dry_allowed_length = 2,
                           .dry_penalty_last_n = -1,
                           .xtc_threshold = 0.1f,
                           .dynatemp_exponent = 1.0f,
                           .mirostat_tau = 5.0f,
                           .mirostat_eta = 0.1f};
}
