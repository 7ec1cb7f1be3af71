/* Requests made from texts and messages; the blocking quire_generate and quire_embed. */
#include <string.h>

#include "api/quire_engine.h"
#include "base/mem.h"
#include "base/size.h"
#include "json/json_out.h"

/* Parses the body in o and frees it. */
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

/* Appends an event's text to *answer if it is of choice 0; with parts, only content. */
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

/* Reads events until the DONE of the only stream on q. */
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
    TRY_DONE(got, collect_answer(q, s, &answer, err));
    if (strbuf_reserve(&answer, 1) != QUIRE_OK) {
        got = err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for the answer");
    }
done:
    quire_queue_close(q);
    if (got != QUIRE_OK) {
        strbuf_deinit(&answer);
        return got;
    }
    answer.p[answer.n] = 0;
    *text = answer.p;
    *n = answer.n;
    return QUIRE_OK;
}

/* ---- rows of many inputs ---- */

#define INPUTS_A_REQUEST 256 /* one call must leave room for other requests */

/* Where the rows of a request go. */
typedef struct rows_out {
    float *rows; /* [n][n_row], allocated with the first row */
    size_t n, n_row;
} rows_out;

static quire_err keep_row(rows_out *o, size_t i, const quire_event *ev, quire_error *err) {
    size_t n_values, n_bytes;
    if (o->rows == NULL) {
        o->n_row = (size_t)ev->n_row;
        bool fits = size_mul(o->n, o->n_row, &n_values) && size_mul(n_values, sizeof(float), &n_bytes);
        o->rows = fits ? mem_new(n_values, sizeof(float)) : NULL;
        if (o->rows == NULL) {
            TRY(err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for %zu rows of %zu", o->n, o->n_row));
        }
    }
    memcpy(o->rows + i * o->n_row, ev->row, o->n_row * sizeof *o->rows);
    return QUIRE_OK;
}

/* Reads events until the DONE of a request whose first input is number `first`. */
static quire_err embed_inputs_collect(quire_queue *q, quire_stream *s, size_t first, rows_out *o,
                                      quire_error *err) {
    quire_event ev;
    quire_err e = QUIRE_OK;
    do {
        while (!quire_queue_next(q, &ev)) {
            quire_queue_wait(q, -1);
        }
        if (ev.kind == QUIRE_EVENT_EMBEDDING && e == QUIRE_OK) {
            e = keep_row(o, first + (size_t)ev.choice, &ev, err);
        }
    } while (ev.kind != QUIRE_EVENT_DONE);
    if (e == QUIRE_OK && ev.error != NULL) {
        *err = *ev.error;
        e = err->code;
    }
    quire_stream_release(s);
    return e;
}

static quire_err embed_inputs_run(quire_engine *e, quire_queue *q, const quire_input *inputs,
                                  const quire_embed_options *o, rows_out *out, quire_error *err) {
    for (size_t first = 0; first < out->n; first += INPUTS_A_REQUEST) {
        quire_request *r;
        quire_stream *s;
        size_t n = out->n - first < INPUTS_A_REQUEST ? out->n - first : INPUTS_A_REQUEST;
        TRY(request_embed(&e->streams.context, inputs, first, n, o, &r, err));
        TRY(quire_submit(q, r, NULL, &s, err));
        TRY(embed_inputs_collect(q, s, first, out, err));
    }
    return QUIRE_OK;
}

quire_err quire_embed(quire_engine *e, const quire_input *inputs, size_t n, const quire_embed_options *o,
                      float **rows, size_t *n_row, quire_error *err) {
    rows_out out = {.n = n};
    quire_error unread = {0};
    quire_queue *q;
    err = err != NULL ? err : &unread;
    *rows = NULL;
    *n_row = 0;
    if (n == 0) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "input", "there is no input; give at least one");
    }
    quire_err r = quire_queue_open(e, &q);
    if (r != QUIRE_OK) {
        return err_set(err, r, -1, "a queue could not be opened: %s", quire_err_text(r));
    }
    r = embed_inputs_run(e, q, inputs, o, &out, err);
    quire_queue_close(q);
    if (r != QUIRE_OK) {
        mem_free(out.rows);
        return r;
    }
    *rows = out.rows;
    *n_row = out.n_row;
    return QUIRE_OK;
}
