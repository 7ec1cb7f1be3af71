/* Products of grouped weights of a grid, on AVX-512 with VNNI and VBMI. */
#define LINEAR_GROUPS linear_grids_avx512
#define LINEAR_CODES  2

#include "backend/cpu/linear_groups.inc.h"
