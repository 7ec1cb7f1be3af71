/* The runner of attention programs for NEON. */
#define RUN attn_run_neon
#include "core/attn_program_run.inc.h"
