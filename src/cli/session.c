#include "cli/session.h"

#include <assert.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

/* Why `auto` chose this mode. */
static const char *compute_reason(quire_compute asked, const char *got) {
    if (asked != QUIRE_COMPUTE_AUTO) {
        return "as asked";
    }
    if (strcmp(got, "int8") == 0) {
        return "auto: the weights are quantised";
    }
    return strcmp(got, "bf16") == 0 ? "auto: the weights are floats of at most 16 bits"
                                    : "auto: the weights are 32-bit";
}

static void announce(const quire_options *o, const quire_info *i) {
    bool small = i->n_params < 1000000;
    log_line(LOG_INFO, "%s%s%s, %.1f%c parameters in %.1f MB; compute %s (%s), KV %s, %s", i->model_name,
             i->model_name[0] ? ": " : "", i->architecture, (double)i->n_params / (small ? 1e3 : 1e6),
             small ? 'K' : 'M', (double)i->weight_bytes / 1e6, i->compute,
             compute_reason(o->compute, i->compute), i->kv_dtype, i->backend);
    int64_t tokens = (int64_t)(i->n_pages / i->n_page_groups) * i->page_tokens;
    log_line(LOG_INFO,
             "KV pool: %d pages of %d tokens, %.1f MB: %lld tokens, %lld requests of the full %d tokens",
             (int)i->n_pages, (int)i->page_tokens, (double)i->n_pages * (double)i->page_bytes / 1e6,
             (long long)tokens, (long long)i->n_full_requests, (int)i->max_model_len);
    log_line(LOG_INFO, "KV pool: %s; a page takes memory only once it is used", i->pool_plan);
    if (o->max_model_len == 0 && i->max_model_len < i->model_max_len) {
        log_line(LOG_WARN,
                 "the model was made for %d tokens, but the KV pool holds only %d, which limits every "
                 "sequence: raise --memory-utilization (or --kv-pages), or use --kv-dtype int8",
                 (int)i->model_max_len, (int)i->max_model_len);
    }
    if (i->generation_defaults[0]) {
        log_line(LOG_INFO, "sampling defaults: %s (%s)", i->generation_defaults,
                 i->generation_config ? i->generation_config : "flags");
    }
}

quire_err session_open(const cli_options *o, session *s, quire_error *err) {
    *s = (session){0};
    if (o->quiet) {
        log_set_level(LOG_WARN);
    }
    TRY(quire_engine_open(&o->engine, &s->engine, err));
    announce(&o->engine, quire_engine_info(s->engine));
    quire_err e = quire_queue_open(s->engine, &s->queue);
    if (e != QUIRE_OK) {
        session_close(s);
        return err_set(err, e, -1, "the engine's queue could not be opened: %s", quire_err_text(e));
    }
    return QUIRE_OK;
}

void session_close(session *s) {
    quire_queue_close(s->queue);
    quire_engine_close(s->engine);
    *s = (session){0};
}

void response_deinit(response *a) {
    assert(a != NULL);
    if (a->stream) {
        quire_stream_release(a->stream);
    }
    for (size_t i = 0; i < a->n_choices; i++) {
        strbuf_deinit(&a->choices[i].text);
        strbuf_deinit(&a->choices[i].content);
        answer_parts_deinit(&a->choices[i].parts);
        mem_free(a->choices[i].tokens);
        mem_free(a->choices[i].stop_string);
    }
    mem_free(a->choices);
    *a = (response){0};
}

quire_err response_submit(response *a, session *s, quire_endpoint endpoint, const char *text, size_t n) {
    assert(s != NULL);
    quire_request *request;
    quire_err e = quire_request_parse(s->engine, endpoint, text, n, &request, &a->error);
    if (e == QUIRE_OK) {
        const quire_request_info *info = quire_request_describe(request);
        size_t n_choices = (size_t)info->n_choices;
        a->has_parts = info->has_parts;
        a->names_call = info->names_call;
        a->old_calls = info->old_calls;
        a->choices = mem_new(n_choices, sizeof *a->choices);
        if (!a->choices) {
            quire_request_free(request);
            e = err_set(&a->error, QUIRE_NO_MEMORY, -1, "out of memory");
        } else {
            a->n_choices = n_choices;
            e = quire_submit(s->queue, request, a, &a->stream, &a->error);
        }
    }
    a->done = e != QUIRE_OK;
    return e;
}

static bool session_add_tokens(response_choice *c, const int32_t *more, int32_t n) {
    if (mem_grow(&c->tokens, &c->tokens_cap, c->n_tokens + (size_t)n, sizeof *c->tokens) != QUIRE_OK) {
        return false;
    }
    memcpy(c->tokens + c->n_tokens, more, (size_t)n * sizeof *more);
    c->n_tokens += (size_t)n;
    return true;
}

