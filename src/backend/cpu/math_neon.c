/* The kernels of math.h for NEON. */
#define MATH_TABLE     math_neon
#define PROGRAM_RUNNER attn_run_neon
#include "backend/cpu/attention_kernels.inc.h"
#include "backend/cpu/math_kernels.inc.h"
#include "backend/cpu/math_table.inc.h"
