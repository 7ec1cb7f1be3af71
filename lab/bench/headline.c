#include "lab/bench/headline.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "lab/bench/figures.h"
#include "lab/bench/headline_report.h"
#include "lab/bench/synthetic.h"
#include "lab/sim/arrivals.h"
#include "lab/sim/trace_read.h"

enum { MAX_CASES = 16, MANY = 500, LONGEST = 2048, LEAST_SEQUENCES = 2 };
static const char DEVICE_MODEL[] = "opt-13b", DEVICE[] = "a100-40gb";

void headline_options_init(headline_options *o) {
    *o = (headline_options){
        .seed = 1, .n_draws = 1, .times_idle = 3, .type = "q4_0", .n_runs = 1, .shrink = 1};
    quire_options_init(&o->engine);
    o->engine.n_threads = 1;
}

/* What was not given, by how much is to be run. */
static headline_options filled(const headline_options *given) {
    headline_options o = *given;
    bool small = o.quick || o.shape != NULL;
    o.lengths = o.lengths != NULL ? o.lengths : small ? "sharegpt" : "sharegpt,alpaca";
    o.shares = o.shares != NULL ? o.shares : small ? "10" : "5,10,20";
    o.rates = o.rates != NULL ? o.rates : o.quick ? "70,130" : "70,100,130";
    o.n_requests = o.n_requests > 0 ? o.n_requests : o.trace != NULL ? 0 : o.shape != NULL ? 30 : 40;
    o.engine.model = o.engine.model != NULL ? o.engine.model : "builtin";
    o.engine.page_tokens = HEADLINE_PAGE;
    o.engine.max_model_len = o.engine.max_model_len > 0 ? o.engine.max_model_len : LONGEST / o.shrink;
    return o;
}

typedef struct headline {
    headline_options o;
    bare b;
    trace traces[MAX_CASES], many[MAX_CASES]; /* many: MANY of the same kind; of a file the same */
    char names[MAX_CASES][32];                /* of the lengths, in the order of the traces */
    int32_t n_traces;
    int32_t shares[FIGURES_MAX_POINTS], n_shares, rates[FIGURES_MAX_POINTS], n_rates;
    cost_model device;
    headline_case cases[MAX_CASES];
    int32_t n_cases;
    char machine[256];
} headline;

/* ---- requests ---- */

static quire_err make_trace(const headline *h, const char *lengths, int32_t n_requests, trace *out,
                            quire_error *err) {
    const headline_options *o = &h->o;
    if (o->trace != NULL) {
        TRY(trace_read(o->trace, o->n_requests, out, err));
        arrivals_space(out, 1, (uint64_t)o->seed);
    } else {
        arrivals_options a = {.lengths = lengths,
                              .rate = 1,
                              .n = n_requests,
                              .most = o->engine.max_model_len * o->shrink - 2 * o->shrink,
                              .seed = (uint64_t)o->seed};
        TRY(arrivals_make(&a, out, err));
    }
    if (o->shrink > 1) {
        trace_shrink(out, o->shrink);
    }
    return QUIRE_OK;
}

static quire_err make_traces(headline *h, quire_error *err) {
    const char *p = h->o.trace != NULL ? "trace" : h->o.lengths;
    while (*p != 0) {
        size_t n = strcspn(p, ",");
        if (h->n_traces == MAX_CASES || n >= sizeof h->names[0]) {
            return err_set(err, QUIRE_INVALID, -1, "--lengths %s: must be one or some of %s", h->o.lengths,
                           arrivals_names);
        }
        snprintf(h->names[h->n_traces], sizeof h->names[0], "%.*s", (int)n, p);
        trace *t = &h->traces[h->n_traces];
        TRY(make_trace(h, h->names[h->n_traces], h->o.n_requests, t, err));
        TRY(make_trace(h, h->names[h->n_traces], h->o.n_requests > MANY ? h->o.n_requests : MANY,
                       &h->many[h->n_traces], err));
        h->n_traces++;
        if (t->longest > h->o.engine.max_model_len) {
            return err_set(err, QUIRE_INVALID, -1,
                           "a request of %d tokens: --max-model-len is %d; shrink the requests",
                           (int)t->longest, (int)h->o.engine.max_model_len);
        }
        p += n + (p[n] == ',');
    }
    return QUIRE_OK;
}

/* ---- memory ---- */

/* Tokens that a share of the memory holds, in whole pages. */
static int64_t kv_tokens_of(const headline *h, const trace *t, int32_t share) {
    int64_t all = (int64_t)t->n_requests * h->o.engine.max_model_len;
    return all * share / 100 / HEADLINE_PAGE * HEADLINE_PAGE;
}

static quire_err make_cases(headline *h, quire_error *err) {
    const quire_options *e = &h->o.engine;
    for (int32_t i = 0; i < h->n_traces; i++) {
        for (int32_t k = 0; k < h->n_shares; k++) {
            int64_t kv_tokens = kv_tokens_of(h, &h->traces[i], h->shares[k]);
            if (h->n_cases == MAX_CASES || kv_tokens > INT32_MAX ||
                kv_tokens < (int64_t)LEAST_SEQUENCES * e->max_model_len) {
                return err_set(err, QUIRE_INVALID, -1,
                               "--shares %s of %d requests of at most %d tokens: each must hold %d such "
                               "requests, and there are at most %d "
                               "cases",
                               h->o.shares, (int)h->traces[i].n_requests, (int)e->max_model_len,
                               LEAST_SEQUENCES, MAX_CASES);
            }
            h->cases[h->n_cases++] = (headline_case){.lengths = h->names[i],
                                                     .share = h->shares[k],
                                                     .server = {.kv_tokens = kv_tokens,
                                                                .pads_unread = true,
                                                                .piece_tokens = HEADLINE_PAGE,
                                                                .page_tokens = HEADLINE_PAGE,
                                                                .max_model_len = e->max_model_len,
                                                                .max_rows = e->max_batched_tokens,
                                                                .max_seqs = e->max_seqs}};
        }
    }
    return QUIRE_OK;
}

