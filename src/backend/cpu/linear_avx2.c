/* Products on AVX2, FMA and F16C. */
#define LINEAR_TABLE      linear_avx2
#define LINEAR_INTEGERS   linear_integers_avx2
#define LINEAR_TABLES     linear_tables_avx2
#define LINEAR_GRIDS      linear_grids_avx2
#define LINEAR_FINDS_ROWS NULL

#include "backend/cpu/linear_kernels.inc.h"
