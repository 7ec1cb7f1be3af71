/* How the prompts of chats begin: with a BOS that the template writes, with one that the tokenizer adds, or without. */
#ifndef SETUP_CHAT_START_H
#define SETUP_CHAT_START_H

#include "chat/chat_form.h"

/* Says it in a line of the log, by what the form's first template makes of a user's message. */
void chat_start_log(const chat_form *form, const tokenizer *t);

#endif
