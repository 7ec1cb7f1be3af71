/* Products on AVX2 with AVX-VNNI, its dot product of int8: Intel's desktops since
 * 2021. */
#define LINEAR_TABLE      linear_avxvnni
#define LINEAR_INTEGERS   linear_integers_avxvnni
#define LINEAR_TABLES     linear_tables_avxvnni
#define LINEAR_GRIDS      linear_grids_avx2
#define LINEAR_FINDS_ROWS NULL

#include "backend/cpu/linear_kernels.inc.h"
