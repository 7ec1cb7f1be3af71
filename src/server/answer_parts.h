/* Collects the reasoning and tool calls of a chat's answer from its events, and writes
 * them as members of a message. Used by the server's responses and by `quire run
 * --prompts`. One thread. */
#ifndef SERVER_ANSWER_PARTS_H
#define SERVER_ANSWER_PARTS_H

#include "quire.h"
#include "json/json_out.h"

/* A tool call of an answer or, in a withheld chunk, its unsent part. */
typedef struct answer_call {
    int32_t index;  /* index among the calls of its choice */
    bool begins;    /* this part begins the call and has its name */
    bool is_custom; /* a custom tool's call: `arguments` has its input */
    strbuf name, arguments;
} answer_call;

/* A run: consecutive text of an answer that is all of one kind. */
typedef struct answer_run {
    quire_part_kind kind; /* REASONING, CONTENT or CALL; a CALL run is a whole call */
    size_t at, n;         /* bytes [at, at + n) of the reasoning or content; CALL: at is its index in calls */
    /* CONTENT: where the run's log-probabilities end in the writer's list, if it has
     * one */
    size_t logprobs_end;
} answer_run;

/* The parts of one choice other than its content: all of them, or the withheld chunk's.
 * Zero-initialised: empty. */
typedef struct answer_parts {
    strbuf reasoning;
    answer_call *calls;
    size_t n_calls, cap_calls;
    answer_run *runs; /* content, reasoning and calls in order of arrival */
    size_t n_runs, cap_runs;
    size_t n_bytes; /* bytes of the reasoning and calls; 0: there is only content */
    bool has_calls; /* a call has come since the beginning; survives answer_parts_clear */
} answer_parts;

/* The place of parts in a response. Ids of calls are derived from the response's id and
 * the choice, so a call has the same id in each chunk. */
typedef struct answer_place {
    const char *response_id;
    size_t choice;
    bool names_call, old_calls; /* flags of the request, as in quire_request_info */
} answer_place;

#define ANSWER_CALL_ID_BYTES 9 /* letters and digits; some chat templates accept no other ids */

/* Writes the 0-terminated id of call `index`: a hash of the response's id, choice and
 * call, so it is the same in each chunk. */
void answer_call_id(answer_place at, int32_t index, char out[ANSWER_CALL_ID_BYTES + 1]);

/* Adds the parts of a DELTA event to p, and appends its content to *content.
 * QUIRE_NO_MEMORY: some parts may be missing. */
quire_err answer_parts_take(answer_parts *p, const quire_event *ev, strbuf *content);
/* Bytes of memory that the parts take. */
size_t answer_parts_bytes(const answer_parts *p);
/* Drops all parts, once they are written; has_calls is kept. */
void answer_parts_clear(answer_parts *p);
void answer_parts_deinit(answer_parts *p);

/* The finish reason of a choice that called functions on its own and ended with a stop,
 * "tool_calls" or "function_call"; NULL for all others. */
const char *answer_parts_finish_name(const answer_parts *p, answer_place at, quire_finish finish);

/* Writes a whole message {"role":"assistant","content":..,..}. Its content is echo
 * followed by content, or null if the answer has only other parts. */
void answer_parts_write_message(const answer_parts *p, answer_place at, str echo, str content, json_out *o);
/* Writes the members "tool_calls" (or "function_call"), "reasoning" and
 * "reasoning_content", except those that would be empty. */
void answer_parts_write(const answer_parts *p, answer_place at, json_out *o);
/* Writes the same members for a streamed delta, reasoning first. Calls have an index;
 * only a call that begins has its id and name. */
void answer_parts_write_delta(const answer_parts *p, answer_place at, json_out *o);

#endif
