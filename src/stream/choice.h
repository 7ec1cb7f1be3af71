/* A choice is one completion of a request: its prompt, and the response built from the
 * engine's events. It detokenises, matches stop strings, collects log-probabilities and
 * records how the response ended.
 *
 *   prepared (text thread) --> tokens --> finish known --> ended (END delivered)
 *                                ^--- rolled back ---'
 *
 * A text thread prepares it; from then on it belongs to the queue's thread. It never
 * accesses its stream. */
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

/* Stop strings in a beam search: for each continuation, the engine asks through a
 * callback whether the text completes a stop string.
 *
 * A sampled response can be cut afterwards; a beam cannot, since the search depends on
 * which beams have ended. The results are as if each text were matched afterwards, with
 * one exception: if a token both completes a stop string and begins a character, only the
 * displayed text is cut. */

typedef struct beam_stop_matcher beam_stop_matcher;

/* Opens a matcher for g's stop strings; g and e must outlive it. QUIRE_NO_MEMORY. */
quire_err beam_stop_matcher_open(stream_engine *e, const generation *g, beam_stop_matcher **out);
void beam_stop_matcher_close(beam_stop_matcher *w);
/* engine_ending.is_over: whether the last of tokens[n_prompt..n) completes a stop string
 * in their text. One thread at a time; allocates nothing. */
bool beam_stop_matcher_is_over(void *watch, const int32_t *tokens, int32_t n_prompt, int32_t n);

/* Turns tokens into text, and text into parts. Zeroed, it does nothing, as for a model
 * without a vocabulary. */
typedef struct choice_text {
    detok *detok;
    stop_matcher *stops;      /* NULL: no stop strings */
    output_parser *parser;    /* NULL: the response has no parts, or has ended */
    size_t n_decoded, n_last; /* bytes from the detokenizer: in total, and for the last token */
    /* bytes at the end of a fork's prompt that may begin a stop string; they count as
     * part of its first token */
    size_t n_before;
} choice_text;

/* The constraint of the response, made on the text thread. */
typedef struct stream_rule {
    constraint *constraint; /* the rule and the reasoning budget, holding one reference; NULL: none */
    strbuf keywords;        /* with explain: how each keyword of the rule is enforced, as JSON */
    int64_t compile_us;     /* time to compile the rule */
} stream_rule;

typedef struct choice {
    stream_engine *e;
    quire_stream *stream;
    const quire_request *request; /* belongs to the stream */
    const stream_rule *rule;      /* belongs to the stream */
    int32_t index;
    /* set by the text thread before the choice is submitted to the engine: */
    token_list prompt;
    token_list types; /* token types, if the prompt is a pair of texts; else empty */
    /* the text delivered with START, if the request ends with its prompts or wants the
     * template's text */
    strbuf shown;
    bool is_cut; /* the prompt was truncated */
    choice_text text;
    output_start start; /* how the answer begins, if it has parts */
    turn_place place;   /* place of the answer in the conversation's text */
    sampling_params sampling;
    /* max_tokens 0 with echo: the engine generates a token that is not part of the
     * response */
    bool prompt_only;
    request_id id;
    bool submitted;
    int64_t tokenise_us; /* from quire_submit until the engine got it */
    /* belongs to the queue's thread: */
    bool started, ended; /* START and END were delivered */
    request_id current;  /* its sequence in the engine; known from the first event, or once prepared */
    bool gone;           /* the engine's end event has come */
    token_list history;  /* tokens of the response so far, without rolled back ones */
    double *sums;        /* [history.n] cumulative log-probabilities, if the engine reports them */
    size_t cap_sums;
    /* the request with the fields that a rollback or steer changed; else NULL */
    quire_request *changed;
    struct stream_command *command; /* a rollback or steer in progress; NULL: none */
    int32_t n_replaced, n_forks;    /* sequences that have replaced its first one; forks taken so far */
    int32_t n_completion;
    prediction_counts predicted; /* accepted and rejected tokens of its prediction so far */
    double sum_logprob;          /* sum over its tokens, if the engine reports log-probabilities */
    double beam_score;
    int32_t n_cached; /* cached prompt tokens, as reported by the engine */
    /* prompt tokens processed, from the engine, if the request wants progress; 0: none
     * yet */
    int32_t n_processed;
    int64_t processed_us; /* time from admission to that progress */
    int64_t queue_us;     /* time to the first admission, from the engine */
    /* times of its first sequence with events, from the engine; 0: not yet */
    int64_t admitted_us, first_token_us;
    int64_t over_us;                  /* when its finish became known */
    int32_t n_prefilled, n_preempted; /* from the engine's end event */
    bool counted;                     /* already included in the statistics */
    turn_counts turns;                /* lookups of earlier answers that its conversation names */
    quire_explain_more explain_more;  /* filled if the request wants explain */
    const adapter_want *want;         /* the adapter of the stream */
    explain *explain;                 /* from the engine's end event, if requested */
    float *row;                       /* from the engine's end event: a pooled row; NULL: none */
    int32_t n_row;
    call_limit calls; /* used if the response has parts */
    bool is_custom;   /* the call being written is to a custom tool */
    custom_input input;
    int64_t detokenise_us;
    quire_finish finish;
    int32_t stop_token;
    int32_t stop_string; /* index of the stop string that ended it; -1: none */
    int32_t last_token;
    const token_logprob *logprobs, *prompt_logprobs; /* from the engine's current event */
} choice;

