/* Beam search: cases.json of a directory, on the model in DIR/model: sequences exact,
 * scores and sums of log-probabilities to 1e-4 of their size. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "check/check.h"
#include "quire.h"
#include "json/json_out.h"

#define KIND "beam"

#define TOLERANCE 1e-4

enum { MAX_PATH = 4096, MAX_RESULTS = 128, MAX_TOKENS = 256 };

/* One result of the search. */
typedef struct found {
    int32_t tokens[MAX_TOKENS], n_tokens;
    double score, sum;
    quire_finish finish;
} found;

static int32_t length_of(json_value *array) {
    return json_is(array, JSON_KIND_ARRAY) ? (int32_t)json_length(array) : 0;
}

static int32_t int_at(json_value *array, int32_t i) {
    return (int)json_int64(json_at(array, (size_t)i));
}

static double number_at(json_value *array, int32_t i) {
    return json_double(json_at(array, (size_t)i));
}

/* Sets the request's field `name` to what the case has under `key`, if it has it. */
static quire_err set(quire_request *r, json_value *c, const char *key, const char *name, quire_error *err) {
    json_value *v = json_get(c, key);
    strbuf json = {0};
    json_add(&(json_out){.to = &json}, v);
    quire_err e = v == NULL ? QUIRE_OK : quire_request_set(r, name, json.p, err);
    strbuf_deinit(&json);
    return e;
}

static quire_err make_request(quire_engine *engine, json_value *c, quire_request **out, quire_error *err) {
    static const char *const same[] = {"num_beams", "length_penalty", "early_stopping", "num_beam_groups",
                                       "diversity_penalty"};
    json_value *prompt = json_get(c, "prompt");
    int32_t ids[MAX_TOKENS], n = length_of(prompt);
    for (int32_t i = 0; i < n && i < MAX_TOKENS; i++) {
        ids[i] = int_at(prompt, i);
    }
    TRY(quire_request_ids(engine, ids, n < MAX_TOKENS ? (size_t)n : MAX_TOKENS, out, err));
    char number[24];
    snprintf(number, sizeof number, "%d", (int)length_of(json_get(c, "sequences")));
    quire_err e = quire_request_set(*out, "n", number, err);
    for (size_t i = 0; i < sizeof same / sizeof *same && e == QUIRE_OK; i++) {
        e = set(*out, c, same[i], same[i], err);
    }
    e = e ? e : set(*out, c, "max_new_tokens", "max_tokens", err);
    /* the case's own end tokens, in place of the model's */
    e = e ? e : set(*out, c, "eos_token_id", "stop_token_ids", err);
    e = e ? e : quire_request_set(*out, "ignore_eos", "true", err);
    if (e != QUIRE_OK) {
        quire_request_free(*out);
    }
    return e;
}

static void take(const quire_event *ev, found *results) {
    found *f = &results[ev->choice];
    for (int32_t i = 0; ev->kind == QUIRE_EVENT_DELTA && i < ev->n_tokens && f->n_tokens < MAX_TOKENS; i++) {
        f->tokens[f->n_tokens++] = ev->tokens[i];
    }
    if (ev->kind == QUIRE_EVENT_END) {
        f->score = ev->beam_score;
        f->sum = ev->sum_logprob;
        f->finish = ev->finish;
    }
}

static quire_err search(quire_engine *engine, json_value *c, found *results, quire_error *err) {
    quire_request *request;
    quire_queue *queue;
    quire_stream *stream;
    TRY(make_request(engine, c, &request, err));
    quire_err e = quire_queue_open(engine, &queue);
    if (e != QUIRE_OK) {
        quire_request_free(request);
        return err_set(err, e, -1, "no queue");
    }
    e = quire_submit(queue, request, NULL, &stream, err);
    for (bool done = e != QUIRE_OK; !done;) {
        quire_event ev;
        if (!quire_queue_next(queue, &ev)) {
            quire_queue_wait(queue, -1);
            continue;
        }
        done = ev.kind == QUIRE_EVENT_DONE;
        if (!done) {
            take(&ev, results);
        } else if (ev.error) {
            *err = *ev.error;
            e = err->code;
        }
    }
    quire_queue_close(queue);
    return e;
}

