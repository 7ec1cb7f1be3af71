/* Products of grouped weights with a table of codes, on NEON with dot products
 * (ARMv8.2). */
#define LINEAR_GROUPS linear_tables_neon
#define LINEAR_CODES  1

#include "backend/cpu/linear_groups.inc.h"
