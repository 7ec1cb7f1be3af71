#include "stream/choice.h"

#include <assert.h>
#include <string.h>

#include "answer/answer_bind.h"
#include "answer/grammar_constraint.h"
#include "answer/thinking_budget.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "sample/constraint.h"
#include "text/detok.h"
#include "text/token_texts.h"

struct beam_stop_matcher {
    const generation *asked;
    const tokenizer *tokenizer;
    const token_texts *texts;
    size_t cap;
    char tail[]; /* [cap] the end of a text */
};

/* The engine's table of token texts; made at first use. */
static quire_err texts_of(stream_engine *e, const token_texts **out) {
    token_texts *have = atomic_load(&e->texts), *made;
    if (have == NULL) {
        TRY(token_texts_open(e->tokenizer, &made));
        if (atomic_compare_exchange_strong(&e->texts, &have, made)) {
            have = made;
        } else {
            token_texts_close(made);
        }
    }
    *out = have;
    return QUIRE_OK;
}

quire_err beam_stop_matcher_open(stream_engine *e, const generation *g, beam_stop_matcher **out) {
    const token_texts *texts;
    TRY(texts_of(e, &texts));
    size_t longest_stop = 0;
    for (int32_t i = 0; i < g->n_stops; i++) {
        longest_stop = g->stops[i].n > longest_stop ? g->stops[i].n : longest_stop;
    }
    size_t cap = longest_stop + token_texts_longest(texts);
    *out = mem_new(1, sizeof **out + cap);
    TRY(mem_check(*out));
    **out = (beam_stop_matcher){.asked = g, .tokenizer = e->tokenizer, .texts = texts, .cap = cap};
    return QUIRE_OK;
}

void beam_stop_matcher_close(beam_stop_matcher *w) {
    mem_free(w);
}

static str text_of(const beam_stop_matcher *w, int32_t token) {
    bool hidden = w->asked->skip_special && tokenizer_is_special(w->tokenizer, token);
    return hidden ? (str){"", 0} : token_texts_of(w->texts, token);
}

/* Writes the last bytes of the tokens' text to the end of the buffer. Returns how
 * many. */
static size_t write_tail(beam_stop_matcher *w, const int32_t *tokens, int32_t from, int32_t n) {
    size_t length = 0;
    for (int32_t i = n - 1; i >= from && length < w->cap; i--) {
        str text = text_of(w, tokens[i]);
        size_t part = text.n < w->cap - length ? text.n : w->cap - length;
        length += part;
        memcpy(w->tail + w->cap - length, text.p + text.n - part, part);
    }
    return length;
}

/* Whether the stop string ends within the last n_last bytes of the tail. */
static bool ends_in(const beam_stop_matcher *w, str stop, size_t length, size_t n_last) {
    const char *end = w->tail + w->cap;
    for (size_t from_end = 0; from_end < n_last && from_end + stop.n <= length; from_end++) {
        if (memcmp(end - from_end - stop.n, stop.p, stop.n) == 0) {
            return true;
        }
    }
    return false;
}

bool beam_stop_matcher_is_over(void *watch, const int32_t *tokens, int32_t n_prompt, int32_t n) {
    beam_stop_matcher *w = watch;
    size_t n_last = text_of(w, tokens[n - 1]).n, length = n_last > 0 ? write_tail(w, tokens, n_prompt, n) : 0;
    bool is_over = false;
    for (int32_t i = 0; i < w->asked->n_stops && !is_over; i++) {
        is_over = ends_in(w, w->asked->stops[i], length, n_last);
    }
    return is_over;
}

void event_memory_deinit(event_memory *m) {
    assert(m != NULL);
    strbuf_deinit(&m->text);
    strbuf_deinit(&m->echo);
    output_events_deinit(&m->found);
    output_events_deinit(&m->plain);
    mem_free(m->parts);
    mem_free(m->logprobs);
    mem_free(m->ends);
}

