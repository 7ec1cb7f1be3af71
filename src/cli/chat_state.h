/* The state of `quire run` on a terminal: the conversation, and how answers are sampled.
 * One thread. */
#ifndef CLI_CHAT_STATE_H
#define CLI_CHAT_STATE_H

#include "cli/conversation.h"
#include "cli/session.h"

typedef struct chat_state {
    session *session; /* borrowed */
    bool completes;   /* --complete: each text is completed on its own, and there is no conversation */
    body fields;      /* request fields that flags and /set set */
    conversation talk;
    bool is_over;
} chat_state;

#endif