static bool is_near(double a, double b) {
    return fabs(a - b) <= TOLERANCE * fmax(1.0, fabs(b));
}

/* Result i against the case's; false when it was reported to differ. */
static bool compare(check_report *r, const char *name, json_value *c, const found *f, int32_t i) {
    json_value *sequence = json_at(json_get(c, "sequences"), (size_t)i), *ends = json_get(c, "eos_token_id");
    int32_t n = length_of(sequence);
    bool same = f->n_tokens == n;
    for (int32_t k = 0; k < n && same; k++) {
        same = f->tokens[k] == int_at(sequence, k);
    }
    double score = number_at(json_get(c, "sequences_scores"), i), sum = number_at(json_get(c, "logprobs"), i);
    bool ended = false;
    for (int32_t k = 0; k < length_of(ends) && n > 0; k++) {
        ended = ended || int_at(ends, k) == int_at(sequence, n - 1);
    }
    if (!same) {
        check_fail(r, KIND, name, "sequence %d has %d tokens, must have %d, or differs in one", (int)i,
                   (int)f->n_tokens, (int)n);
    } else if (!is_near(f->score, score) || !is_near(f->sum, sum)) {
        check_fail(r, KIND, name, "sequence %d has score %.7g and sum %.7g, must have %.7g and %.7g", (int)i,
                   f->score, f->sum, score, sum);
    } else if (f->finish != (ended ? QUIRE_FINISH_STOP : QUIRE_FINISH_LENGTH)) {
        check_fail(r, KIND, name, "sequence %d has another reason to end", (int)i);
    } else {
        return true;
    }
    return false;
}

static void check_case(check_report *r, quire_engine *engine, json_value *c) {
    const char *name = json_get_str(c, "name").p;
    static found results[MAX_RESULTS];
    int32_t n = length_of(json_get(c, "sequences"));
    quire_error err = {0};
    name = name[0] == '\0' ? "?" : name;
    if (n < 1 || n > MAX_RESULTS) {
        check_fail(r, KIND, name, "%d sequences", (int)n);
        return;
    }
    memset(results, 0, sizeof results);
    if (search(engine, c, results, &err) != QUIRE_OK) {
        check_fail(r, KIND, name, "%s", err.message);
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        if (!compare(r, name, c, &results[i], i)) {
            return;
        }
    }
    check_pass(r, KIND, name);
}

static void check_all(check_report *r, quire_engine *engine, json_value *cases) {
    for (json_member m = {0}; json_next(cases, &m);) {
        for (int32_t i = 0; i < length_of(m.value); i++) {
            check_case(r, engine, json_at(m.value, (size_t)i));
        }
    }
}

int check_beam(const char *dir, const char *root, check_report *r) {
    (void)root;
    char path[MAX_PATH], model[MAX_PATH];
    snprintf(path, sizeof path, "%s/cases.json", dir);
    snprintf(model, sizeof model, "%s/model", dir);
    size_t n;
    char *text = check_read_file(path, &n);
    json_value *cases = text == NULL ? NULL : json_document((str){text, n});
    mem_free(text);
    if (!json_is(cases, JSON_KIND_OBJECT)) {
        fprintf(stderr, "quire-check: %s: must be an object of lists of cases\n", path);
        json_drop(cases);
        return 1;
    }
    quire_options o;
    quire_options_init(&o);
    o.model = model;
    o.compute = QUIRE_COMPUTE_F32;
    o.kv_dtype = QUIRE_KV_F32;
    o.generation_config = "none";
    o.n_pages = 256;
    quire_error err = {0};
    quire_engine *engine;
    int status = 0;
    if (quire_engine_open(&o, &engine, &err) == QUIRE_OK) {
        check_all(r, engine, cases);
        quire_engine_close(engine);
    } else {
        fprintf(stderr, "quire-check: %s\n", err.message);
        status = 1;
    }
    json_drop(cases);
    return status;
}
