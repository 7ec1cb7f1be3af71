/* Products on NEON with dot products (ARMv8.2). */
#define LINEAR_TABLE linear_neon

#include "backend/cpu/linear_kernels.inc.h"
