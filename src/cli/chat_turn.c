#include "cli/chat_turn.h"

#include <assert.h>
#include <stdlib.h>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/conversation.h"
#include "cli/tty.h"

/* ---- the request ---- */

/* Builds the request for the messages of a plan. */
static quire_err build_request(const chat_state *c, const context_fit *fit, body *out, quire_error *err) {
    strbuf list = {0};
    quire_err e = body_set_all(out, &c->fields);
    TRY_DONE(e, conversation_write(&c->talk, fit->from, &list));
    TRY_DONE(e, body_set(out, "messages", (str){list.p, list.n}));
    if (fit->limit > 0) {
        e = body_set_int(out, "max_prompt_tokens", fit->limit);
    }
done:
    strbuf_deinit(&list);
    TRY(err_set(err, e, -1, "out of memory"));
    return request_complete(c->session, QUIRE_CHAT, out, err);
}

static bool chat_turn_is_too_long(const quire_error *err) {
    return err->code == QUIRE_CONTEXT_LENGTH || strcmp(err->param, "max_prompt_tokens") == 0;
}

/* The limit that the user set on an answer; 0: none. */
static int32_t max_tokens(const chat_state *c) {
    long long n = strtoll(body_get(&c->fields, "max_tokens").p, NULL, 10);
    return n > 0 && n < INT32_MAX ? (int32_t)n : 0;
}

/* ---- printing ---- */

typedef struct announcement {
    const conversation *talk;
    size_t from;
} announcement;

/* Prints how many turns are left out of the request. */
static void announce_left_out(void *user) {
    const announcement *a = user;
    size_t n = 0;
    for (size_t at = a->talk->first; at < a->from; at = conversation_next_turn(a->talk, at)) {
        n++;
    }
    if (n > 0) {
        log_line(LOG_WARN,
                 "the conversation no longer fits the context: its oldest %zu %s left out from here on", n,
                 n == 1 ? "turn is" : "turns are");
    }
}

/* Prints the speed of an answer and, unless the model ended it, why it ended. */
static void chat_turn_report(const chat_state *c, const response *a) {
    int32_t n = a->completion_tokens, limit = quire_engine_info(c->session->engine)->max_model_len;
    bool at_once = a->tokens_us < 1000; /* the tokens were read together, so only the total time is known */
    double speed = at_once ? n / (double)(a->first_us + a->tokens_us + 1) : (n - 1) / (double)a->tokens_us;
    log_line(LOG_INFO, "prompt %d tokens (%d cached), answer %d tokens, %.1f tokens/s, first after %.2f s",
             (int)a->prompt_tokens, (int)a->cached_tokens, (int)n, speed * 1e6, (double)a->first_us / 1e6);
    if (a->choices[0].finish != QUIRE_FINISH_LENGTH) {
        return;
    }
    if (a->prompt_tokens + n >= limit) {
        log_line(LOG_WARN, "the answer ends here because the context of %d tokens is full%s", (int)limit,
                 c->completes ? "" : "; /clear starts over; the next message leaves out the oldest turns");
    } else {
        log_line(LOG_INFO, "the answer was cut at max_tokens; /set max_tokens default removes the limit");
    }
}

/* ---- turns ---- */

/* Runs the request of a plan, and prints the answer. */
static quire_err run_plan(chat_state *c, const context_fit *fit, response *a, quire_error *err) {
    body b = {0};
    announcement left_out = {&c->talk, fit->from};
    response_printing how = {.cancel = tty_interrupted(), .on_start = announce_left_out, .user = &left_out};
    quire_err e = build_request(c, fit, &b, err);
    TRY_DONE(e, response_run(a, c->session, QUIRE_CHAT, &b, &how, err));
done:
    body_deinit(&b);
    return e;
}

