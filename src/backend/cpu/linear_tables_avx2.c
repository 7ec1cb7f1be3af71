/* Products of grouped weights with a table of codes, on AVX2, FMA and F16C. */
#define LINEAR_GROUPS linear_tables_avx2
#define LINEAR_CODES  1

#include "backend/cpu/linear_groups.inc.h"
