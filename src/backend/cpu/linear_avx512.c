/* Products on AVX-512 with VNNI. */
#include <stdbool.h>

/* AVX512_VBMI looks up rows of a grid in registers. Cascade Lake and Cooper Lake lack it
 * and need a load for each. */
static bool has_vbmi(void) {
#ifdef SIMD_EMULATE
    return true;
#else
    return __builtin_cpu_supports("avx512vbmi");
#endif
}

#define LINEAR_TABLE      linear_avx512
#define LINEAR_INTEGERS   linear_integers_avx512
#define LINEAR_TABLES     linear_tables_avx512
#define LINEAR_GRIDS      (has_vbmi() ? linear_grids_avx512 : linear_grids_avx2)
#define LINEAR_FINDS_ROWS has_vbmi

#include "backend/cpu/linear_kernels.inc.h"
