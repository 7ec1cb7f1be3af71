/* llama.cpp's samplers: which of them a request uses, and in what order. */
#include <assert.h>
#include <string.h>

#include "request/request_read.h"

typedef enum llama_sampler {
    LLAMA_PENALTIES,
    LLAMA_DRY,
    LLAMA_TOP_N_SIGMA,
    LLAMA_TOP_K,
    LLAMA_TYP_P,
    LLAMA_TOP_P,
    LLAMA_MIN_P,
    LLAMA_XTC,
    LLAMA_TEMPERATURE,
    N_LLAMA_SAMPLERS
} llama_sampler;

/* In llama.cpp's own order, which a request without the field has. */
static const struct {
    const char *name;
    char letter;
    sampling_stage stage; /* SAMPLING_END: it changes logits before all other stages */
} llama_samplers[N_LLAMA_SAMPLERS] = {
    [LLAMA_PENALTIES] = {"penalties", 'e', SAMPLING_END},
    [LLAMA_DRY] = {"dry", 'd', SAMPLING_END},
    [LLAMA_TOP_N_SIGMA] = {"top_n_sigma", 's', SAMPLING_TOP_N_SIGMA},
    [LLAMA_TOP_K] = {"top_k", 'k', SAMPLING_TOP_K},
    [LLAMA_TYP_P] = {"typ_p", 'y', SAMPLING_TYPICAL_P},
    [LLAMA_TOP_P] = {"top_p", 'p', SAMPLING_TOP_P},
    [LLAMA_MIN_P] = {"min_p", 'm', SAMPLING_MIN_P},
    [LLAMA_XTC] = {"xtc", 'x', SAMPLING_XTC},
    [LLAMA_TEMPERATURE] = {"temperature", 't', SAMPLING_TEMPERATURE},
};

/* An additional sampler of llama.cpp's /infill, which only affects tokens that end the
 * text. */
#define INFILL_SAMPLER "infill"
#define INFILL_LETTER  'i'

/* The samplers of a request, in their order. */
typedef struct sampler_list {
    llama_sampler list[N_LLAMA_SAMPLERS];
    size_t n;
} sampler_list;

/* The names of an array, or the letters of a text. */
static size_t samplers_n_given(const json_value *v) {
    return json_is(v, JSON_KIND_TEXT) ? json_str(v).n : json_length(v);
}

static str samplers_given(const json_value *v, size_t i) {
    return json_is(v, JSON_KIND_TEXT) ? (str){json_str(v).p + i, 1} : json_str(json_at(v, i));
}

static bool samplers_is_infill(const json_value *v, str name) {
    return json_is(v, JSON_KIND_TEXT) ? name.p[0] == INFILL_LETTER : str_is(name, INFILL_SAMPLER);
}

/* The sampler of a name or letter; N_LLAMA_SAMPLERS: unknown. */
static llama_sampler samplers_find(const json_value *v, str name) {
    llama_sampler s = LLAMA_PENALTIES;
    bool is_letter = json_is(v, JSON_KIND_TEXT);
    while (s < N_LLAMA_SAMPLERS &&
           !(is_letter ? name.p[0] == llama_samplers[s].letter : str_is(name, llama_samplers[s].name))) {
        s++;
    }
    return s;
}

static bool samplers_has(const sampler_list *l, llama_sampler s) {
    bool has = false;
    for (size_t i = 0; i < l->n; i++) {
        has = has || l->list[i] == s;
    }
    return has;
}

/* Refuses item or letter i, which names no sampler. */
static quire_err samplers_refuse(const field_desc *f, const json_value *v, size_t i, quire_error *err) {
    return json_is(v, JSON_KIND_TEXT)
               ? request_range_error(f, err,
                                     "samplers[%zu] is no sampler's letter; the letters are e (penalties), d "
                                     "(dry), s (top_n_sigma), k (top_k), y (typ_p), p (top_p), m (min_p), x "
                                     "(xtc) and t (temperature)",
                                     i)
               : request_type_error(f, (int64_t)i, json_at(v, i),
                                    "penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc or "
                                    "temperature",
                                    err);
}

/* Reads the field, or all samplers for NULL. */
static quire_err samplers_read(const field_desc *f, const json_value *v, sampler_list *out,
                               quire_error *err) {
    *out = (sampler_list){.n = 0};
    for (llama_sampler s = LLAMA_PENALTIES; v == NULL && s < N_LLAMA_SAMPLERS; s++) {
        out->list[out->n++] = s;
    }
    for (size_t i = 0; v != NULL && i < samplers_n_given(v); i++) {
        str name = samplers_given(v, i);
        llama_sampler s = samplers_find(v, name);
        if (samplers_is_infill(v, name)) {
            continue;
        }
        if (s == N_LLAMA_SAMPLERS) {
            return samplers_refuse(f, v, i, err);
        }
        if (samplers_has(out, s)) {
            return request_range_error(f, err, "samplers[%zu] is %s again; each runs once", i,
                                       llama_samplers[s].name);
        }
        out->list[out->n++] = s;
    }
    return QUIRE_OK;
}

