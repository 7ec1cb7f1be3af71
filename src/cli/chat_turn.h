/* A turn on the terminal: sends the conversation, prints the answer and how long it took.
 * One thread; needs tty_open. */
#ifndef CLI_CHAT_TURN_H
#define CLI_CHAT_TURN_H

#include "cli/chat_state.h"

/* Adds the user's message, prints the answer and adds it. If the context has no room, the
 * oldest turns are dropped and a line reports it. Stopped (tty_interrupted), it adds what
 * was said so far. A turn that fails, or was stopped before anything was said, leaves the
 * conversation as it was. CONTEXT_LENGTH: the message has no room even alone. */
quire_err chat_turn_take(chat_state *c, str message, quire_error *err);
/* Replaces the last answer by another one. If there is none: INVALID. Failures as
 * above. */
quire_err chat_turn_again(chat_state *c, quire_error *err);
/* Prints the model's continuation of a text. */
quire_err chat_turn_complete(chat_state *c, str text, quire_error *err);

#endif
