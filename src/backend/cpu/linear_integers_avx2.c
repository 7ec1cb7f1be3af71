/* Products of grouped weights whose codes are integers, on AVX2, FMA and F16C. */
#define LINEAR_GROUPS linear_integers_avx2
#define LINEAR_CODES  0

#include "backend/cpu/linear_groups.inc.h"
