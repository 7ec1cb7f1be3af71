/* Output parser: what a model writes, split into reasoning, content and tool calls while
 * it streams.
 *
 *   text and special tokens --> reasoning part --> tool part --> events
 *
 * The parser reads byte by byte and decides by what it has read, never by where a piece
 * ends: however a text is cut into pieces, the reasoning, content, calls and arguments
 * are the same. What may become a mark or a call is held back until it is one, so half a
 * mark is never an event. What turns out to be no call is content, so no text is lost.
 * White space next to a call and around reasoning is dropped.
 *
 * The arguments of a call are JSON in every format, passed on as they come. If a model's
 * arguments break off or violate the syntax, they are completed (strings and brackets are
 * closed), and what follows is content; only an answer that its length cut off leaves
 * them unfinished.
 *
 * A format is a row of answer_format.h, whose writings give the marks that are looked for
 * and which of seven syntaxes reads a call.
 *
 * Time: linear in the text. Memory: at most max_held bytes are held back; a call attempt
 * beyond that is content. One thread. */
#ifndef ANSWER_OUTPUT_PARSER_H
#define ANSWER_OUTPUT_PARSER_H

#include "answer/answer_format.h"
#include "answer/output_events.h"

typedef struct output_parser output_parser;

/* QUIRE_INVALID: a format does not exist; *err names it. QUIRE_NO_MEMORY. The options'
 * texts are borrowed. */
quire_err output_parser_open(const output_options *o, output_parser **out, quire_error *err);
void output_parser_close(output_parser *p);
/* Reads the next piece: whole characters, or, with is_special, one special token. Appends
 * events. Bytes that are not UTF-8 become U+FFFD. QUIRE_NO_MEMORY, QUIRE_TOO_LARGE (an
 * event text beyond its strbuf's max): the parser cannot be used further. */
quire_err output_parser_feed(output_parser *p, str piece, bool is_special, output_events *out);
/* A special token with hidden text has come: no mark and no beginning of a call continues
 * across it, as in the grammar of calls. Errors as above. */
quire_err output_parser_break(output_parser *p, output_events *out);
/* The answer ends. cut_off: by its length, so that the last call's arguments may stay
 * unfinished. Errors as above. */
quire_err output_parser_finish(output_parser *p, bool cut_off, output_events *out);

#endif