static bool session_take_event(response *a, const quire_event *ev) {
    response_choice *c = &a->choices[ev->choice];
    bool good = true;
    if (ev->kind == QUIRE_EVENT_START) {
        a->has_begun = true;
    } else if (ev->kind == QUIRE_EVENT_DELTA) {
        good = strbuf_add(&c->text, ev->text, ev->n_text) == QUIRE_OK &&
               session_add_tokens(c, ev->tokens, ev->n_tokens) &&
               answer_parts_take(&c->parts, ev, &c->content) == QUIRE_OK;
    } else if (ev->kind == QUIRE_EVENT_END) {
        c->finish = ev->finish;
        c->stop_token = ev->stop_token;
        if (ev->stop_string) {
            c->stop_string = mem_dup(ev->stop_string, strlen(ev->stop_string));
            good = c->stop_string != NULL;
        }
    }
    return good;
}

void response_add(response *a, const quire_event *ev) {
    static const quire_error no_memory = {
        .code = QUIRE_NO_MEMORY, .position = -1, .message = "out of memory for the answer"};
    if (ev->kind != QUIRE_EVENT_DONE) {
        if (!session_take_event(a, ev)) {
            a->error = no_memory;
            quire_stream_cancel(a->stream);
        }
        return;
    }
    a->done = true;
    a->prompt_tokens = ev->prompt_tokens;
    a->completion_tokens = ev->completion_tokens;
    a->cached_tokens = ev->cached_tokens;
    if (ev->finish == QUIRE_FINISH_ERROR && a->error.code == QUIRE_OK) {
        a->error = *ev->error;
    }
    quire_stream_release(a->stream);
    a->stream = NULL;
}

const char *response_finish_name(quire_finish f) {
    static const char *const names[] = {NULL, "stop", "length", "cancelled", "error"};
    return (size_t)f < sizeof names / sizeof names[0] ? names[f] : NULL;
}

/* Prints an event's text of choice 0. If that fails, sets a->error and cancels the
 * stream. */
static void print_event(response *a, text_out *out, const quire_event *ev) {
    bool has_text = ev->n_text > 0 && ev->choice == 0 && ev->kind == QUIRE_EVENT_DELTA;
    if (has_text && a->error.code == QUIRE_OK &&
        text_out_add(out, (str){ev->text, ev->n_text}, &a->error) != QUIRE_OK) {
        quire_stream_cancel(a->stream);
    }
}

/* Records the time of the first token, and the time since then. start: clock_us of the
 * request. */
static void time_event(response *a, const quire_event *ev, int64_t start) {
    int64_t passed = clock_us() - start;
    if (ev->kind == QUIRE_EVENT_DELTA) {
        a->first_us = a->first_us > 0 ? a->first_us : passed > 0 ? passed : 1;
        a->tokens_us = passed - a->first_us;
    }
}

static void handle_event(response *a, text_out *out, const quire_event *ev, const response_printing *how) {
    if (ev->kind == QUIRE_EVENT_START && !a->has_begun && how->on_start) {
        how->on_start(how->user);
    }
    print_event(a, out, ev);
    response_add(a, ev);
}

/* Runs one request to its end, printing to out. On failure a->error has the reason. */
static quire_err run_printed(response *a, session *s, quire_endpoint endpoint, const body *request,
                             text_out *out, const response_printing *how) {
    strbuf text = {0};
    int64_t start = clock_us();
    quire_err e = err_set(&a->error, body_write(request, &text), -1, "out of memory");
    if (e == QUIRE_OK) {
        e = response_submit(a, s, endpoint, text.p, text.n);
    }
    strbuf_deinit(&text);
    TRY(e);
    bool cancelled = false;
    while (!a->done) {
        quire_event ev;
        if (!quire_queue_next(s->queue, &ev)) {
            quire_queue_wait(s->queue, how->cancel ? 50000 : -1);
        } else {
            time_event(a, &ev, start);
            handle_event(a, out, &ev, how);
        }
        if (how->cancel && *how->cancel && !cancelled && a->stream) {
            quire_stream_cancel(a->stream);
            cancelled = true;
        }
    }
    return a->error.code;
}

quire_err response_run(response *a, session *s, quire_endpoint endpoint, const body *request,
                       const response_printing *how, quire_error *err) {
    assert(how != NULL);
    text_out out;
    text_out_init(&out);
    quire_err e = text_out_add(&out, how->before, err);
    if (e == QUIRE_OK && run_printed(a, s, endpoint, request, &out, how) != QUIRE_OK) {
        *err = a->error;
        e = err->code;
    }
    if (e == QUIRE_OK || (how->cancel && a->has_begun)) {
        quire_err ended = text_out_end_line(&out, e == QUIRE_OK ? err : NULL);
        if (e == QUIRE_OK) {
            e = ended;
        }
    }
    text_out_deinit(&out);
    return e;
}
