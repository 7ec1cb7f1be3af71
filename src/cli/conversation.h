/* A conversation: the system message, then messages of user and model in turn. One
 * thread.
 *
 * A turn begins with a user message and ends before the next one. Turns before `first`
 * are kept but not sent, because the context has no room for them. Invariant: first <= n;
 * if first < n, that message is the user's. */
#ifndef CLI_CONVERSATION_H
#define CLI_CONVERSATION_H

#include "base/str.h"

typedef enum conversation_role { CONVERSATION_USER, CONVERSATION_ASSISTANT } conversation_role;

typedef struct conversation_message {
    conversation_role role;
    strbuf text;
} conversation_message;

/* All zero: empty. */
typedef struct conversation {
    bool has_system;
    strbuf system;
    conversation_message *messages; /* mem_new'd */
    size_t n, cap, first;
} conversation;

void conversation_deinit(conversation *c);
/* Removes all but the system message. */
void conversation_clear(conversation *c);
/* Sets the system message; an empty text removes it. QUIRE_NO_MEMORY: c is unchanged,
 * after this and all other calls. */
quire_err conversation_set_system(conversation *c, str text);
/* Adds a message; the text is copied. */
quire_err conversation_add(conversation *c, conversation_role role, str text);
/* Removes the last message, which must not be before `first`. */
void conversation_drop_last(conversation *c);
/* The index of the first message of the turn after that of message `at`; n: there is
 * none. */
size_t conversation_next_turn(const conversation *c, size_t at);

/* Appends the system message and messages[from..] as JSON: [{"role": "user", "content":
 * ".."}, ..]. */
quire_err conversation_write(const conversation *c, size_t from, strbuf *out);

/* Writes {"messages": [..]} with all messages to a new file that only its owner may read.
 * QUIRE_INVALID: the file exists and `replace` is false. QUIRE_IO, QUIRE_NOT_FOUND: it
 * could not be written; an existing file is unchanged, and no new one is left. */
quire_err conversation_save(const conversation *c, const char *path, bool replace, quire_error *err);
/* Replaces the content of *c by such a file's, or by that of a file with the list alone.
 * QUIRE_BAD_FILE: the file has another format; *c is unchanged. */
quire_err conversation_load(conversation *c, const char *path, quire_error *err);

/* Selects the turns to send, so that prompt and answer fit the context: the oldest are
 * left out first. Pure functions. */

/* A plan to try: messages[from..], in a prompt of at most `limit` tokens (0: no limit but
 * the context). */
typedef struct context_fit {
    size_t from;
    int32_t limit;
} context_fit;

/* The first plan: the messages that were sent last time and the new one, with room for an
 * answer of max_tokens (0: not limited). context_tokens: the model's context length. */
context_fit context_fit_begin(const conversation *c, int32_t context_tokens, int32_t max_tokens);
/* After a plan that did not fit, the next one: a turn less, and a quarter of the context
 * free, so that the following turns fit without leaving out more, which would change the
 * prompt's beginning, so that it would be computed again. The last turn alone has no
 * limit. False: even that did not fit. */
bool context_fit_next(const conversation *c, int32_t context_tokens, context_fit *fit);

#endif
