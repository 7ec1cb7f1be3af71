/* Products on AVX-512 with VNNI. */
#define LINEAR_TABLE    linear_avx512
#define LINEAR_INTEGERS linear_integers_avx512
#define LINEAR_TABLES   linear_tables_avx512

#include "backend/cpu/linear_kernels.inc.h"