/* Adds the answer to the conversation, unless it was stopped before it began. */
static quire_err keep_answer(chat_state *c, const context_fit *fit, const response *a, quire_error *err) {
    const response_choice *said = &a->choices[0];
    if (said->finish == QUIRE_FINISH_CANCELLED && said->text.n == 0) {
        return QUIRE_OK;
    }
    if (conversation_add(&c->talk, CONVERSATION_ASSISTANT,
                         (str){said->text.n > 0 ? said->text.p : "", said->text.n}) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    c->talk.first = fit->from;
    return QUIRE_OK;
}

/* The number of tokens of a message's text alone; 0: unknown. */
static size_t chat_turn_count_tokens(const chat_state *c, const conversation_message *m) {
    int32_t *ids = NULL;
    size_t n = 0;
    if (quire_tokenize(c->session->engine, m->text.n > 0 ? m->text.p : "", m->text.n, false, &ids, &n,
                       NULL) != QUIRE_OK) {
        return 0;
    }
    quire_free(ids);
    return n;
}

/* The first message from which on the texts alone, without the template's additions, have
 * at most fit->limit tokens. */
static size_t first_that_may_fit(const chat_state *c, const context_fit *fit) {
    size_t i = c->talk.n, n = 0;
    while (i > fit->from &&
           (n += chat_turn_count_tokens(c, &c->talk.messages[i - 1])) <= (size_t)fit->limit) {
        i--;
    }
    return i;
}

/* The next plan that may fit. Skips plans whose texts alone exceed the limit, since
 * trying each turn of a long loaded conversation takes time. */
static bool next_plan(const chat_state *c, int32_t context, context_fit *fit) {
    bool more = context_fit_next(&c->talk, context, fit);
    size_t first = more && fit->limit > 0 ? first_that_may_fit(c, fit) : 0;
    while (more && fit->limit > 0 && fit->from < first) {
        more = context_fit_next(&c->talk, context, fit);
    }
    return more;
}

/* Gets an answer to the last message, prints it and adds it. */
static quire_err answer(chat_state *c, quire_error *err) {
    int32_t context = quire_engine_info(c->session->engine)->max_model_len;
    context_fit fit = context_fit_begin(&c->talk, context, max_tokens(c));
    response a = {0};
    quire_err e = run_plan(c, &fit, &a, err);
    while (e != QUIRE_OK && chat_turn_is_too_long(err) && next_plan(c, context, &fit)) {
        response_deinit(&a);
        e = run_plan(c, &fit, &a, err);
    }
    if (e == QUIRE_OK) {
        chat_turn_report(c, &a);
        e = keep_answer(c, &fit, &a, err);
    }
    response_deinit(&a);
    return e;
}

quire_err chat_turn_take(chat_state *c, str message, quire_error *err) {
    assert(c != NULL);
    size_t before = c->talk.n;
    if (conversation_add(&c->talk, CONVERSATION_USER, message) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    quire_err e = answer(c, err);
    if (e == QUIRE_OK && c->talk.n == before + 2) {
        return QUIRE_OK;
    }
    conversation_drop_last(&c->talk);
    if (e == QUIRE_OK) {
        log_line(LOG_INFO, "stopped before an answer began; the message is forgotten");
    }
    return e;
}

quire_err chat_turn_again(chat_state *c, quire_error *err) {
    assert(c != NULL);
    size_t n = c->talk.n;
    if (n == 0 || c->talk.messages[n - 1].role != CONVERSATION_ASSISTANT) {
        return err_set(err, QUIRE_INVALID, -1, "there is no answer yet to regenerate");
    }
    conversation_message old = c->talk.messages[--c->talk.n];
    quire_err e = answer(c, err);
    if (c->talk.n == n) {
        strbuf_deinit(&old.text);
        return e;
    }
    c->talk.messages[c->talk.n++] = old; /* can't fail: its place is still allocated */
    if (e == QUIRE_OK) {
        log_line(LOG_INFO, "stopped before an answer began; the previous one is kept");
    }
    return e;
}

quire_err chat_turn_complete(chat_state *c, str text, quire_error *err) {
    body b = {0};
    response a = {0};
    response_printing how = {.cancel = tty_interrupted()};
    quire_err e = err_set(err, body_set_all(&b, &c->fields), -1, "out of memory");
    TRY_DONE(e, err_set(err, body_set_text(&b, "prompt", text), -1, "out of memory"));
    TRY_DONE(e, request_complete(c->session, QUIRE_COMPLETIONS, &b, err));
    TRY_DONE(e, response_run(&a, c->session, QUIRE_COMPLETIONS, &b, &how, err));
    chat_turn_report(c, &a);
done:
    response_deinit(&a);
    body_deinit(&b);
    return e;
}