/* Memory of the events that a queue delivers. An event is valid until the next one. */
typedef struct event_memory {
    strbuf text;         /* text of a DELTA or ROLLBACK */
    strbuf echo;         /* text of a START's echo */
    output_events found; /* parts of a DELTA */
    output_events plain; /* parts of a DELTA, with inputs of custom tools in place of arguments */
    quire_part *parts;   /* `plain` in the types of quire.h */
    size_t cap_parts;
    quire_logprob *logprobs;
    size_t cap_logprobs;
    size_t *ends; /* end offset of each prompt token in the echo */
    size_t cap_ends;
} event_memory;

void event_memory_deinit(event_memory *m);

void choice_init(choice *c, stream_engine *e, quire_stream *s, const quire_request *r,
                 const stream_rule *rule, int32_t index);
void choice_deinit(choice *c);
/* The number of c's prompt tokens that belong to the original prompt, not to the response
 * of its fork parent. */
int32_t choice_first_prompt(const choice *c);
/* Opens *out for the text that follows c's prompt. QUIRE_NO_MEMORY; close it in any
 * case. */
quire_err choice_open_text(const choice *c, choice_text *out);
void choice_text_close(choice_text *t);
/* Detokenises the next token. Appends text that can be shown to *out, and its parts to
 * *found. *match: the stop string that it completes, or -1; always -1 with may_end false.
 * p names the stop tokens. t belongs to the caller. A stop string never extends across a
 * mark. */
quire_err choice_feed(const choice *c, const sampling_params *p, choice_text *t, int32_t token, bool may_end,
                      strbuf *out, output_events *found, int32_t *match);

/* Processes a token from the engine. Writes text that can be shown to m->text. If the
 * token completes a stop string, finishes the choice and cancels its sequence. */
quire_err choice_take_token(choice *c, const engine_event *event, event_memory *m);
/* Processes the engine's end event: the report, the scores and, unless a stop string has
 * finished c, the finish. */
void choice_take_end(choice *c, const engine_event *event);
/* Whether c's END is held back although its finish is known: a rollback or steer may undo
 * it, or the engine's end event is still to come. */
bool choice_end_waits(const choice *c);
/* Drops the response after its first n_kept tokens. Takes over `text`, which is the state
 * after those tokens. */
void choice_truncate(choice *c, size_t n_kept, choice_text text);

/* The next functions each fill an event, except for its user. QUIRE_NO_MEMORY: the event
 * is valid, but without text or log-probabilities. */
void choice_event(const choice *c, quire_event_kind kind, quire_event *out);
quire_err choice_start(choice *c, event_memory *m, quire_event *out);
/* Fills a DELTA with m->text and m->found, with the last token or without. */
quire_err choice_delta(choice *c, bool with_token, event_memory *m, quire_event *out);
/* Fills a ROLLBACK, after which the whole text is m->text. */
void choice_rollback(const choice *c, const event_memory *m, quire_event *out);
/* Appends withheld text to m->text and m->found. Only when the response has ended. */
quire_err choice_flush(choice *c, event_memory *m);
/* Fills an EMBEDDING. */
void choice_row(const choice *c, quire_event *out);
void choice_end(const choice *c, quire_event *out);

#endif
