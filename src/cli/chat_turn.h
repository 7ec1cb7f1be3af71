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
 * room, the oldest turns are dropped and a line reports it. If stopped (tty_interrupted),
 * it adds what was said so far. A turn that fails, or was stopped before anything was
 * said, leaves the conversation as it was. CONTEXT_LENGTH: the message does not fit even
 * alone. */
quire_err chat_turn_take(chat_state *c, str message, quire_error *err);
/* Replaces the last answer by a new one. INVALID if there is none; other failures as
 * above. */
quire_err chat_turn_again(chat_state *c, quire_error *err);
/* Prints the model's continuation of a text. */
quire_err chat_turn_complete(chat_state *c, str text, quire_error *err);

/* Runs the command that the line, which begins with /, names. INVALID if there is none of
 * that name, and other errors of the command: err says what to do. Nothing is sent to the
 * model for an unknown one. */
quire_err chat_commands_run(chat_state *c, str line, quire_error *err);

#endif
