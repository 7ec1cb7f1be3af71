/* The runner of attention programs in plain C. */
#define RUN attn_run_plain
#include "core/attn_program_run.inc.h"
