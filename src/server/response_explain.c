/* Writes the response to "explain": what each choice waited for, what it reused, its
 * chunks and preemptions, and where its time went. */
#include "server/response.h"

static void write_waits(const quire_explain *x, json_out *o) {
    static const char *const causes[QUIRE_N_WAITS] = {
        [QUIRE_WAIT_TURN] = "turn",     [QUIRE_WAIT_PAGES] = "pages",   [QUIRE_WAIT_SLOT] = "slot",
        [QUIRE_WAIT_BUDGET] = "budget", [QUIRE_WAIT_PREFIX] = "prefix", [QUIRE_WAIT_TIER] = "tier",
    };
    json_begin(json_name(o, "waits"), '[');
    for (int i = 0; i < QUIRE_N_WAITS; i++) {
        if (x->n_waits[i] > 0) {
            json_begin(json_item(o), '{');
            json_cstr(json_name(o, "cause"), causes[i]);
            json_int(json_name(o, "us"), x->wait_us[i]);
            json_int(json_name(o, "times"), x->n_waits[i]);
            json_end(o, '}');
        }
    }
    json_end(o, ']');
}

static void write_reuse(const quire_explain *x, json_out *o) {
    const json_named_int counts[] = {
        {"matched_tokens", x->matched},
        {"copied_page_tokens", x->copied},
        {"tier_tokens", x->tier},
        {"shared_tokens", x->shared},
        {NULL, 0},
    };
    json_named_ints(json_name(o, "reused"), counts);
}

static void write_chunks(const quire_explain *x, json_out *o) {
    json_begin(json_name(o, "chunks"), '[');
    for (int32_t i = 0; i < x->n_chunks && i < QUIRE_EXPLAIN_CHUNKS; i++) {
        const json_named_int counts[] = {
            {"step", x->chunks[i].step}, {"tokens", x->chunks[i].tokens}, {NULL, 0}};
        json_named_ints(json_item(o), counts);
    }
    json_end(o, ']');
    json_int(json_name(o, "n_chunks"), x->n_chunks);
    json_int(json_name(o, "n_decode_steps"), x->n_decodes);
}

static void write_cost(const quire_explain_preemption *p, json_out *o) {
    const json_named_int counts[] = {
        {"recomputed_tokens", p->recomputed}, {"swapped_bytes", p->swapped_bytes}, {"us", p->us}, {NULL, 0}};
    json_named_ints(o, counts);
}

static void write_preemptions(const quire_explain *x, json_out *o) {
    json_begin(json_name(o, "preemptions"), '[');
    for (int32_t i = 0; i < x->n_preemptions && i < QUIRE_EXPLAIN_PREEMPTIONS; i++) {
        write_cost(&x->preemptions[i], json_item(o));
    }
    json_end(o, ']');
    json_int(json_name(o, "n_preemptions"), x->n_preemptions);
    write_cost(&x->preempted, json_name(o, "preempted"));
}

static void write_rule(const quire_explain *x, json_out *o) {
    json_begin(json_name(o, "rule"), '{');
    json_int(json_name(o, "compile_us"), x->compile_us);
    json_int(json_name(o, "mask_us"), x->mask_us);
    json_int(json_name(o, "forced_tokens"), x->n_forced);
    json_int(json_name(o, "guessed_tokens"), x->n_guessed);
    json_raw(json_name(o, "keywords"), x->rule);
    json_end(o, '}');
}

static void write_choice(int32_t index, const response_choice *c, json_out *o) {
    const quire_explain *x = c->explain;
    json_begin(json_item(o), '{');
    json_int(json_name(o, "index"), index);
    if (x != NULL) {
        write_waits(x, o);
        write_reuse(x, o);
        write_chunks(x, o);
        write_preemptions(x, o);
        if (x->rule != NULL) {
            write_rule(x, o);
        }
        const json_named_int stages[] = {
            {"tokenise", x->tokenise_us}, {"queue", x->queue_us},           {"prefill", x->prefill_us},
            {"decode", x->decode_us},     {"detokenise", x->detokenise_us}, {NULL, 0},
        };
        json_named_ints(json_name(o, "stages_us"), stages);
    }
    json_end(o, '}');
}

void response_write_explain(const response *a, const response_choice *c, json_out *o) {
    if (!a->info->explain) {
        return;
    }
    json_begin(json_name(o, "explain"), '{');
    json_begin(json_name(o, "choices"), '[');
    if (c != NULL) {
        write_choice((int32_t)(c - a->choices), c, o);
    }
    for (int32_t i = 0; c == NULL && i < a->n_shown; i++) {
        write_choice(i, &a->choices[a->shown[i]], o);
    }
    json_end(o, ']');
    json_end(o, '}');
}