void choice_init(choice *c, stream_engine *e, quire_stream *s, const quire_request *r,
                 const stream_rule *rule, int32_t index) {
    *c = (choice){.e = e,
                  .stream = s,
                  .request = r,
                  .rule = rule,
                  .index = index,
                  .stop_token = -1,
                  .stop_string = -1,
                  .last_token = -1};
    int32_t server_most = r->context.max_tool_calls, most = r->g.max_tool_calls;
    c->calls.most = most > 0 && (server_most == 0 || most < server_most) ? most : server_most;
    c->calls.is_distinct = r->tool_choice == OUTPUT_CHOICE_REQUIRED;
}

void choice_deinit(choice *c) {
    assert(c != NULL);
    token_list_deinit(&c->prompt);
    token_list_deinit(&c->types);
    strbuf_deinit(&c->shown);
    choice_text_close(&c->text);
    call_limit_deinit(&c->calls);
    mem_free(c->explain);
    mem_free(c->row);
    token_list_deinit(&c->history);
    mem_free(c->sums);
    quire_request_free(c->changed);
}

/* ---- text ---- */

void choice_text_close(choice_text *t) {
    detok_close(t->detok);
    stop_matcher_close(t->stops);
    output_parser_close(t->parser);
    *t = (choice_text){0};
}

/* Appends what can be shown of a piece of text to *out, and its parts to *found. */
static quire_err show(const choice *c, choice_text *t, str piece, bool may_end, strbuf *out,
                      output_events *found, int32_t *match) {
    size_t shown = out->n;
    if (t->stops == NULL) {
        TRY(strbuf_add(out, piece.p, piece.n));
    } else if (may_end) {
        TRY(stop_matcher_feed(t->stops, piece, c->request->g.include_stop, out, match));
    } else {
        TRY(stop_matcher_pass(t->stops, piece, out));
    }
    str text = {out->p + shown, out->n - shown};
    return t->parser != NULL && text.n > 0 ? output_parser_feed(t->parser, text, false, found) : QUIRE_OK;
}

/* Shows a token that is a mark. If the detokenizer writes its text, that is the end of
 * `piece`. */
static quire_err show_mark(const choice *c, choice_text *t, int32_t token, str piece, bool may_end,
                           strbuf *out, output_events *found, int32_t *match) {
    str mark = tokenizer_piece(c->e->tokenizer, token), before = piece;
    bool is_shown =
        piece.n >= mark.n && mark.n > 0 && memcmp(piece.p + piece.n - mark.n, mark.p, mark.n) == 0;
    before.n -= is_shown ? mark.n : 0;
    TRY(show(c, t, before, may_end, out, found, match));
    if (*match >= 0) {
        return QUIRE_OK;
    }
    if (t->stops != NULL) {
        size_t shown = out->n;
        TRY(stop_matcher_restart(t->stops, out));
        TRY(output_parser_feed(t->parser, (str){out->p + shown, out->n - shown}, false, found));
    }
    if (is_shown) {
        TRY(strbuf_add(out, mark.p, mark.n));
    }
    return output_parser_feed(t->parser, mark, true, found);
}

static void count_decoded(choice_text *t, size_t n) {
    t->n_last = n + t->n_before;
    t->n_decoded += t->n_last;
    t->n_before = 0;
}

quire_err choice_feed(const choice *c, const sampling_params *p, choice_text *t, int32_t token, bool may_end,
                      strbuf *out, output_events *found, int32_t *match) {
    assert(c != NULL && t != NULL);
    *match = -1;
    t->n_last = 0;
    end_kind end = end_token_kind(p, c->e->model, token);
    /* the text of an end token is not shown */
    if (t->detok == NULL || (end != END_NONE && !c->request->g.include_stop)) {
        return QUIRE_OK;
    }
    if (t->stops == NULL && t->parser == NULL) {
        size_t before = out->n;
        quire_err added = detok_add(t->detok, token, out);
        count_decoded(t, out->n - before);
        return added;
    }
    strbuf piece = {0};
    const tokenizer *tokens = c->e->tokenizer;
    bool is_mark = t->parser != NULL && marked_vocab_is_mark(tokens, token) &&
                   answer_has_mark(c->request, tokenizer_piece(tokens, token));
    bool is_hidden =
        t->parser != NULL && !is_mark && c->request->g.skip_special && tokenizer_is_special(tokens, token);
    quire_err e = detok_add(t->detok, token, &piece);
    str text = {piece.p, piece.n};
    count_decoded(t, piece.n);
    if (e == QUIRE_OK) {
        e = is_mark ? show_mark(c, t, token, text, may_end, out, found, match)
                    : show(c, t, text, may_end, out, found, match);
    }
    strbuf_deinit(&piece);
    return e == QUIRE_OK && is_hidden ? output_parser_break(t->parser, found) : e;
}

