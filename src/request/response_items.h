/* Reads the items of a conversation in the form of OpenAI's Responses API, and writes
 * them as the messages of a chat.
 *
 * An item is a message, a reasoning, a call of a tool or the output of one. Reasoning,
 * text and calls of an assistant that follow each other are one message. The output of a
 * call must come after that call. One thread. */
#ifndef REQUEST_RESPONSE_ITEMS_H
#define REQUEST_RESPONSE_ITEMS_H

#include "json/json_out.h"

typedef struct item_reader item_reader;

/* Opens a reader that writes an array of messages to *messages and, a line each, the
 * items as they are kept to *kept: complete objects, each of which begins with its id.
 * What is read must outlive the reader, and *err too, which is set after a failure of any
 * call. */
quire_err items_open(strbuf *messages, strbuf *kept, quire_error *err, item_reader **out);
/* Adds a system message of a text, before all others. */
void items_add_instructions(item_reader *t, const json_value *text);
/* Reads an array of items. list: how errors name it, "input"; is_kept: they are written
 * to *kept. QUIRE_BAD_REQUEST, whose param is LIST[I].MEMBER. */
quire_err items_read_list(item_reader *t, const char *list, const json_value *items, bool is_kept);
/* Reads a text, which is a message of a user, and keeps it. */
quire_err items_read_text(item_reader *t, const json_value *text);
/* Writes the name of a tool as the model knows it: NAMESPACE.NAME, or NAME where space is
 * empty. */
void items_write_name(str space, str name, json_out *o);
/* Frees the reader, which may be NULL. is_whole: ends the array. The first failure of
 * writing it. */
quire_err items_close(item_reader *t, bool is_whole);

#endif
