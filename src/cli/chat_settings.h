/* The request fields that a chat's /set changes: those that `quire run` has flags for
 * (command_run), by field or flag name. The API checks the values. One thread. */
#ifndef CLI_CHAT_SETTINGS_H
#define CLI_CHAT_SETTINGS_H

#include "cli/chat_state.h"

/* Sets a field: JSON, or a text without quotes; "default" unsets it. INVALID or
 * BAD_REQUEST: err says why; nothing is changed. */
quire_err chat_settings_set(chat_state *c, str name, str value, quire_error *err);
/* Prints all fields, what the next answer will use, and what they mean. */
quire_err chat_settings_print(const chat_state *c, quire_error *err);

#endif
