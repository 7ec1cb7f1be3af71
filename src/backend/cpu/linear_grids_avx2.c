/* Products of grouped weights of a grid, on AVX2, FMA and F16C. */
#define LINEAR_GROUPS linear_grids_avx2
#define LINEAR_CODES  2

#include "backend/cpu/linear_groups.inc.h"
