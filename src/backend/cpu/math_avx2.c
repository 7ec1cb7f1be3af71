/* The kernels of math.h for AVX2. */
#define MATH_TABLE     math_avx2
#define PROGRAM_RUNNER attn_run_avx2
#include "backend/cpu/attention_kernels.inc.h"
#include "backend/cpu/math_kernels.inc.h"
#include "backend/cpu/math_table.inc.h"
