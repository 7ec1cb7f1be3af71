/* Ablations: switches that turn mechanisms off, to measure what they are worth. Only
 * lab and tests set them. They change no token, except fixed_draft_length under
 * rejection sampling. */
#ifndef ENGINE_ABLATIONS_H
#define ENGINE_ABLATIONS_H

#include <stdbool.h>

/* All zero: every mechanism is on. */
typedef struct engine_ablations {
    /* samples of one prompt share nothing; beams copy shared pages where there is room */
    bool no_fork_sharing;
    bool no_jump_forward; /* tokens that a request's rules force are computed one by one */
    /* the draft length does not adapt to the accepted tokens: it is always n_tokens */
    bool fixed_draft_length;
} engine_ablations;

#endif
