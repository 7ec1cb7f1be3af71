/* Products on NEON with dot products and int8 matrix products (ARMv8.6, I8MM). */
#define LINEAR_TABLE      linear_i8mm
#define LINEAR_INTEGERS   linear_integers_neon
#define LINEAR_TABLES     linear_tables_neon
#define LINEAR_GRIDS      linear_grids_neon
#define LINEAR_FINDS_ROWS NULL
#define PRODUCT_INT8      product_int8_mm

#include "backend/cpu/linear_kernels.inc.h"
