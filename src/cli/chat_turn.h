/* A chat of `quire run` on a terminal: its state, its turns and its commands. One thread;
 * needs tty_open. */
#ifndef CLI_CHAT_TURN_H
#define CLI_CHAT_TURN_H

#include "cli/conversation.h"
#include "cli/session.h"

/* The conversation, and how answers are sampled. */
typedef struct chat_state {
    session *session; /* borrowed */
    bool completes;   /* --complete: each text is completed on its own, and there is no conversation */
    body fields;      /* request fields that flags and /set set */
    conversation talk;
    bool is_over;
} chat_state;

/* A turn: adds the user's message, prints the answer and adds it. If the context has no
 * room, the oldest turns are left out and a line reports it. If the user stops it
 * (tty_interrupted), the answer so far is added. A turn that fails, or is stopped before
 * the answer begins, leaves the conversation unchanged. QUIRE_CONTEXT_LENGTH: the message
 * does not fit even alone. */
quire_err chat_turn_take(chat_state *c, str message, quire_error *err);
/* Replaces the last answer by a new one. QUIRE_INVALID: there is none. Other errors of
 * chat_turn_take. */
quire_err chat_turn_again(chat_state *c, quire_error *err);
/* Prints the model's continuation of a text. */
quire_err chat_turn_complete(chat_state *c, str text, quire_error *err);

/* Runs the command in a line that begins with /. QUIRE_INVALID: there is no such command,
 * and nothing is sent to the model; other errors are those of the command. err says what
 * to do. */
quire_err chat_commands_run(chat_state *c, str line, quire_error *err);

#endif
