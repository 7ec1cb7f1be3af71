/* Products on AMX with int8; everything that AMX does not change runs on AVX-512 with
 * VNNI. */
#define LINEAR_TABLE  linear_amx
#define LINEAR_GROUPS linear_groups_amx
#define LINEAR_BASE   linear_avx512

#include "backend/cpu/linear_amx.inc.h"
