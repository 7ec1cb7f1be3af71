/* Products of grouped weights whose codes are integers, on AVX-512 with VNNI. */
#define LINEAR_GROUPS linear_integers_avx512
#define LINEAR_CODES  0

#include "backend/cpu/linear_groups.inc.h"
