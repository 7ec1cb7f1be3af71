/* A conversation: the system message, and the messages of user and model in turn. One
 * thread.
 *
 * A turn begins with a message of the user and ends before the next one. Turns before
 * `first` are kept but no longer sent, because the context has no room for them.
 * Invariant: first <= n; where first < n, that message is the user's. */
#ifndef CLI_CONVERSATION_H
#define CLI_CONVERSATION_H

#include "base/str.h"

typedef enum conversation_role { CONVERSATION_USER, CONVERSATION_ASSISTANT } conversation_role;

typedef struct conversation_message {
    conversation_role role;
    strbuf text;
} conversation_message;

/* Zero-initialised it is empty. */
typedef struct conversation {
    bool has_system;
    strbuf system;
    conversation_message *messages; /* mem_new'd */
    size_t n, cap, first;
} conversation;

void conversation_deinit(conversation *c);
/* Forgets all but the system message. */
void conversation_clear(conversation *c);
/* Sets the system message; an empty text removes it. NO_MEMORY: unchanged, as for all
 * calls. */
quire_err conversation_set_system(conversation *c, str text);
/* Adds a message; the text is copied. */
quire_err conversation_add(conversation *c, conversation_role role, str text);
/* Removes the last message, which is not before `first`. */
void conversation_drop_last(conversation *c);
/* The index of the first message of the turn after the one that message `at` belongs to;
 * n if that is the last one. */
size_t conversation_next_turn(const conversation *c, size_t at);

/* Appends the messages as JSON, [{"role": "user", "content": ".."}, ..]: the system
 * message and those from number `from` on. */
quire_err conversation_write(const conversation *c, size_t from, strbuf *out);

/* Writes {"messages": [..]} with all messages to a new file that only its owner may read.
 * INVALID: the file exists and is not to be replaced; IO, NOT_FOUND: it could not be
 * written; an existing file is unchanged, and no new one is left. */
quire_err conversation_save(const conversation *c, const char *path, bool replace, quire_error *err);
/* Reads such a file, or the list alone, into *c, whose content it replaces. BAD_FILE if
 * something else is in it: *c is unchanged. */
quire_err conversation_load(conversation *c, const char *path, quire_error *err);

/* Which turns of a conversation are sent, so that prompt and answer fit the context: the
 * oldest are left out first. Pure. */

/* A plan to be tried: messages from number `from` on, in at most `limit` tokens (0:
 * whatever fits). */
typedef struct context_fit {
    size_t from;
    int32_t limit;
} context_fit;

/* The first plan: the messages sent last time, the new one, and room for an answer of
 * max_tokens (0: not limited). context_tokens: of the model. */
context_fit context_fit_begin(const conversation *c, int32_t context_tokens, int32_t max_tokens);
/* The next plan, with one turn less, after one that did not fit. It also keeps a quarter
 * of the context free, so that the following turns fit without leaving out more: that
 * would change the prompt's beginning, and it would be computed again. The last turn
 * alone may take whatever fits. False: that did not fit either. */
bool context_fit_next(const conversation *c, int32_t context_tokens, context_fit *fit);

#endif
