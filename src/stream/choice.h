/* A choice is one completion of a request: its prompt, and the response that comes of the
 * engine's events. It turns tokens into text, matches stop strings, collects
 * log-probabilities and knows how the response ended.
 *
 *   prepared (text thread) --> tokens --> finish known --> ended (END delivered)
 *                                ^--- rolled back ---'
 *
 * A text thread prepares it; from then on it belongs to the queue's thread. It never
 * looks into the stream that it is part of. */
#ifndef STREAM_CHOICE_H
#define STREAM_CHOICE_H

#include "answer/output_events.h"
#include "answer/output_parser.h"
#include "answer/unescape.h"
#include "engine/explain.h"
#include "request/generation.h"
#include "sample/constraint.h"
#include "stream/stream_engine.h"
#include "text/detok.h"
#include "text/stop_matcher.h"

/* Stop strings in a beam search: the engine calls back for each continuation, whether its
 * text completes a stop string.
 *
 * A stream's response is ended from outside at a position; beams cannot be, since the
 * search depends on which of them have ended. The results are the same as if the text
 * were matched, with one exception: a stop string that a token completes together with a
 * part of a character only cuts the text that is shown. */

typedef struct beam_stop_matcher beam_stop_matcher;

/* Opens a matcher for g's stop strings. g and the engine outlive it. */
quire_err beam_stop_matcher_open(stream_engine *e, const generation *g, beam_stop_matcher **out);
void beam_stop_matcher_close(beam_stop_matcher *w);
/* engine_ending.is_over: whether the last of tokens[n_prompt..n) completes a stop string
 * in their text. One thread at a time; allocates nothing. */
bool beam_stop_matcher_is_over(void *watch, const int32_t *tokens, int32_t n_prompt, int32_t n);

/* What turns tokens into text, and text into parts. Zero-initialised: nothing, as without
 * a vocabulary. */
typedef struct choice_text {
    detok *detok;
    stop_matcher *stops;      /* NULL without stop strings */
    output_parser *parser;    /* NULL: the response has no parts, or has ended */
    size_t n_decoded, n_last; /* bytes that the detokenizer gave: in all, and for the last token */
    /* those of a fork's prompt that may begin a stop string: they count as its first
     * token's */
    size_t n_before;
} choice_text;

/* What the response obeys, made on the text thread. */
typedef struct stream_rule {
    constraint *constraint; /* the rule and the reasoning budget, with one reference; NULL: none */
    strbuf keywords;        /* with explain: how each keyword of the rule is enforced, as JSON */
    int64_t compile_us;     /* of the rule */
} stream_rule;

typedef struct choice {
    stream_engine *e;
    quire_stream *stream;
    const quire_request *request; /* the stream's */
    const stream_rule *rule;      /* the stream's */
    int32_t index;
    /* set by the text thread before the choice is submitted to the engine */
    token_list prompt;
    token_list types; /* token types of a prompt that is a pair; else empty */
    strbuf shown;     /* START's text of a request that ends with its prompts, or the template's */
    bool is_cut;      /* its prompt had more tokens */
    choice_text text;
    output_start start; /* how the text after the prompt begins, if it has parts */
    turn_place place;   /* the answer's place in a conversation's text */
    sampling_params sampling;
    /* max_tokens 0 with echo: the engine generates a token, which is no part of the
     * response */
    bool prompt_only;
    request_id id;
    bool submitted;
    int64_t tokenise_us; /* from quire_submit until the engine had it */
    /* the queue's thread: */
    bool started, ended; /* START and END were delivered */
    request_id current;  /* its sequence in the engine: known with the first event or once it is prepared */
    bool gone;           /* the engine's end event has come */
    token_list history;  /* the tokens of the response so far, without dropped ones */
    double *sums;        /* [history.n] cumulated log-probabilities, where the engine reports them */
    size_t cap_sums;
    quire_request *changed;         /* its fields, where they differ from the request's; else NULL */
    struct stream_command *command; /* the rollback or steer that is under way, or NULL */
    int32_t n_replaced, n_forks;    /* sequences that replaced it so far; forks taken */
    int32_t n_completion;
    prediction_counts predicted; /* of its prediction, up to the tokens so far */
    double sum_logprob;          /* of its tokens, if the engine reports log-probabilities */
    double beam_score;
    int32_t n_cached; /* cached tokens of the prompt, from the engine */
    /* of the prompt, from the engine, where the request wants to know it; 0: not yet */
    int32_t n_processed;
    int64_t processed_us; /* from its admission until then */
    int64_t queue_us;     /* until its first admission, from the engine */
    /* of its first sequence that came so far, from the engine; 0: not yet */
    int64_t admitted_us, first_token_us;
    int64_t over_us;                  /* when its finish was known */
    int32_t n_prefilled, n_preempted; /* from the engine's end event */
    bool counted;                     /* in the statistics */
    turn_counts turns;                /* of the earlier answers that its conversation names */
    quire_explain_more explain_more;  /* filled with explain */
    const adapter_want *want;         /* the stream's adapter */
    explain *explain;                 /* from the engine's end event, if requested */
    float *row;                       /* likewise; NULL: none */
    int32_t n_row;
    call_limit calls; /* where the response has parts */
    bool is_custom;   /* the present call is of a custom tool */
    custom_input input;
    int64_t detokenise_us;
    quire_finish finish;
    int32_t stop_token;
    int32_t stop_string; /* index, or -1 */
    int32_t last_token;
    const token_logprob *logprobs, *prompt_logprobs; /* the engine's, of the present event */
} choice;

