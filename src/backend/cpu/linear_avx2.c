/* Products on AVX2, FMA and F16C. */
#define LINEAR_TABLE linear_avx2

#include "backend/cpu/linear_kernels.inc.h"
