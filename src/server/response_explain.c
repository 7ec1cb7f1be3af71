/* Writes the response to "explain": what each choice waited for, what it reused, its chunks and preemptions, and where its time went. */
#include "server/response.h"

/* Writes one named integer of an object; the first of it without a comma. */
static void member(json_out *o, const char *name, int64_t value, bool first) {
    json_raw(o, first ? "\"" : ",\"");
    json_raw(o, name);
    json_raw(o, "\":");
    json_int(o, value);
}

static void write_waits(const quire_explain *x, json_out *o) {
    static const char *const causes[QUIRE_N_WAITS] = {
        [QUIRE_WAIT_TURN] = "turn",     [QUIRE_WAIT_PAGES] = "pages",   [QUIRE_WAIT_SLOT] = "slot",
        [QUIRE_WAIT_BUDGET] = "budget", [QUIRE_WAIT_PREFIX] = "prefix", [QUIRE_WAIT_TIER] = "tier",
    };
    bool first = true;
    json_raw(o, ",\"waits\":[");
    for (int i = 0; i < QUIRE_N_WAITS; i++) {
        if (x->n_waits[i] > 0) {
            json_raw(o, first ? "{\"cause\":" : ",{\"cause\":");
            json_cstr(o, causes[i]);
            member(o, "us", x->wait_us[i], false);
            member(o, "times", x->n_waits[i], false);
            json_raw(o, "}");
            first = false;
        }
    }
    json_raw(o, "]");
}

static void write_reuse(const quire_explain *x, json_out *o) {
    json_raw(o, ",\"reused\":{");
    member(o, "matched_tokens", x->matched, true);
    member(o, "copied_page_tokens", x->copied, false);
    member(o, "tier_tokens", x->tier, false);
    member(o, "shared_tokens", x->shared, false);
    json_raw(o, "}");
}

static void write_chunks(const quire_explain *x, json_out *o) {
    json_raw(o, ",\"chunks\":[");
    for (int32_t i = 0; i < x->n_chunks && i < QUIRE_EXPLAIN_CHUNKS; i++) {
        json_raw(o, i > 0 ? ",{" : "{");
        member(o, "step", x->chunks[i].step, true);
        member(o, "tokens", x->chunks[i].tokens, false);
        json_raw(o, "}");
    }
    json_raw(o, "]");
    member(o, "n_chunks", x->n_chunks, false);
    member(o, "n_decode_steps", x->n_decodes, false);
}

static void write_cost(const quire_explain_preemption *p, json_out *o) {
    json_raw(o, "{");
    member(o, "recomputed_tokens", p->recomputed, true);
    member(o, "swapped_bytes", p->swapped_bytes, false);
    member(o, "us", p->us, false);
    json_raw(o, "}");
}

static void write_preemptions(const quire_explain *x, json_out *o) {
    json_raw(o, ",\"preemptions\":[");
    for (int32_t i = 0; i < x->n_preemptions && i < QUIRE_EXPLAIN_PREEMPTIONS; i++) {
        json_raw(o, i > 0 ? "," : "");
        write_cost(&x->preemptions[i], o);
    }
    json_raw(o, "]");
    member(o, "n_preemptions", x->n_preemptions, false);
    json_raw(o, ",\"preempted\":");
    write_cost(&x->preempted, o);
}

static void write_choice(int32_t index, const response_choice *c, json_out *o) {
    const quire_explain *x = c->explain;
    json_raw(o, "{");
    member(o, "index", index, true);
    if (x != NULL) {
        write_waits(x, o);
        write_reuse(x, o);
        write_chunks(x, o);
        write_preemptions(x, o);
        json_raw(o, ",\"stages_us\":{");
        member(o, "tokenise", x->tokenise_us, true);
        member(o, "queue", x->queue_us, false);
        member(o, "prefill", x->prefill_us, false);
        member(o, "decode", x->decode_us, false);
        member(o, "detokenise", x->detokenise_us, false);
        json_raw(o, "}");
    }
    json_raw(o, "}");
}

void response_write_explain(const response *a, const response_choice *c, json_out *o) {
    if (!a->info->explain) {
        return;
    }
    json_raw(o, ",\"explain\":{\"choices\":[");
    if (c != NULL) {
        write_choice((int32_t)(c - a->choices), c, o);
    }
    for (int32_t i = 0; c == NULL && i < a->n_shown; i++) {
        json_raw(o, i > 0 ? "," : "");
        write_choice(i, &a->choices[a->shown[i]], o);
    }
    json_raw(o, "]}");
}
