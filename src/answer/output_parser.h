/* Output parser: what a model writes, split into reasoning, content and tool calls while
 * it streams.
 *
 *   text and special tokens --> reasoning part --> tool part --> events
 *
 * The parser decides byte by byte, so the reasoning, content, calls and arguments do not
 * depend on how the text was cut into pieces. Text that may become a mark or a call is
 * held back until that is decided. Text that turns out to be no call becomes content, so
 * no text is lost. White space next to a call and around reasoning is dropped.
 *
 * The arguments of a call are JSON in every format, passed on as they come. If a model's
 * arguments break off or violate the syntax, they are completed (strings and brackets are
 * closed), and what follows is content. Only in an answer that its length limit cut off
 * do they stay unfinished.
 *
 * A format is a row of answer_format.h, which gives the marks to search for and the
 * syntax that reads a call.
 *
 * Time: linear in the text. Memory: at most max_held bytes are held back; a call attempt
 * beyond that is content. One thread. */
#ifndef ANSWER_OUTPUT_PARSER_H
#define ANSWER_OUTPUT_PARSER_H

#include "answer/answer_format.h"
#include "answer/output_events.h"

typedef struct output_parser output_parser;

/* Opens a parser; the caller closes *out. The options' texts are borrowed until then.
 * QUIRE_INVALID: a format does not exist; *err names it. QUIRE_NO_MEMORY. */
quire_err output_parser_open(const output_options *o, output_parser **out, quire_error *err);
void output_parser_close(output_parser *p);
/* Reads the next piece of the answer: whole characters, or, with is_special, one special
 * token. Appends its events to *out. Bytes that are not UTF-8 become U+FFFD.
 * QUIRE_NO_MEMORY, QUIRE_TOO_LARGE (an event's text beyond out->text.max): after either,
 * the parser may only be closed. */
quire_err output_parser_feed(output_parser *p, str piece, bool is_special, output_events *out);
/* Handles a special token with hidden text: no mark and no beginning of a call continues
 * across it, as in the grammar of calls. Errors as output_parser_feed. */
quire_err output_parser_break(output_parser *p, output_events *out);
/* Ends the answer and appends the last events. cut_off: its length limit ended it, so the
 * last call's arguments may stay unfinished. Errors as output_parser_feed. */
quire_err output_parser_finish(output_parser *p, bool cut_off, output_events *out);

#endif
