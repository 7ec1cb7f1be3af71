/* Products of grouped weights of a grid, on NEON with dot products (ARMv8.2). */
#define LINEAR_GROUPS linear_grids_neon
#define LINEAR_CODES  2

#include "backend/cpu/linear_groups.inc.h"
