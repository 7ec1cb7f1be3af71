/* Products of grouped weights with a table of codes, on AVX-512 with VNNI. */
#define LINEAR_GROUPS linear_tables_avx512
#define LINEAR_CODES  1

#include "backend/cpu/linear_groups.inc.h"
