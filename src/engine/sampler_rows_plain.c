/* The sampler's passes for any processor. */
#define SAMPLER_ROWS sampler_rows_plain
#include "engine/sampler_rows.inc.h"
