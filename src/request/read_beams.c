/* Beam search among a request's fields: its own fields, under vLLM's names and
 * transformers', and what it excludes. */
#include "request/request_read.h"

#include <assert.h>

int32_t request_beam_width(const quire_request *r) {
    assert(r != NULL);
    if (r->beam_width > 1 || (r->beam_width == 1 && r->use_beam_search)) {
        return r->beam_width;
    }
    if (!r->use_beam_search) {
        return 0;
    }
    return r->best_of > r->n ? r->best_of : r->n;
}

quire_err request_read_early_stopping(quire_request *r, const field_desc *f, const json_value *v,
                                      quire_error *err) {
    assert(r != NULL);
    (void)f, (void)err;
    r->g.beams.stopping = json_is(v, JSON_KIND_TEXT) ? BEAM_STOPPING_NEVER
                          : json_truth(v)            ? BEAM_STOPPING_EARLY
                                                     : BEAM_STOPPING_LIKELY;
    return QUIRE_OK;
}

/* A field that affects sampling, which a search does not do; NULL: none is set.
 * Temperature may be 0 or 1, which have no effect. */
static const char *drawing_field(const sampling_params *p) {
    const struct {
        const char *name;
        bool is_set;
    } fields[] = {{"temperature", p->temperature != 0.0f && p->temperature != 1.0f},
                  {"top_p", p->top_p < 1.0f},
                  {"top_k", p->top_k > 0},
                  {"min_p", p->min_p > 0.0f},
                  {"typical_p", p->typical_p < 1.0f},
                  {"top_n_sigma", p->top_n_sigma > 0.0f},
                  {"xtc_probability", p->xtc_probability > 0.0f},
                  {"dynatemp_range", p->dynatemp_range > 0.0f},
                  {"mirostat", p->mirostat != MIROSTAT_OFF}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (fields[i].is_set) {
            return fields[i].name;
        }
    }
    return NULL;
}

/* Whether the request itself gave the field a value. */
static bool is_given(const quire_request *r, const char *name) {
    const json_value *v = NULL;
    for (size_t i = 0; i < r->n_values; i++) {
        v = strcmp(r->values[i].field->name, name) == 0 ? r->values[i].value : v;
    }
    return v != NULL;
}

void request_settle_drawing(quire_request *r) {
    static const char *const names[] = {"temperature", "top_k", "top_p", "min_p"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const double *own = request_defaults_find(r->context.defaults, names[i]);
        if (own != NULL && !is_given(r, names[i])) {
            const field_desc *f = request_field(names[i], dialect_of(&r->g)->fields);
            request_store_number(r, f, r->g.info.beam_width > 0 ? f->number : *own);
        }
    }
}

quire_err request_check_beams(const quire_request *r, quire_error *err) {
    assert(r != NULL);
    int32_t width = r->g.info.beam_width;
    if (width == 0) {
        return QUIRE_OK;
    }
    if (width > PARAMS_MAX_BEAMS) {
        return err_set_param(err, QUIRE_BAD_REQUEST, r->best_of > r->n ? "best_of" : "n",
                             "a search of %d beams; at most %d are possible", (int)width, PARAMS_MAX_BEAMS);
    }
    if (r->g.more.has_prediction) {
        return err_set_param(
            err, QUIRE_BAD_REQUEST, "prediction",
            "prediction is given with beam search, which keeps several answers: leave it out");
    }
    if (r->n > width) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "n", "n is %d; %d beams have at most as many results",
                             (int)r->n, (int)width);
    }
    if (r->best_of >= 0 && r->beam_width > 0 && r->best_of != r->beam_width) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "best_of",
                             "best_of is %d and beam_width %d; with beam search both are the number of beams",
                             (int)r->best_of, (int)r->beam_width);
    }
    if (width % r->g.beams.n_groups != 0) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "num_beam_groups",
                             "num_beam_groups is %d; it must divide the number of beams, which is %d",
                             (int)r->g.beams.n_groups, (int)width);
    }
    if (r->g.beams.diversity_penalty > 0.0f && r->g.beams.n_groups == 1) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "diversity_penalty",
                             "diversity_penalty is given without groups of beams; set num_beam_groups");
    }
    const char *field = drawing_field(&r->g.sampling);
    if (field != NULL) {
        return err_set_param(err, QUIRE_BAD_REQUEST, field, "beam search draws no tokens: leave %s out%s",
                             field, strcmp(field, "temperature") == 0 ? ", or give 0 or 1" : "");
    }
    return QUIRE_OK;
}