int32_t choice_first_prompt(const choice *c) {
    const stream_fork *from = c->request->fork_from;
    return from != NULL ? from->n_prompt : (int32_t)c->prompt.n;
}

quire_err choice_open_text(const choice *c, choice_text *out) {
    assert(c != NULL);
    const quire_request *r = c->request;
    size_t n_prompt = (size_t)choice_first_prompt(c);
    strbuf shown = {0};
    output_events found = {0};
    quire_err e = QUIRE_OK;
    if (c->e->tokenizer) {
        TRY(detok_open(c->e->tokenizer, r->g.skip_special, &out->detok));
        detok_hold_replacements(out->detok);
        e = detok_prime(out->detok, c->prompt.ids, n_prompt);
    }
    if (e == QUIRE_OK && r->g.n_stops > 0) {
        e = stop_matcher_open(r->g.stops, (size_t)r->g.n_stops, &out->stops);
    }
    if (e == QUIRE_OK && r->g.info.has_parts) {
        e = answer_open_parser(r, c->start, &out->parser);
    }
    for (size_t i = n_prompt; i < c->prompt.n && e == QUIRE_OK; i++) {
        int32_t match;
        output_events_clear(&found);
        e = choice_feed(c, &r->g.sampling, out, c->prompt.ids[i], false, &shown, &found, &match);
    }
    out->n_before = out->n_decoded - shown.n;
    out->n_decoded = 0;
    output_events_deinit(&found);
    strbuf_deinit(&shown);
    return e;
}

/* ---- the engine's events ---- */

/* Appends the token to the history. */
static quire_err remember(choice *c, int32_t token) {
    TRY(token_list_add(&c->history, token));
    if (c->request->g.info.logprobs >= 0) {
        TRY(mem_grow(&c->sums, &c->cap_sums, c->history.n, sizeof *c->sums));
        c->sums[c->history.n - 1] = c->sum_logprob;
    }
    return QUIRE_OK;
}

/* Ends the response with the present token; later tokens are ignored. */
static void end_here(choice *c) {
    c->finish = QUIRE_FINISH_STOP;
    c->over_us = clock_us();
    engine_cancel(c->e->core, c->current);
}

quire_err choice_take_token(choice *c, const engine_event *event, event_memory *m) {
    assert(c != NULL);
    int64_t began_us = c->request->g.info.explain ? clock_us() : 0;
    strbuf_clear(&m->text);
    output_events_clear(&m->found);
    if (c->prompt_only) {
        return QUIRE_OK;
    }
    c->last_token = event->token;
    c->n_completion++;
    c->predicted = event->predicted;
    c->sum_logprob += c->logprobs ? (double)c->logprobs[0].logprob : 0.0;
    int32_t match = -1;
    quire_err e = remember(c, event->token);
    if (e == QUIRE_OK && c->text.detok) {
        bool may_end = c->n_completion > c->sampling.min_tokens;
        e = choice_feed(c, &c->sampling, &c->text, event->token, may_end, &m->text, &m->found, &match);
    }
    if (e == QUIRE_OK && m->found.n > 0) {
        e = call_limit_pass(&c->calls, &m->found);
    }
    if (c->calls.is_over && c->finish == QUIRE_FINISH_NONE) {
        output_parser_close(c->text.parser); /* later text is not part of the response */
        c->text.parser = NULL;
        end_here(c);
    }
    if (match >= 0) {
        c->stop_string = match;
        end_here(c);
    }
    c->detokenise_us += c->request->g.info.explain ? clock_us() - began_us : 0;
    return e;
}

