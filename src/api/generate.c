/* Requests from texts and messages, and a blocking call that returns the whole answer. */
#include "api/quire_engine.h"
#include "json/json_out.h"

/* Parses a body that was written, and frees it. */
static quire_err parse_written(const quire_engine *e, quire_endpoint endpoint, json_out *o,
                               quire_request **out, quire_error *err) {
    quire_err r = o->err == QUIRE_OK ? quire_request_parse(e, endpoint, o->to->p, o->to->n, out, err)
                                     : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a request");
    strbuf_deinit(o->to);
    return r;
}

quire_err quire_request_text(const quire_engine *e, const char *text, size_t n, quire_request **out,
                             quire_error *err) {
    strbuf body = {0};
    json_out o = {.to = &body};
    *out = NULL;
    json_begin(&o, '{');
    json_text(json_name(&o, "prompt"), text, n);
    json_end(&o, '}');
    return parse_written(e, QUIRE_COMPLETIONS, &o, out, err);
}

quire_err quire_request_chat(const quire_engine *e, const quire_message *messages, size_t n,
                             quire_request **out, quire_error *err) {
    strbuf body = {0};
    json_out o = {.to = &body};
    *out = NULL;
    json_begin(&o, '{');
    json_begin(json_name(&o, "messages"), '[');
    for (size_t i = 0; i < n; i++) {
        json_begin(json_item(&o), '{');
        json_cstr(json_name(&o, "role"), messages[i].role);
        json_text(json_name(&o, "content"), messages[i].content, messages[i].n_content);
        json_end(&o, '}');
    }
    json_end(&o, ']');
    json_end(&o, '}');
    return parse_written(e, QUIRE_CHAT, &o, out, err);
}

/* Adds what an event brings of the first choice's answer. */
static quire_err add_answer(const quire_event *ev, bool has_parts, strbuf *answer) {
    if (!has_parts) {
        return strbuf_add(answer, ev->text, ev->n_text);
    }
    for (int32_t i = 0; i < ev->n_parts; i++) {
        if (ev->parts[i].kind == QUIRE_PART_CONTENT) {
            TRY(strbuf_add(answer, ev->parts[i].text, ev->parts[i].n_text));
        }
    }
    return QUIRE_OK;
}

/* Reads the events of the one stream on q to its end. */
static quire_err collect_answer(quire_queue *q, quire_stream *s, strbuf *answer, quire_error *err) {
    quire_event ev;
    quire_err e = QUIRE_OK;
    bool has_parts = quire_stream_describe(s)->has_parts;
    do {
        while (!quire_queue_next(q, &ev)) {
            quire_queue_wait(q, -1);
        }
        bool is_text = (ev.kind == QUIRE_EVENT_DELTA || ev.kind == QUIRE_EVENT_END) && ev.choice == 0;
        if (is_text && e == QUIRE_OK && add_answer(&ev, has_parts, answer) != QUIRE_OK) {
            e = err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for the answer");
        }
    } while (ev.kind != QUIRE_EVENT_DONE);
    if (e == QUIRE_OK && ev.error != NULL) {
        *err = *ev.error;
        e = err->code;
    }
    quire_stream_release(s);
    return e;
}

quire_err quire_generate(quire_engine *e, quire_request *r, char **text, size_t *n, quire_error *err) {
    quire_queue *q;
    quire_stream *s;
    quire_error unread = {0};
    strbuf answer = {0};
    *text = NULL;
    *n = 0;
    err = err != NULL ? err : &unread;
    quire_err got = quire_queue_open(e, &q);
    if (got != QUIRE_OK) {
        quire_request_free(r);
        return err_set(err, got, -1, "a queue could not be opened: %s", quire_err_text(got));
    }
    got = quire_submit(q, r, NULL, &s, err);
    got = got == QUIRE_OK ? collect_answer(q, s, &answer, err) : got;
    quire_queue_close(q);
    if (got == QUIRE_OK && strbuf_reserve(&answer, 1) != QUIRE_OK) {
        got = err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for the answer");
    }
    if (got != QUIRE_OK) {
        strbuf_deinit(&answer);
        return got;
    }
    answer.p[answer.n] = 0;
    *text = answer.p;
    *n = answer.n;
    return QUIRE_OK;
}
