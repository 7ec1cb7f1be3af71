#include "lab/bench/client.h"

#include <math.h>
#include <stdio.h>

#include "api/quire_engine.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "setup/engine_config.h"

/* A speed needs at least this many looks that found tokens, of at most this many steps
 * each; most tries. */
enum { LEAST_LOOKS = 4, MOST_TOGETHER = 8, MOST_TRIES = 3 };

quire_err client_open(const quire_options *o, engine_ablations off, const client *host, client *out,
                      quire_error *err) {
    *out = (client){.failure = {.message = ""}};
    TRY(engine_open_ablated(o, &off, host != NULL ? host->engine : NULL, &out->engine, err));
    out->info = quire_engine_info(out->engine);
    quire_err e = quire_queue_open(out->engine, &out->queue);
    if (e != QUIRE_OK) {
        quire_engine_close(out->engine);
        return err_set(err, e, -1, "the engine's queue could not be opened: %s", quire_err_text(e));
    }
    return QUIRE_OK;
}

void client_close(client *c) {
    quire_queue_close(c->queue);
    quire_engine_close(c->engine);
}

quire_err client_send_fields(client *c, const int32_t *ids, int32_t n, int32_t n_output,
                             const client_field *fields, sent *s, quire_error *err) {
    quire_request *request;
    char number[16];
    (void)snprintf(number, sizeof number, "%d", (int)n_output);
    s->n_output = n_output;
    s->n_seen = s->n_first = s->n_looks = 0;
    s->done = false;
    TRY(quire_request_ids(c->engine, ids, (size_t)n, &request, err));
    quire_err e = quire_request_set(request, "max_tokens", number, err);
    for (; e == QUIRE_OK && fields->name != NULL; fields++) {
        e = quire_request_set(request, fields->name, fields->value, err);
    }
    if (e != QUIRE_OK) {
        quire_request_free(request);
        return e;
    }
    return quire_submit(c->queue, request, s, &s->stream, err);
}

quire_err client_send(client *c, const int32_t *ids, int32_t n, int32_t n_output, sent *s, quire_error *err) {
    static const client_field greedy[] = {{"ignore_eos", "true"}, {"temperature", "0"}, {NULL, NULL}};
    return client_send_fields(c, ids, n, n_output, greedy, s, err);
}

quire_err client_send_random(client *c, uint64_t *draw, int32_t n, int32_t n_output, sent *s,
                             quire_error *err) {
    int32_t *ids = mem_new((size_t)n, sizeof *ids);
    TRY(mem_check_for(ids, "a prompt", err));
    for (int32_t i = 0; i < n; i++) {
        ids[i] = (int32_t)(rng_next(draw) % (uint64_t)c->info->n_vocab);
    }
    quire_err e = client_send(c, ids, n, n_output, s, err);
    mem_free(ids);
    return e;
}

static void note_tokens(sent *s, const quire_event *ev, int64_t now_us, int32_t look) {
    s->n_looks += ev->n_tokens > 0 && s->n_first > 0 && look != s->look;
    s->look = look;
    s->n_first = s->n_first == 0 ? ev->n_tokens : s->n_first;
    for (int32_t i = 0; i < ev->n_tokens && s->n_seen < s->n_output; i++) {
        s->first_us = s->n_seen == 0 ? now_us : s->first_us;
        s->last_us = now_us;
        if (s->ids != NULL) {
            s->ids[s->n_seen] = ev->tokens[i];
        }
        if (s->times_us != NULL) {
            s->times_us[s->n_seen] = now_us;
        }
        if (s->looks != NULL) {
            s->looks[s->n_seen] = look;
        }
        s->n_seen++;
        s->n_cached = ev->cached_tokens;
    }
}

int32_t client_receive(client *c, int64_t wait_us) {
    quire_event ev;
    int32_t n_done = 0;
    bool any = quire_queue_next(c->queue, &ev);
    if (!any && wait_us != 0) {
        quire_queue_wait(c->queue, wait_us);
        any = quire_queue_next(c->queue, &ev);
    }
    c->n_looks += any;
    for (; any; any = quire_queue_next(c->queue, &ev)) {
        sent *s = ev.user;
        if (ev.kind == QUIRE_EVENT_DELTA || ev.kind == QUIRE_EVENT_END) {
            note_tokens(s, &ev, clock_us(), c->n_looks);
        } else if (ev.kind == QUIRE_EVENT_DONE) {
            if (ev.finish == QUIRE_FINISH_ERROR) {
                c->failure = c->n_failed++ == 0 && ev.error != NULL ? *ev.error : c->failure;
            }
            quire_stream_release(s->stream);
            s->done = true;
            n_done++;
        }
    }
    return n_done;
}

quire_err client_await(client *c, int32_t n, quire_error *err) {
    while (n > 0) {
        n -= client_receive(c, -1);
    }
    return c->n_failed == 0 ? QUIRE_OK
                            : err_set(err, c->failure.code != QUIRE_OK ? c->failure.code : QUIRE_INTERNAL, -1,
                                      "%s", c->failure.message);
}