/* Takes over the engine's report. */
static void choice_take_report(choice *c, explain *x) {
    c->explain = x;
    if (x != NULL) {
        c->explain_more =
            (quire_explain_more){.size = sizeof c->explain_more,
                                 .n_ahead = x->n_ahead,
                                 .schedule = (quire_schedule)((int)x->order + (int)QUIRE_SCHEDULE_FCFS),
                                 .n_reused = (int32_t)c->turns.n_reused,
                                 .n_gone = (int32_t)c->turns.n_gone,
                                 .adapter_wait_us = x->adapter_wait_us,
                                 .n_adapter_waits = x->n_adapter_waits,
                                 .adapter = c->want->ref != NULL ? c->want->ref->name : NULL,
                                 .adapter_load_us = c->want->load_us,
                                 .n_differ = (int32_t)c->turns.n_differ,
                                 .n_prefix = x->n_prefix,
                                 .first_token_step = x->first_token_step,
                                 .last_token_step = x->last_token_step};
    }
}

void choice_take_end(choice *c, const engine_event *event) {
    _Static_assert((int)FINISH_STOP == (int)QUIRE_FINISH_STOP && (int)FINISH_ERROR == (int)QUIRE_FINISH_ERROR,
                   "in the same order");
    c->gone = true;
    c->n_prefilled = event->n_prefilled;
    c->n_preempted = event->n_preempted;
    choice_take_report(c, event->explain);
    c->row = event->row;
    c->n_row = event->n_row;
    c->beam_score = event->beam_score;
    c->sum_logprob = c->request->g.info.beam_width > 0 ? event->beam_sum : c->sum_logprob;
    if (c->finish == QUIRE_FINISH_NONE) {
        c->predicted = event->predicted;
        c->finish = c->prompt_only && event->finish == FINISH_STOP ? QUIRE_FINISH_LENGTH
                                                                   : (quire_finish)event->finish;
        c->over_us = event->ended_us;
        c->stop_token =
            c->finish == QUIRE_FINISH_STOP && !event->stopped_by_eos ? c->last_token : c->stop_token;
    }
}

bool choice_end_waits(const choice *c) {
    bool engine_has_more = c->request->g.info.explain || c->request->g.info.beam_width > 0;
    return c->command != NULL || (engine_has_more && !c->gone);
}

void choice_truncate(choice *c, size_t n_kept, choice_text text) {
    assert(c != NULL);
    choice_text_close(&c->text);
    c->text = text;
    c->history.n = n_kept;
    c->n_completion = (int32_t)n_kept;
    c->sum_logprob = c->sums != NULL && n_kept > 0 ? c->sums[n_kept - 1] : 0.0;
    c->last_token = n_kept > 0 ? c->history.ids[n_kept - 1] : -1;
    c->finish = QUIRE_FINISH_NONE; /* takes back a finish whose END was not delivered */
    c->stop_string = c->stop_token = -1;
    c->gone = false;
    mem_free(c->explain);
    c->explain = NULL;
    c->explain_more = (quire_explain_more){0};
    c->logprobs = c->prompt_logprobs = NULL; /* they belong to an engine event that is gone */
}

/* ---- events for users ---- */

void choice_event(const choice *c, quire_event_kind kind, quire_event *out) {
    *out = (quire_event){.stream = c->stream,
                         .kind = kind,
                         .choice = c->index,
                         .stop_token = -1,
                         .prompt_tokens = (int32_t)c->prompt.n,
                         .completion_tokens = c->n_completion,
                         .cached_tokens = c->n_cached,
                         .queue_us = c->queue_us};
}

static void set_text(const strbuf *text, quire_event *out) {
    out->text = text->p;
    out->n_text = text->n;
}

/* Copies n of the engine's log-probabilities into an event, preceded by n_none of rank
 * 0. */
