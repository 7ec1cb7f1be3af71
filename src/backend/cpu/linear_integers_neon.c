/* Products of grouped weights whose codes are integers, on NEON with dot products
 * (ARMv8.2). */
#define LINEAR_GROUPS linear_integers_neon
#define LINEAR_CODES  0

#include "backend/cpu/linear_groups.inc.h"
