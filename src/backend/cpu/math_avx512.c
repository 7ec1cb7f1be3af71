/* The kernels of math.h for AVX-512. */
#define MATH_TABLE     math_avx512
#define PROGRAM_RUNNER attn_run_avx512
#include "backend/cpu/attention_kernels.inc.h"
#include "backend/cpu/math_kernels.inc.h"
#include "backend/cpu/math_table.inc.h"