static quire_err fill_logprobs(event_memory *m, const token_logprob *from, size_t n_none, size_t n,
                               int32_t width, quire_event *out) {
    if (from == NULL || n_none + n == 0) {
        return QUIRE_OK;
    }
    TRY(mem_grow(&m->logprobs, &m->cap_logprobs, n_none + n, sizeof *m->logprobs));
    for (size_t i = 0; i < n_none; i++) {
        m->logprobs[i] = (quire_logprob){.rank = 0};
    }
    for (size_t i = 0; i < n; i++) {
        m->logprobs[n_none + i] =
            (quire_logprob){.token = from[i].id, .rank = from[i].rank, .logprob = from[i].logprob};
    }
    out->logprobs = m->logprobs;
    out->n_logprobs = width;
    return QUIRE_OK;
}

/* ---- offsets of prompt tokens in an echo ---- */

static bool echo_begins(str s, str with) {
    return with.n > 0 && s.n >= with.n && memcmp(s.p, with.p, with.n) == 0;
}

/* The length of the prefix of s with as many characters as `text`. */
static size_t as_long(str s, str text) {
    size_t n = 0, len;
    for (size_t i = 0; i < text.n && n < s.n; i += len) {
        (void)utf8_decode(text.p + i, text.n - i, &len);
        size_t here;
        (void)utf8_decode(s.p + n, s.n - n, &here);
        n += here;
    }
    return n;
}

/* How many bytes of `left` are the text of this ordinary token. Only one of both may
 * begin with a space, since decoders drop it from the first word of a text. */
static size_t shown_bytes(str left, str text) {
    if (text.n == 0 || echo_begins(left, text)) {
        return text.n;
    }
    str rest = {text.p + 1, text.n - 1};
    if (text.p[0] == ' ' && (rest.n == 0 || echo_begins(left, rest))) {
        return rest.n;
    }
    bool is_after = left.n > 0 && left.p[0] == ' ' && echo_begins((str){left.p + 1, left.n - 1}, text);
    return is_after ? text.n + 1 : as_long(left, text);
}

/* Fills ends[0..n) with offsets, ascending, at which the tokens end in the echo; the last
 * one is echo.n, so the tokens' texts concatenate to the echo. A token that the echo does
 * not show has an empty text: an added or hidden special token, or part of a character.
 * If the tokenizer changed the text, such as to lower case, a token covers as many
 * characters of the echo as its own text has. QUIRE_NO_MEMORY. */
static quire_err echo_ends(const tokenizer *t, const int32_t *ids, size_t n, str echo, size_t *ends) {
    detok *d;
    strbuf text = {0};
    size_t at = 0;
    TRY(detok_open(t, false, &d));
    quire_err e = QUIRE_OK;
    for (size_t i = 0; i < n && e == QUIRE_OK; i++) {
        str left = {echo.p + at, echo.n - at};
        if (tokenizer_is_special(t, ids[i])) {
            str piece = tokenizer_piece(t, ids[i]);
            at += echo_begins(left, piece) ? piece.n : 0;
        } else {
            strbuf_clear(&text);
            e = detok_add(d, ids[i], &text);
            at += shown_bytes(left, (str){text.n > 0 ? text.p : "", text.n});
        }
        ends[i] = i + 1 < n ? at : echo.n;
    }
    strbuf_deinit(&text);
    detok_close(d);
    return e;
}

/* Sets the offsets at which the prompt's tokens end in the echo. */
static quire_err fill_ends(const choice *c, event_memory *m, quire_event *out) {
    if (c->request->g.info.logprobs < 0 || c->e->tokenizer == NULL) {
        return QUIRE_OK;
    }
    TRY(mem_grow(&m->ends, &m->cap_ends, c->prompt.n, sizeof *m->ends));
    TRY(echo_ends(c->e->tokenizer, c->prompt.ids, c->prompt.n,
                  (str){m->echo.n > 0 ? m->echo.p : "", m->echo.n}, m->ends));
    out->token_ends = m->ends;
    return QUIRE_OK;
}

