/* The settings of a generation in llama.cpp's form, which its responses repeat. */
#include "request/request_read.h"
#include "json/json_out.h"

static void settings_write_numbers(const sampling_params *p, json_out *o) {
    const struct {
        const char *name;
        float value;
    } numbers[] = {{"temperature", p->temperature},
                   {"dynatemp_range", p->dynatemp_range},
                   {"dynatemp_exponent", p->dynatemp_exponent},
                   {"top_p", p->top_p},
                   {"min_p", p->min_p},
                   {"top_n_sigma", p->top_n_sigma},
                   {"xtc_probability", p->xtc_probability},
                   {"xtc_threshold", p->xtc_threshold},
                   {"typical_p", p->typical_p},
                   {"repeat_penalty", p->repetition_penalty},
                   {"presence_penalty", p->presence_penalty},
                   {"frequency_penalty", p->frequency_penalty},
                   {"dry_multiplier", p->dry_multiplier},
                   {"dry_base", p->dry_base},
                   {"mirostat_tau", p->mirostat_tau},
                   {"mirostat_eta", p->mirostat_eta}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        json_number(json_name(o, numbers[i].name), (double)numbers[i].value);
    }
}

static void settings_write_counts(const quire_request *r, json_out *o) {
    const sampling_params *p = &r->g.sampling;
    const json_named_int counts[] = {{"seed", p->has_seed ? (int64_t)p->seed : (int64_t)UINT32_MAX},
                                     {"top_k", p->top_k > 0 ? p->top_k : 0},
                                     {"repeat_last_n", p->penalty_last_n},
                                     {"dry_allowed_length", p->dry_allowed_length},
                                     {"dry_penalty_last_n", p->dry_penalty_last_n},
                                     {"mirostat", p->mirostat},
                                     {"max_tokens", p->max_tokens},
                                     {"n_predict", p->max_tokens},
                                     {"n_keep", 0},
                                     {"n_probs", r->n_logprobs > 0 ? r->n_logprobs : 0},
                                     {"min_keep", 0}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        json_int(json_name(o, counts[i].name), counts[i].value);
    }
}

static void settings_write_texts(const quire_request *r, json_out *o) {
    bool is_grammar = r->rule.field != NULL && json_is(r->rule.value, JSON_KIND_TEXT);
    str grammar = is_grammar ? json_str(r->rule.value) : str_of("");
    json_begin(json_name(o, "stop"), '[');
    for (int32_t i = 0; i < r->n_given_stops; i++) {
        json_text(json_item(o), r->g.stops[i].p, r->g.stops[i].n);
    }
    json_end(o, ']');
    json_text(json_name(o, "grammar"), grammar.p, grammar.n);
}

static void settings_write_biases(const sampling_lists *lists, json_out *o) {
    json_begin(json_name(o, "logit_bias"), '[');
    for (int32_t i = 0; lists != NULL && i < lists->n_bias; i++) {
        json_begin(json_item(o), '{');
        json_number(json_name(o, "bias"), (double)lists->bias[i]);
        json_int(json_name(o, "token"), lists->bias_ids[i]);
        json_end(o, '}');
    }
    json_end(o, ']');
}

void request_write_settings(const quire_request *r, json_out *o) {
    json_begin(o, '{');
    settings_write_counts(r, o);
    settings_write_numbers(&r->g.sampling, o);
    json_bool(json_name(o, "ignore_eos"), r->g.sampling.ignore_eos);
    json_bool(json_name(o, "stream"), r->g.info.stream);
    json_bool(json_name(o, "timings_per_token"), r->g.more.timings_per_token);
    json_bool(json_name(o, "post_sampling_probs"), false);
    settings_write_texts(r, o);
    settings_write_biases(r->g.sampling.lists, o);
    request_write_breakers(r, json_name(o, "dry_sequence_breakers"));
    request_write_samplers(r, o);
    json_begin(json_name(o, "lora"), '[');
    for (int32_t i = 0; i < r->g.n_loras; i++) {
        json_begin(json_item(o), '{');
        json_int(json_name(o, "id"), r->g.loras[i].number);
        json_number(json_name(o, "scale"), (double)r->g.loras[i].scale);
        json_end(o, '}');
    }
    json_end(o, ']');
    json_end(o, '}');
}
