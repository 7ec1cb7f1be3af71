#include "lab/commands/ablation_flags.h"

#include <stddef.h>

#define SWITCH(member) FLAG_SWITCH, .offset = offsetof(ablated_options, off.member), .rare = true

const flag flags_ablations[] = {
    {"--no-fork-sharing", NULL, "samples of one prompt share nothing", SWITCH(no_fork_sharing)},
    {"--no-jump-forward", NULL, "compute forced tokens one by one", SWITCH(no_jump_forward)},
    {"--fixed-draft-length", NULL, "always guess num_speculative_tokens", SWITCH(fixed_draft_length)},
    {0},
};
