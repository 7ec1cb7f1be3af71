/* The dialects of rendering: requests that would generate, checked whole, of which what
 * would be generated from is wanted: ids and sampling parameters, for routers that send
 * them elsewhere. */
#include <stdio.h>
#include <stdlib.h>

#include "request/request_read.h"
#include "json/json_out.h"

/* Writes a float with the fewest digits that are read as it again. */
static void write_float(json_out *o, const char *name, float v) {
    char text[40];
    int digits = 6;
    do {
        (void)snprintf(text, sizeof text, "%.*g", digits, (double)v);
    } while (strtof(text, NULL) != v && digits++ < 9);
    json_raw(json_name(o, name), text);
}

static void write_ints_that_differ(const quire_request *r, json_out *o) {
    const sampling_params *s = &r->g.sampling;
    const struct {
        const char *name;
        int32_t value, otherwise;
    } rows[] = {{"n", r->n, 1},
                {"top_k", s->top_k > 0 ? s->top_k : 0, 0},
                {"min_tokens", s->min_tokens, 0},
                {"max_tokens", s->max_tokens, -1},
                {"logprobs", r->g.info.logprobs, -1},
                {"prompt_logprobs", r->g.info.prompt_logprobs, -1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].value != rows[i].otherwise) {
            json_int(json_name(o, rows[i].name), rows[i].value);
        }
    }
    if (s->has_seed) {
        json_int(json_name(o, "seed"), (int64_t)s->seed);
    }
}

static void write_stops(const quire_request *r, json_out *o) {
    const sampling_params *s = &r->g.sampling;
    const chat_form *form = dialect_of(&r->g)->is_chat ? r->context.form : NULL;
    json_begin(json_name(o, "stop"), '[');
    for (int32_t i = 0; i < r->n_given_stops; i++) {
        json_text(json_item(o), r->g.stops[i].p, r->g.stops[i].n);
    }
    json_end(o, ']');
    json_begin(json_name(o, "stop_token_ids"), '[');
    for (int32_t i = 0; i < s->n_stop_tokens; i++) {
        if (form == NULL || s->stop_tokens[i] != form->end_token) {
            json_int(json_item(o), s->stop_tokens[i]);
        }
    }
    json_end(o, ']');
    json_begin(json_name(o, "bad_words"), '[');
    for (size_t i = 0; r->bad_words != NULL && i < json_length(r->bad_words); i++) {
        json_add(json_item(o), json_at(r->bad_words, i));
    }
    json_end(o, ']');
}

/* Writes vLLM's SamplingParams: members that differ from its defaults, and those that
 * it always has. */
static void write_sampling(const quire_request *r, json_out *o) {
    const sampling_params *s = &r->g.sampling;
    json_begin(json_name(o, "sampling_params"), '{');
    write_float(o, "presence_penalty", s->presence_penalty);
    write_float(o, "frequency_penalty", s->frequency_penalty);
    write_float(o, "repetition_penalty", s->repetition_penalty);
    write_float(o, "temperature", s->temperature);
    if (s->top_p < 1.0f) {
        write_float(o, "top_p", s->top_p);
    }
    if (s->min_p > 0.0f) {
        write_float(o, "min_p", s->min_p);
    }
    write_ints_that_differ(r, o);
    write_stops(r, o);
    if (s->ignore_eos) {
        json_bool(json_name(o, "ignore_eos"), true);
    }
    if (r->g.include_stop) {
        json_bool(json_name(o, "include_stop_str_in_output"), true);
    }
    if (!r->g.skip_special) {
        json_bool(json_name(o, "skip_special_tokens"), false);
    }
    json_int(json_name(o, "output_kind"), r->g.info.stream ? 1 : 2); /* deltas; the whole at its end */
    json_bool(json_name(o, "skip_clone"), true);
    json_bool(json_name(o, "skip_reading_prefix_cache"), false);
    json_end(o, '}');
}

/* Writes the members of the rendered request that follow its ids. */
static quire_err write_members(const quire_request *r, strbuf *out) {
    json_out o = {.to = out};
    json_begin(&o, '{');
    write_sampling(r, &o);
    json_bool(json_name(&o, "stream"), r->g.info.stream);
    json_name(&o, "stream_options");
    if (r->has_stream_options) {
        json_begin(&o, '{');
        json_bool(json_name(&o, "include_usage"), r->g.info.include_usage);
        json_bool(json_name(&o, "continuous_usage_stats"), r->g.info.continuous_usage);
        json_end(&o, '}');
    } else {
        json_raw(&o, "null");
    }
    json_name(&o, "cache_salt");
    if (r->g.cache_salt.n > 0) {
        json_text(&o, r->g.cache_salt.p, r->g.cache_salt.n);
    } else {
        json_raw(&o, "null");
    }
    json_int(json_name(&o, "priority"), r->g.priority);
    json_end(&o, '}');
    return o.err;
}

quire_err request_check_render(quire_request *r, quire_error *err) {
    TRY(request_check_generation(r, err));
    strbuf_clear(&r->rendered);
    TRY(err_set(err, write_members(r, &r->rendered), -1, "out of memory for a request"));
    /* the members without their braces */
    r->rendered.p[r->rendered.n - 1] = '\0';
    r->g.more.render = r->rendered.p + 1;
    request_end_with_prompts(r, true);
    return QUIRE_OK;
}