/* Memory of the events that a queue delivers, valid until the next one. */
typedef struct event_memory {
    strbuf text;         /* text of a DELTA or ROLLBACK */
    strbuf echo;         /* of a START */
    output_events found; /* of a DELTA */
    output_events plain; /* the same, with inputs in place of custom tools' arguments */
    quire_part *parts;   /* the same, for the user */
    size_t cap_parts;
    quire_logprob *logprobs;
    size_t cap_logprobs;
    size_t *ends; /* where each prompt token ends in the echo */
    size_t cap_ends;
} event_memory;

void event_memory_deinit(event_memory *m);

void choice_init(choice *c, stream_engine *e, quire_stream *s, const quire_request *r,
                 const stream_rule *rule, int32_t index);
void choice_deinit(choice *c);
/* How many of c's prompt tokens were a prompt from the beginning, and not the response of
 * its fork parent. */
int32_t choice_first_prompt(const choice *c);
/* Opens the text of a response after c's prompt. NO_MEMORY; what was opened is the
 * caller's to close. */
quire_err choice_open_text(const choice *c, choice_text *out);
void choice_text_close(choice_text *t);
/* Detokenises a token after the others, and appends to *out the text that can be shown,
 * and to *found its parts. *match is the stop string that it completes, or -1; with
 * may_end false none can end here. p has the stop tokens. t is the caller's. No stop
 * string reaches across
 * a token that is a mark. */
quire_err choice_feed(const choice *c, const sampling_params *p, choice_text *t, int32_t token, bool may_end,
                      strbuf *out, output_events *found, int32_t *match);

/* Takes a token of the engine, and writes the text that can be shown to m->text. A token
 * that completes a stop string finishes the choice, and its sequence is cancelled. */
quire_err choice_take_token(choice *c, const engine_event *event, event_memory *m);
/* Takes the engine's end event: the report, the scores and, unless a stop string has
 * finished c before, the finish. */
void choice_take_end(choice *c, const engine_event *event);
/* Whether c's END cannot be delivered yet although its finish is known: a rollback or
 * steer may still undo it, or the engine's end event brings more for it. */
bool choice_end_waits(const choice *c);
/* Drops the response after its first n_kept tokens. text, which has seen those, belongs
 * to c from then on. */
void choice_truncate(choice *c, size_t n_kept, choice_text text);

/* Fill an event, without its user. NO_MEMORY: the event is valid, without text or
 * log-probabilities. */
void choice_event(const choice *c, quire_event_kind kind, quire_event *out);
quire_err choice_start(choice *c, event_memory *m, quire_event *out);
/* A DELTA of m->text and m->found, with the last token or without. */
quire_err choice_delta(choice *c, bool with_token, event_memory *m, quire_event *out);
/* A ROLLBACK to m->text. */
void choice_rollback(const choice *c, const event_memory *m, quire_event *out);
/* Call when the response has ended: appends withheld text to m->text and m->found. */
quire_err choice_flush(choice *c, event_memory *m);
/* An EMBEDDING. */
void choice_row(const choice *c, quire_event *out);
void choice_end(const choice *c, quire_event *out);

#endif