quire_err choice_start(choice *c, event_memory *m, quire_event *out) {
    assert(c != NULL && out != NULL);
    const quire_request *r = c->request;
    choice_event(c, QUIRE_EVENT_START, out);
    out->tokens = c->prompt.ids;
    out->n_tokens = (int32_t)c->prompt.n;
    c->started = true;
    int32_t width = generation_listed(&r->g, r->g.info.prompt_logprobs);
    size_t n_later = c->prompt.n > 0 ? c->prompt.n - 1 : 0, n_before = (size_t)r->g.prompt_logprobs_start - 1,
           n_none = n_before < n_later ? n_before : n_later, w = (size_t)width;
    quire_err e = fill_logprobs(m, c->prompt_logprobs, n_none * w, (n_later - n_none) * w, width, out);
    if (r->g.more.prompt_only || r->g.more.return_prompt_text) {
        set_text(&c[-(c->index % r->g.info.n_samples)].shown, out); /* the first sample keeps it */
        return e;
    }
    if (r->g.more.return_documents) {
        out->text = r->g.prompts[c->index].shown.p;
        out->n_text = r->g.prompts[c->index].shown.n;
        return e;
    }
    if (!r->g.info.echo) {
        return e;
    }
    /* each completion has its own echo */
    const request_prompt *prompt = &r->g.prompts[c->index / r->g.info.n_samples];
    strbuf_clear(&m->echo);
    quire_err echoed = QUIRE_OK;
    if (prompt->ids == NULL && !c->is_cut) {
        echoed = strbuf_add(&m->echo, prompt->text.p, prompt->text.n);
    } else if (c->e->tokenizer) {
        echoed = tokenizer_decode(c->e->tokenizer, c->prompt.ids, c->prompt.n, r->g.skip_special, &m->echo);
    }
    set_text(&m->echo, out);
    if (echoed == QUIRE_OK) {
        echoed = fill_ends(c, m, out);
    }
    return e != QUIRE_OK ? e : echoed;
}

/* Whether the request leaves this part out: it is reasoning, or a call after the only one
 * that is wanted. */
static bool choice_is_left_out(const generation *g, const output_event *e) {
    bool is_of_call = e->kind >= OUTPUT_CALL_BEGIN;
    bool is_further = is_of_call && e->call > 0;
    return (e->kind == OUTPUT_REASONING && !g->include_reasoning) ||
           (is_further && (!g->parallel_calls || g->info.old_calls));
}

/* Copies the parts that were found, with custom tools' arguments converted to inputs. */
static quire_err make_plain(choice *c, event_memory *m) {
    quire_err e = QUIRE_OK;
    strbuf input = {0};
    output_events_clear(&m->plain);
    for (size_t i = 0; i < m->found.n; i++) {
        const output_event *f = &m->found.items[i];
        str text = output_event_text(&m->found, i), id = {m->found.text.p + f->id, f->n_id};
        if (f->kind == OUTPUT_CALL_BEGIN) {
            c->is_custom = request_is_custom(c->request, text);
            c->input = (custom_input){0};
        } else if (f->kind == OUTPUT_ARGUMENTS && c->is_custom) {
            strbuf_clear(&input);
            TRY_DONE(e, custom_input_feed(&c->input, text, &input));
            text = (str){input.n > 0 ? input.p : "", input.n};
        }
        if (f->kind != OUTPUT_ARGUMENTS || text.n > 0) {
            TRY_DONE(e, output_events_add(&m->plain, f->kind, f->call, text, id));
        }
    }
done:
    strbuf_deinit(&input);
    return e;
}

