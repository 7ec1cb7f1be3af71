/* A choice is one completion of a request: its prompt, and the response that the engine's
 * events add up to. It detokenises, matches stop strings, collects log-probabilities and
 * records how the response ended.
 *
 *   prepared (text thread) --> tokens --> finish known --> ended (END delivered)
 *                                ^--- rolled back ---'
 *
 * A text thread prepares it; from then on it belongs to the queue's thread. It never
 * accesses the stream that it belongs to. */
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

/* Stop strings in a beam search: for each continuation the engine asks through a callback
 * whether its text completes a stop string.
 *
 * A sampled response can be cut afterwards; a beam cannot, since the search depends on
 * which beams have ended. The results are as if each text were matched afterwards, with
 * one exception: if a token completes a stop string and also begins a character, only the
 * text that is shown is cut. */

typedef struct beam_stop_matcher beam_stop_matcher;

/* Opens a matcher for g's stop strings. g and the engine outlive it. */
quire_err beam_stop_matcher_open(stream_engine *e, const generation *g, beam_stop_matcher **out);
void beam_stop_matcher_close(beam_stop_matcher *w);
/* engine_ending.is_over: whether the last of tokens[n_prompt..n) completes a stop string
 * in their text. One thread at a time; allocates nothing. */
bool beam_stop_matcher_is_over(void *watch, const int32_t *tokens, int32_t n_prompt, int32_t n);

/* What turns tokens into text, and text into parts. Zero-initialised: does nothing, as
 * without a vocabulary. */
typedef struct choice_text {
    detok *detok;
    stop_matcher *stops;      /* NULL without stop strings */
    output_parser *parser;    /* NULL: the response has no parts, or has ended */
    size_t n_decoded, n_last; /* bytes from the detokenizer: in all, and for the last token */
    /* bytes at the end of a fork's prompt that may begin a stop string: they count as
     * part of its first token */
    size_t n_before;
} choice_text;

/* The constraint of the response, made on the text thread. */
typedef struct stream_rule {
    constraint *constraint; /* the rule and the reasoning budget, with one reference; NULL: none */
    strbuf keywords;        /* with explain: how each keyword of the rule is enforced, as JSON */
    int64_t compile_us;     /* time to compile the rule */
} stream_rule;

typedef struct choice {
    stream_engine *e;
    quire_stream *stream;
    const quire_request *request; /* the stream's */
    const stream_rule *rule;      /* the stream's */
    int32_t index;
    /* set by the text thread before the choice is submitted to the engine */
    token_list prompt;
    token_list types; /* token types of a prompt that is a pair of texts; otherwise empty */
    /* the text in START, if the request ends with its prompts or wants the template's
     * text */
    strbuf shown;
    bool is_cut; /* the prompt was truncated */
    choice_text text;
    output_start start; /* how the text after the prompt begins, if it has parts */
    turn_place place;   /* the answer's place in a conversation's text */
    sampling_params sampling;
    /* max_tokens 0 with echo: the engine generates one token, which does not belong to
     * the response */
    bool prompt_only;
    request_id id;
    bool submitted;
    int64_t tokenise_us; /* from quire_submit until the engine received it */
    /* the queue's thread: */
    bool started, ended; /* START and END were delivered */
    request_id current;  /* its sequence in the engine: known with the first event or once it is prepared */
    bool gone;           /* the engine's end event has come */
    token_list history;  /* the tokens of the response so far, without dropped ones */
    double *sums;        /* [history.n] cumulated log-probabilities, where the engine reports them */
    size_t cap_sums;
    /* the request with its changed fields after a rollback or steer; otherwise NULL */
    quire_request *changed;
    struct stream_command *command; /* the rollback or steer in progress, or NULL */
    int32_t n_replaced, n_forks;    /* sequences that replaced its first one so far; forks taken */
    int32_t n_completion;
    prediction_counts predicted; /* counts of its prediction up to the tokens so far */
    double sum_logprob;          /* sum over its tokens, if the engine reports log-probabilities */
    double beam_score;
    int32_t n_cached; /* tokens of the prompt that were cached, from the engine */
    /* processed tokens of the prompt, from the engine, if the request wants progress; 0:
     * none yet */
    int32_t n_processed;
    int64_t processed_us; /* from its admission until then */
    int64_t queue_us;     /* time until its first admission, from the engine */
    /* of its first sequence that came so far, from the engine; 0: not yet */
    int64_t admitted_us, first_token_us;
    int64_t over_us;                  /* when its finish became known */
    int32_t n_prefilled, n_preempted; /* from the engine's end event */
    bool counted;                     /* counted in the statistics */
    turn_counts turns;                /* counts of the earlier answers that its conversation names */
    quire_explain_more explain_more;  /* filled if the request wants explain */
    const adapter_want *want;         /* the adapter that the stream wants */
    explain *explain;                 /* from the engine's end event, if requested */
    float *row;                       /* likewise; NULL: none */
    int32_t n_row;
    call_limit calls; /* used if the response has parts */
    bool is_custom;   /* the present call is to a custom tool */
    custom_input input;
    int64_t detokenise_us;
    quire_finish finish;
    int32_t stop_token;
    int32_t stop_string; /* index of the stop string that ended it, or -1 */
    int32_t last_token;
    const token_logprob *logprobs, *prompt_logprobs; /* the engine's, for the present event */
} choice;

