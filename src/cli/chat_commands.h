/* The commands of a chat: /help and the others. One thread. */
#ifndef CLI_CHAT_COMMANDS_H
#define CLI_CHAT_COMMANDS_H

#include "cli/chat_state.h"

/* Runs the command that the line, which begins with /, names. INVALID if there is none of
 * that name, and other errors of the command: err says what to do. Nothing is sent to the
 * model for an unknown one. */
quire_err chat_commands_run(chat_state *c, str line, quire_error *err);

#endif
