/* Reasoning and tool calls of a chat's answer: collected from the parts of its events,
 * written as members of a message. Used by responses of the server and by the lines of
 * `quire run --prompts`. One thread. */
#ifndef SERVER_ANSWER_PARTS_H
#define SERVER_ANSWER_PARTS_H

#include "quire.h"
#include "json/json_out.h"

/* A tool call of an answer, or the unsent part of one in a withheld chunk. */
typedef struct answer_call {
    int32_t index;  /* among the calls of its choice */
    bool begins;    /* with its name */
    bool is_custom; /* call of a custom tool: the arguments are its input */
    strbuf name, arguments;
} answer_call;

/* A stretch of an answer that is all of one kind. */
typedef struct answer_run {
    quire_part_kind kind; /* REASONING, CONTENT or CALL, which is the whole call */
    size_t at, n;         /* its text within the reasoning or the content; at: the call's place in calls */
    size_t logprobs_end;  /* of CONTENT, where its writer lists them: where in the list its own end */
} answer_run;

/* The parts of one choice other than its content: all of them, or those of the withheld
 * chunk. Zero-initialised it is empty. */
typedef struct answer_parts {
    strbuf reasoning;
    answer_call *calls;
    size_t n_calls, cap_calls;
    answer_run *runs; /* content, reasoning and calls in the order in which they came */
    size_t n_runs, cap_runs;
    size_t n_bytes; /* of its texts and calls; 0: there is only content */
    bool has_calls; /* there was a call, now or before a clear */
} answer_parts;

/* Where parts belong. Ids of calls are made from the response's id and the choice, so
 * that a call has the same id in each chunk. */
typedef struct answer_place {
    const char *response_id;
    size_t choice;
    bool names_call, old_calls; /* the request's, as in quire_request_info */
} answer_place;

#define ANSWER_CALL_ID_BYTES 9 /* letters and digits: some models' templates accept no other ids */

/* Writes the 0-terminated id of a call: a hash of the response's id, choice and call; the
 * same in each chunk. */
void answer_call_id(answer_place at, int32_t index, char out[ANSWER_CALL_ID_BYTES + 1]);

/* Adds the parts of a DELTA, and appends those of them that are content to *content.
 * NO_MEMORY: some may be missing. */
quire_err answer_parts_take(answer_parts *p, const quire_event *ev, strbuf *content);
/* The bytes of memory that they take. */
size_t answer_parts_bytes(const answer_parts *p);
/* Drops the texts once they are written; has_calls is kept. */
void answer_parts_clear(answer_parts *p);
void answer_parts_deinit(answer_parts *p);

/* "tool_calls" or "function_call" if the answer called functions that it chose itself and
 * ended with a stop; otherwise NULL. */
const char *answer_parts_finish_name(const answer_parts *p, answer_place at, quire_finish finish);

/* Writes a whole message {"role":"assistant","content":..,..}; its content is echo
 * followed by content, or null if there are only parts. */
void answer_parts_write_message(const answer_parts *p, answer_place at, str echo, str content, json_out *o);
/* Writes the members "tool_calls" (or "function_call"), "reasoning" and
 * "reasoning_content" as far as they exist. */
void answer_parts_write(const answer_parts *p, answer_place at, json_out *o);
/* The same for a delta, reasoning first; calls have their index, and ids and names only
 * where they begin. */
void answer_parts_write_delta(const answer_parts *p, answer_place at, json_out *o);

#endif
