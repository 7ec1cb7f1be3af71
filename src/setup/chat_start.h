/* How the prompts of chats begin: with a BOS that the template writes, with one that the tokenizer adds, or without. */
#ifndef SETUP_CHAT_START_H
#define SETUP_CHAT_START_H

#include "chat/chat_form.h"

/* Appends it as a phrase, by what the form's first template makes of a user's message: "with BOS, <s>: the template writes it".
 * QUIRE_NO_MEMORY. */
quire_err chat_start_print(const chat_form *form, const tokenizer *t, strbuf *out);

#endif
