/* The products of linear_amx.c over a plain C model of the tile instructions, for tests
 * on any processor with AVX2. */
#define AMX_MODEL
#define LINEAR_TABLE  linear_amx_model
#define LINEAR_GROUPS linear_groups_amx_model
#define LINEAR_BASE   linear_avx2

#include "backend/cpu/linear_amx.inc.h"
