/* Products on NEON with dot products (ARMv8.2). */
#define LINEAR_TABLE      linear_neon
#define LINEAR_INTEGERS   linear_integers_neon
#define LINEAR_TABLES     linear_tables_neon
#define LINEAR_GRIDS      linear_grids_neon
#define LINEAR_FINDS_ROWS NULL

#include "backend/cpu/linear_kernels.inc.h"
