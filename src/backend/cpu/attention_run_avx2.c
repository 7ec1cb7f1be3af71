/* The runner of attention programs for AVX2. */
#define RUN attn_run_avx2
#include "core/attn_program_run.inc.h"
