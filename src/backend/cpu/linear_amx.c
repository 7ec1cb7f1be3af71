/* Products on AMX with int8, and all that it does not change on AVX-512 with VNNI. */
#define LINEAR_TABLE  linear_amx
#define LINEAR_GROUPS linear_groups_amx
#define LINEAR_BASE   linear_avx512

#include "backend/cpu/linear_amx.inc.h"