/* Memory for the events that a queue delivers; an event is valid until the next one. */
typedef struct event_memory {
    strbuf text;         /* text of a DELTA or ROLLBACK */
    strbuf echo;         /* of a START */
    output_events found; /* parts of a DELTA */
    output_events plain; /* the same, with custom tools' inputs in place of their arguments */
    quire_part *parts;   /* the same, in the types of quire.h */
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
/* How many of c's prompt tokens were in the first prompt, and not in the response of its
 * fork parent. */
int32_t choice_first_prompt(const choice *c);
/* Opens the text of a response after c's prompt. QUIRE_NO_MEMORY; the caller closes what
 * was opened. */
quire_err choice_open_text(const choice *c, choice_text *out);
void choice_text_close(choice_text *t);
/* Detokenises the next token; appends the text that can be shown to *out, and its parts
 * to *found. *match: the stop string that it completes, or -1; with may_end false none
 * can end here. p names the stop tokens. t belongs to the caller. No stop string extends
 * across a mark. */
quire_err choice_feed(const choice *c, const sampling_params *p, choice_text *t, int32_t token, bool may_end,
                      strbuf *out, output_events *found, int32_t *match);

/* Processes a token from the engine, and writes the text that can be shown to m->text.
 * If the token completes a stop string, the choice is finished and its sequence
 * cancelled. */
quire_err choice_take_token(choice *c, const engine_event *event, event_memory *m);
/* Processes the engine's end event: the report, the scores and, unless a stop string has
 * finished c, the finish. */
void choice_take_end(choice *c, const engine_event *event);
/* Whether c's END must wait although its finish is known: a rollback or steer may still
 * undo it, or the engine's end event has more to add to it. */
bool choice_end_waits(const choice *c);
/* Drops the response after its first n_kept tokens. text, to which those tokens were fed,
 * is c's from then on. */
void choice_truncate(choice *c, size_t n_kept, choice_text text);

/* Each fills an event, except for its user. QUIRE_NO_MEMORY: the event is valid, but has
 * no text or log-probabilities. */
void choice_event(const choice *c, quire_event_kind kind, quire_event *out);
quire_err choice_start(choice *c, event_memory *m, quire_event *out);
/* A DELTA of m->text and m->found, with the last token or without. */
quire_err choice_delta(choice *c, bool with_token, event_memory *m, quire_event *out);
/* A ROLLBACK, after which the text is m->text. */
void choice_rollback(const choice *c, const event_memory *m, quire_event *out);
/* Call when the response has ended: appends withheld text to m->text and m->found. */
quire_err choice_flush(choice *c, event_memory *m);
/* An EMBEDDING. */
void choice_row(const choice *c, quire_event *out);
void choice_end(const choice *c, quire_event *out);

#endif
