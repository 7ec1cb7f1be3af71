/* The runner of attention programs for AVX-512. */
#define RUN attn_run_avx512
#include "core/attn_program_run.inc.h"