int64_t client_steps(const client *c) {
    quire_stats stats;
    quire_engine_stats(c->engine, &stats);
    return stats.steps;
}

/* Counts the tokens of s that came after `start` and up to `end`; *n_looks: the looks
 * that found them. */
static int64_t count_tokens(const sent *s, int64_t start, int64_t end, int64_t *n_looks) {
    int64_t n = 0;
    *n_looks = 0;
    for (int32_t j = 1; j < s->n_output; j++) { /* token 0 came by `start` */
        if (s->times_us[j] > start && s->times_us[j] <= end) {
            *n_looks += s->looks[j] != s->looks[j - 1];
            n++;
        }
    }
    return n;
}

/* Whether n_looks looks are enough for tokens of n_steps steps to determine a speed. */
static bool are_apart(int64_t n_steps, int64_t n_looks) {
    return n_looks >= (n_steps < LEAST_LOOKS ? n_steps : LEAST_LOOKS) && n_looks * MOST_TOGETHER >= n_steps;
}

double client_decode_speed(const sent *requests, int32_t n, int32_t from, int64_t n_steps) {
    /* last: the last request to begin; first: the first to end */
    const sent *last = &requests[0], *first = &requests[0];
    for (int32_t i = 0; i < n; i++) {
        const sent *s = &requests[i];
        if (s->n_seen < s->n_output || from + 1 >= s->n_output) {
            return 0;
        }
        last = s->times_us[from] > last->times_us[from] ? s : last;
        first = s->times_us[s->n_output - 1] < first->times_us[first->n_output - 1] ? s : first;
    }
    int64_t start = last->times_us[from], end = first->times_us[first->n_output - 1], n_all = 0;
    if (end < start && first->looks[first->n_output - 1] < last->looks[from]) {
        return 0;
    }
    for (int32_t i = 0; i < n; i++) {
        int64_t n_looks, n_tokens = count_tokens(&requests[i], start, end, &n_looks);
        /* the first step is before `start` */
        if (!are_apart(n_tokens < n_steps - 1 ? n_tokens : n_steps - 1, n_looks)) {
            return NAN;
        }
        n_all += n_tokens;
    }
    return end > start ? (double)n_all / ((double)(end - start) * 1e-6) : NAN;
}

quire_err client_measure(client_run *once, void *context, int32_t n_runs, figure *out, quire_error *err) {
    double speeds[FIGURES_MAX_RUNS];
    int32_t n_late = 0, n_found = 0;
    for (int32_t n = 0; n - n_late < n_runs && n < MOST_TRIES * n_runs; n++) {
        TRY(once(context, &speeds[n_found], err));
        n_late += isnan(speeds[n_found]);
        n_found += speeds[n_found] > 0;
    }
    *out = n_found > 0 ? figure_of(speeds, n_found) : (figure){NAN, NAN};
    return QUIRE_OK;
}

int64_t pool_size_sequence(const quire_options *o, const quire_engine *e, int64_t n_tokens) {
    const loaded_model *l = &e->parts.model;
    kv_most most =
        options_most_pages(o, model_description(l->m), &l->layout, quire_engine_info(e)->max_batched_tokens);
    return kv_most_pages(&most, n_tokens);
}

/* The most pages that a sequence of n_tokens holds in an engine with these options. */
static quire_err sequence_pages(const quire_options *o, const model_file *f, int64_t n_tokens, int64_t *out,
                                quire_error *err) {
    model_desc d;
    kv_layout layout;
    compute_mode compute;
    TRY(model_describe(f, &d, err));
    TRY(options_compute(o, &d, &compute, err));
    const kv_types types = options_kv_types(o, &d, compute);
    TRY(kv_layout_init(&d, types, o->page_tokens, &layout, err));
    int32_t longest = o->max_model_len > 0 ? o->max_model_len : d.max_positions;
    kv_most most = options_most_pages(o, &d, &layout, options_max_rows(o, longest));
    *out = kv_most_pages(&most, n_tokens);
    return QUIRE_OK;
}

quire_err pool_size_sequences(const quire_options *o, const char *flags, int64_t n_seqs, int64_t n_tokens,
                              int32_t *out, quire_error *err) {
    model_file *f = NULL;
    int64_t n_pages = 0;
    TRY(options_open_file(o, &f, err));
    quire_err e = sequence_pages(o, f, n_tokens, &n_pages, err);
    model_file_close(f);
    TRY(e);
    if (n_pages > INT32_MAX / n_seqs) {
        return err_set(err, QUIRE_INVALID, -1, "%s: takes %lld times %lld pages; a pool has at most %d",
                       flags, (long long)n_seqs, (long long)n_pages, INT32_MAX);
    }
    *out = (int32_t)(n_pages * n_seqs);
    return QUIRE_OK;
}
