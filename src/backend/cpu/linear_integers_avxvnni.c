/* Products of grouped weights whose codes are integers, on AVX2 with AVX-VNNI. */
#define LINEAR_GROUPS linear_integers_avxvnni
#define LINEAR_CODES  0

#include "backend/cpu/linear_groups.inc.h"
