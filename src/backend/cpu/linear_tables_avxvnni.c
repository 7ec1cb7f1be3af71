/* Products of grouped weights with a table of codes, on AVX2 with AVX-VNNI. */
#define LINEAR_GROUPS linear_tables_avxvnni
#define LINEAR_CODES  1

#include "backend/cpu/linear_groups.inc.h"