/* ---- the run ---- */

static quire_err open_model(headline *h, quire_error *err) {
    int32_t n_pages = 0;
    for (int32_t i = 0; i < h->n_cases; i++) {
        int32_t n = (int32_t)(h->cases[i].server.kv_tokens / HEADLINE_PAGE);
        n += headline_padding_pages(n, h->o.engine.max_model_len);
        n_pages = n > n_pages ? n : n_pages;
    }
    bare_options b = {.engine = &h->o.engine,
                      .page_tokens = HEADLINE_PAGE,
                      .n_pages = n_pages,
                      .max_rows = h->o.engine.max_batched_tokens,
                      .max_seqs = h->o.engine.max_seqs,
                      .max_len = h->o.engine.max_model_len};
    TRY(bare_open(&b, &h->b, err));
    snprintf(h->machine, sizeof h->machine, "%s, compute %s, KV %s, %s, %s", h->b.desc->name,
             compute_name(h->b.b->compute), h->b.layout.type_name, h->b.b->ops->describe(h->b.b),
             figures_time_name(h->o.engine.n_threads));
    return QUIRE_OK;
}

static quire_err run_cases(headline *h, quire_error *err) {
    for (int32_t i = 0; i < h->n_cases; i++) {
        headline_case *c = &h->cases[i];
        trace *t = &h->traces[i / h->n_shares];
        headline_case_options o = {.b = &h->b,
                                   .t = t,
                                   .many = &h->many[i / h->n_shares],
                                   .device = &h->device,
                                   .times_idle = h->o.times_idle,
                                   .rates = h->rates,
                                   .n_rates = h->n_rates,
                                   .n_draws = h->o.n_draws,
                                   .seed = (uint64_t)h->o.seed,
                                   .n_runs = h->o.n_runs};
        char requests[512];
        snprintf(requests, sizeof requests,
                 "%s; %d requests like %s, mean prompt %.0f, answer %.0f, longest %d", h->machine,
                 (int)t->n_requests, c->lengths, (double)t->n_prompt_tokens / t->n_requests,
                 (double)t->n_output_tokens / t->n_requests, (int)h->o.engine.max_model_len);
        TRY(headline_case_run(&o, c, err));
        headline_print_case(c, requests, h->o.json);
    }
    return h->o.svg != NULL ? headline_draw(h->o.svg, h->cases, h->n_cases, err) : QUIRE_OK;
}

static quire_err run(headline *h, quire_error *err) {
    if (h->o.engine.max_batched_tokens < h->o.engine.max_seqs) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--max-num-batched-tokens %d: must be at least --max-num-seqs, which is %d",
                       (int)h->o.engine.max_batched_tokens, (int)h->o.engine.max_seqs);
    }
    TRY(figures_parse_list("--shares", h->o.shares, h->shares, &h->n_shares, err));
    for (int32_t i = 0; i < h->n_shares; i++) {
        if (h->shares[i] > 100) {
            return err_set(err, QUIRE_INVALID, -1,
                           "--shares %s: in percent of what all requests take fully reserved, so at most 100",
                           h->o.shares);
        }
    }
    TRY(figures_parse_list("--rates", h->o.rates, h->rates, &h->n_rates, err));
    if (h->n_rates > HEADLINE_MAX_LOADS / 2) {
        return err_set(err, QUIRE_INVALID, -1, "--rates %s: must be at most %d", h->o.rates,
                       HEADLINE_MAX_LOADS / 2);
    }
    TRY(cost_describe(DEVICE_MODEL, DEVICE, &h->device, err));
    TRY(make_traces(h, err));
    TRY(make_cases(h, err));
    TRY(open_model(h, err));
    return run_cases(h, err);
}

/* On random weights of a shape, or on a model. */
static quire_err run_on(headline *h, quire_error *err) {
    const model_shape *shape;
    if (h->o.shape == NULL) {
        return run(h, err);
    }
    const speed_type *type = speed_type_find(h->o.type, strlen(h->o.type));
    if (type == NULL) {
        return err_set(err, QUIRE_INVALID, -1, "--type %s: must be q4_0, q8_0, q4_k, int8, bf16 or f32",
                       h->o.type);
    }
    TRY(model_shape_parse("--shape", h->o.shape, &shape, err));
    synthetic s;
    TRY(synthetic_open(shape, type->file, &s, err));
    h->o.engine.model = s.path;
    h->o.engine.compute = speed_type_compute(type);
    quire_err e = run(h, err);
    synthetic_close(&s);
    return e;
}

quire_err headline_run(const headline_options *o, quire_error *err) {
    if (o->shape != NULL && o->engine.model != NULL) {
        return err_set(err, QUIRE_INVALID, -1, "a MODEL or --shape is run, not both");
    }
    if (o->lengths != NULL && o->lengths[0] == '\0') {
        return err_set(err, QUIRE_INVALID, -1, "--lengths: is empty; it must be one or some of %s",
                       arrivals_names);
    }
    headline *h = mem_new(1, sizeof *h);
    TRY(mem_check_for(h, "the cases", err));
    h->o = filled(o);
    quire_err e = run_on(h, err);
    bare_close(&h->b);
    for (int32_t i = 0; i < MAX_CASES; i++) {
        trace_deinit(&h->traces[i]);
        trace_deinit(&h->many[i]);
    }
    mem_free(h);
    return e;
}
