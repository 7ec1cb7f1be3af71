/* The sampler's passes for x86-64 processors with AVX2. */
#if defined(__x86_64__)
#define SAMPLER_ROWS sampler_rows_avx2
#include "engine/sampler_rows.inc.h"
#endif
