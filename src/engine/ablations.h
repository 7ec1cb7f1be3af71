/* Ablations: mechanisms that are switched off to measure what they bring. Only lab and
 * tests set them. No token depends on them, but for fixed_draft_length under rejection
 * sampling. */
#ifndef ENGINE_ABLATIONS_H
#define ENGINE_ABLATIONS_H

#include <stdbool.h>

/* All zero: every mechanism is on. */
typedef struct engine_ablations {
    /* samples of one prompt are requests of their own; beams share no pages as far as
     * there is room */
    bool no_fork_sharing;
    bool no_jump_forward;    /* tokens that a request's rules force are computed one by one */
    bool fixed_draft_length; /* n_tokens are drafted always, however few are accepted */
} engine_ablations;

#endif
