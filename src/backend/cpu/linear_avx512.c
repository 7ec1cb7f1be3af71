/* Products on AVX-512 with VNNI. */
#define LINEAR_TABLE linear_avx512

#include "backend/cpu/linear_kernels.inc.h"