static quire_err fill_parts(choice *c, event_memory *m, quire_event *out) {
    _Static_assert((int)OUTPUT_REASONING == (int)QUIRE_PART_REASONING &&
                       (int)OUTPUT_CALL_END == (int)QUIRE_PART_CALL_END,
                   "in the same order");
    bool is_custom = c->is_custom;
    if (c->request->has_custom) {
        TRY(make_plain(c, m));
    }
    const output_events *found = c->request->has_custom ? &m->plain : &m->found;
    if (found->n > 0) {
        TRY(mem_grow(&m->parts, &m->cap_parts, found->n, sizeof *m->parts));
    }
    for (size_t i = 0; i < found->n; i++) {
        const output_event *e = &found->items[i];
        str text = output_event_text(found, i);
        is_custom = e->kind == OUTPUT_CALL_BEGIN
                        ? c->request->has_custom && request_is_custom(c->request, text)
                        : is_custom;
        if (!choice_is_left_out(&c->request->g, e)) {
            m->parts[out->n_parts++] = (quire_part){.kind = (quire_part_kind)e->kind,
                                                    .call = e->call,
                                                    .text = text.p,
                                                    .n_text = text.n,
                                                    .is_custom = is_custom && e->kind >= OUTPUT_CALL_BEGIN,
                                                    .id = found->text.p + e->id,
                                                    .n_id = e->n_id};
        }
    }
    out->parts = out->n_parts > 0 ? m->parts : NULL;
    return QUIRE_OK;
}

quire_err choice_delta(choice *c, bool with_token, event_memory *m, quire_event *out) {
    assert(out != NULL);
    choice_event(c, QUIRE_EVENT_DELTA, out);
    set_text(&m->text, out);
    out->tokens = &c->last_token;
    out->n_tokens = with_token ? 1 : 0;
    out->n_decoded = with_token ? c->text.n_last : 0;
    if (c->request->g.info.has_parts) {
        TRY(fill_parts(c, m, out));
    }
    int32_t width = generation_listed(&c->request->g, c->request->g.info.logprobs);
    return fill_logprobs(m, with_token ? c->logprobs : NULL, 0, (size_t)width, width, out);
}

void choice_rollback(const choice *c, const event_memory *m, quire_event *out) {
    assert(c != NULL && out != NULL);
    choice_event(c, QUIRE_EVENT_ROLLBACK, out);
    set_text(&m->text, out);
    out->n_decoded = c->text.n_decoded;
    out->tokens = c->history.ids;
    out->n_tokens = (int32_t)c->history.n;
}

quire_err choice_flush(choice *c, event_memory *m) {
    assert(c != NULL);
    strbuf_clear(&m->text);
    output_events_clear(&m->found);
    if (c->text.stops != NULL && c->stop_string < 0) {
        TRY(stop_matcher_flush(c->text.stops, &m->text));
    }
    if (c->text.parser == NULL) {
        return QUIRE_OK;
    }
    quire_err e = m->text.n > 0
                      ? output_parser_feed(c->text.parser, (str){m->text.p, m->text.n}, false, &m->found)
                      : QUIRE_OK;
    if (e == QUIRE_OK) {
        e = output_parser_finish(c->text.parser, c->finish == QUIRE_FINISH_LENGTH, &m->found);
    }
    output_parser_close(c->text.parser);
    c->text.parser = NULL;
    TRY(e);
    TRY(call_limit_pass(&c->calls, &m->found));
    return call_limit_flush(&c->calls, &m->found);
}

void choice_row(const choice *c, quire_event *out) {
    assert(c != NULL && out != NULL);
    choice_event(c, QUIRE_EVENT_EMBEDDING, out);
    out->row = c->row;
    out->n_row = c->n_row;
}

void choice_end(const choice *c, quire_event *out) {
    assert(c != NULL);
    choice_event(c, QUIRE_EVENT_END, out);
    if (c->explain) {
        c->explain->report.tokenise_us = c->tokenise_us;
        c->explain->report.detokenise_us = c->detokenise_us;
        if (c->rule->constraint != NULL) {
            c->explain->report.rule = c->rule->keywords.p;
            c->explain->report.compile_us = c->rule->compile_us;
            const constraint *rule = thinking_budget_inner(c->rule->constraint);
            c->explain->report.mask_us = rule != NULL ? grammar_constraint_mask_us(rule) : 0;
        }
        out->explain = &c->explain->report;
    }
    out->finish = c->finish;
    out->sum_logprob = c->sum_logprob;
    out->beam_score = c->beam_score;
    out->stop_token = c->stop_token;
    bool is_given = c->stop_string >= 0 && c->stop_string < c->request->n_given_stops;
    out->stop_string = is_given ? c->request->g.stops[c->stop_string].p : NULL;
}