quire_err request_read_samplers(quire_request *r, const field_desc *f, const json_value *v,
                                quire_error *err) {
    sampler_list l;
    if (v != NULL && !json_is(v, JSON_KIND_ARRAY) && !json_is(v, JSON_KIND_TEXT)) {
        return request_type_error(f, -1, v, "an array of names, or a text of their letters", err);
    }
    TRY(samplers_read(f, v, &l, err));
    for (size_t i = 0; v != NULL && i < samplers_n_given(v); i++) {
        if (samplers_is_infill(v, samplers_given(v, i)) &&
            request_ignore(r, "samplers.", str_of(INFILL_SAMPLER)) != QUIRE_OK) {
            return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
        }
    }
    r->samplers = v;
    return QUIRE_OK;
}

static void samplers_switch_off(sampling_params *p, llama_sampler s) {
    switch (s) {
    case LLAMA_PENALTIES:
        p->repetition_penalty = 1;
        p->frequency_penalty = p->presence_penalty = 0;
        break;
    case LLAMA_DRY:
        p->dry_multiplier = 0;
        break;
    case LLAMA_TOP_N_SIGMA:
        p->top_n_sigma = 0;
        break;
    case LLAMA_TOP_K:
        p->top_k = 0;
        break;
    case LLAMA_TYP_P:
        p->typical_p = 1;
        break;
    case LLAMA_TOP_P:
        p->top_p = 1;
        break;
    case LLAMA_MIN_P:
        p->min_p = 0;
        break;
    case LLAMA_XTC:
        p->xtc_probability = 0;
        break;
    default:
        p->temperature = 1;
        p->dynatemp_range = 0;
        break;
    }
}

static bool samplers_is_on(const sampling_params *p, llama_sampler s) {
    switch (s) {
    case LLAMA_PENALTIES:
        return p->penalty_last_n != 0 &&
               (p->repetition_penalty != 1 || p->frequency_penalty != 0 || p->presence_penalty != 0);
    case LLAMA_DRY:
        return p->dry_multiplier != 0;
    case LLAMA_TOP_N_SIGMA:
        return p->top_n_sigma > 0;
    case LLAMA_TOP_K:
        return p->top_k > 0;
    case LLAMA_TYP_P:
        return p->typical_p < 1;
    case LLAMA_TOP_P:
        return p->top_p < 1;
    case LLAMA_MIN_P:
        return p->min_p > 0;
    case LLAMA_XTC:
        return p->xtc_probability > 0;
    default:
        return p->temperature != 1 || p->dynatemp_range > 0;
    }
}

/* Penalties and DRY run before all others here, in this order. */
static quire_err samplers_check_order(const sampling_params *p, const sampler_list *l, quire_error *err) {
    const char *before = NULL; /* an active sampler that may not precede the next */
    for (size_t i = 0; i < l->n; i++) {
        llama_sampler s = l->list[i];
        bool is_on = samplers_is_on(p, s), is_change = llama_samplers[s].stage == SAMPLING_END;
        if (is_on && is_change && before != NULL) {
            return err_set_param(
                err, QUIRE_BAD_REQUEST, "samplers",
                "samplers has %s before %s; penalties come first here, then dry, then the others", before,
                llama_samplers[s].name);
        }
        before = is_on && s != LLAMA_PENALTIES ? llama_samplers[s].name : before;
    }
    return QUIRE_OK;
}

/* Sets the order of the stages that are on; where it is the usual one, or does not
 * matter, the usual one. */
static void samplers_set_order(sampling_params *p, const sampler_list *l) {
    size_t n = 0;
    bool is_usual = p->temperature <= 0; /* the likeliest token is taken */
    memset(p->order, SAMPLING_END, sizeof p->order);
    for (size_t i = 0; i < l->n && !is_usual; i++) {
        sampling_stage stage = llama_samplers[l->list[i]].stage;
        if (stage != SAMPLING_END && samplers_is_on(p, l->list[i])) {
            p->order[n++] = (uint8_t)stage;
        }
    }
    bool ascends = true; /* as the usual order does */
    for (size_t i = 1; i < n; i++) {
        ascends = ascends && p->order[i - 1] < p->order[i];
    }
    if (ascends) {
        memset(p->order, SAMPLING_END, sizeof p->order);
    }
}

quire_err request_settle_samplers(quire_request *r, quire_error *err) {
    assert(r != NULL);
    sampling_params *p = &r->g.sampling;
    sampler_list l;
    TRY(samplers_read(request_field("samplers", FIELD_LLAMA), r->samplers, &l, err));
    memset(p->order, SAMPLING_END, sizeof p->order);
    if (p->mirostat != MIROSTAT_OFF) { /* it replaces all cuts */
        return QUIRE_OK;
    }
    for (llama_sampler s = LLAMA_PENALTIES; s < N_LLAMA_SAMPLERS; s++) {
        if (!samplers_has(&l, s)) {
            samplers_switch_off(p, s);
        }
    }
    TRY(samplers_check_order(p, &l, err));
    samplers_set_order(p, &l);
    return QUIRE_OK;
}

void request_write_samplers(const quire_request *r, json_out *o) {
    assert(r != NULL);
    sampler_list l;
    quire_error err;
    json_begin(json_name(o, "samplers"), '[');
    if (samplers_read(request_field("samplers", FIELD_LLAMA), r->samplers, &l, &err) == QUIRE_OK) {
        for (size_t i = 0; i < l.n; i++) {
            json_cstr(json_item(o), llama_samplers[l.list[i]].name);
        }
    }
    json_end(o, ']');
}
