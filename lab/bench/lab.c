#include "lab/bench/lab.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "setup/engine_config.h"
#include "setup/engine_parts.h"
#include "setup/loaded_model.h"

enum { MAX_REQUESTS = 4096, MAX_SAMPLES = 64, SEED = 5 };

quire_err lab_engine_open(model *m, backend *b, const kv_layout *layout, const engine_options *o,
                          lab_engine *out, quire_error *err) {
    TRY(engine_open(m, b, layout, o, &out->e, err));
    quire_err e = wake_init(&out->reader);
    TRY_DONE(e, engine_out_open(out->e, &out->reader, &out->out));
done:
    return err_set(err, e, -1, "the engine's events: %s", quire_err_text(e));
}

void lab_engine_close(lab_engine *x) {
    engine_out_close(x->out);
    engine_close(x->e);
    wake_deinit(&x->reader);
}

/* Asks for exactly n_output tokens, sampled greedily. */
static void ask_for_whole(engine_request *r, engine_out *out, int32_t n_output) {
    r->out = out;
    sampling_params_init(&r->sampling);
    r->sampling.temperature = 0;
    r->sampling.max_tokens = n_output;
    r->sampling.ignore_eos = true;
    r->sampling.has_seed = true;
}

quire_err lab_engine_send(lab_engine *x, engine_request *r, int32_t n_output, quire_error *err) {
    request_id id;
    ask_for_whole(r, x->out, n_output);
    quire_err e = engine_submit(x->e, r, &id, err);
    if (e != QUIRE_OK) {
        mem_free(r->tokens);
    }
    return e;
}

static quire_err lab_open_model(const quire_options *o, int32_t max_len, model_file *f, lab *l,
                                quire_error *err) {
    model_desc d;
    loaded_model loaded;
    TRY(model_describe(f, &d, err));
    quire_err e = loaded_model_open(o, f, &d, max_len, &loaded, err);
    l->b = loaded.b; /* lab_close frees both, even after a failure */
    l->m = loaded.m;
    l->layout = loaded.layout;
    l->desc = e == QUIRE_OK ? model_description(l->m) : NULL;
    return e;
}

quire_err lab_check_length(const quire_options *o, int64_t n_tokens, quire_error *err) {
    model_file *f = NULL;
    model_desc d = {.max_positions = 0};
    TRY(options_open_file(o, &f, err));
    quire_err e = model_describe(f, &d, err);
    model_file_close(f);
    TRY(e);
    return n_tokens <= d.max_positions
               ? QUIRE_OK
               : err_set(err, QUIRE_INVALID, -1, "sequences of %lld tokens: the model takes %d",
                         (long long)n_tokens, (int)d.max_positions);
}

/* Reads drafting by look-up; a draft model would have to be opened too. */
static quire_err read_draft(const quire_options *o, draft_options *out, quire_error *err) {
    speculation s;
    quire_err e = speculation_read(o, &s, err);
    *out = s.draft;
    speculation_close(&s);
    TRY(e);
    return out->method != DRAFT_METHOD_MODEL
               ? QUIRE_OK
               : err_set(err, QUIRE_UNSUPPORTED, -1,
                         "experiments run without draft models; `quire bench speculation` has them");
}

static quire_err lab_open_engine(const quire_options *o, engine_ablations off, int32_t max_len, lab *l,
                                 quire_error *err) {
    int32_t rows = options_max_rows(o, max_len);
    draft_options draft;
    TRY(read_draft(o, &draft, err));
    step_limits limits = {
        .max_rows = rows, .max_seqs = o->max_seqs, .max_out = draft_max_out(&draft, o->max_seqs, rows)};
    engine_options eo;
    TRY(options_engine(o, &eo, err));
    eo.n_pages = o->n_pages * l->layout.n_groups; /* a sequence has as many pages in each group */
    eo.max_model_len = max_len;
    eo.max_batched_tokens = rows;
    eo.draft = draft;
    eo.ablations = off;
    eo.max_requests = MAX_REQUESTS;
    eo.starts_paused = true;
    TRY(l->b->ops->step_open(l->b, &limits, &l->layout, l->desc->n_vocab, err));
    TRY(l->b->ops->kv_open(l->b, eo.n_pages, err));
    return lab_engine_open(l->m, l->b, &l->layout, &eo, &l->x, err);
}

quire_err lab_open(const quire_options *o, engine_ablations off, int32_t max_len, lab *out,
                   quire_error *err) {
    *out = (lab){.max_len = max_len, .n_threads = o->n_threads};
    model_file *f = NULL;
    quire_err e = options_open_file(o, &f, err);
    if (e == QUIRE_OK) {
        e = lab_open_model(o, max_len, f, out, err);
        model_file_close(f);
    }
    TRY_DONE(e, lab_open_engine(o, off, max_len, out, err));
done:
    if (e != QUIRE_OK) {
        lab_close(out);
    }
    return e;
}

void lab_close(lab *l) {
    lab_engine_close(&l->x);
    model_close(l->m);
    if (l->b != NULL) {
        l->b->ops->close(l->b);
    }
    *l = (lab){0};
}

/* State of one run. */
typedef struct lab_job {
    lab *l;
    lab_request *requests;
    int32_t n, n_sent, n_open, n_ended, n_samples_all, n_going;
    lab_result *result;
    double first_sum, decode_sum; /* microseconds by the engine's clock */
    int64_t n_decoded, decode_from_us, decode_to_us;
} lab_job;

/* A sample in progress: `user` of the engine's request. */
typedef struct sample {
    lab_request *request;
    bool leads; /* the first sample, whose tokens are kept */
    int32_t n_tokens;
    uint64_t digest;
} sample;

static uint64_t add_to_digest(uint64_t digest, int32_t token) {
    return (digest ^ (uint64_t)(uint32_t)token) * 0x100000001b3u;
}

/* Mixes a digest. Digests are summed over answers, whose order of ending varies. */
static uint64_t end_digest(uint64_t digest) {
    return rng_next(&digest);
}

uint64_t lab_digest(const int32_t *tokens, int32_t n) {
    uint64_t digest = 0;
    for (int32_t i = 0; i < n; i++) {
        digest = add_to_digest(digest, tokens[i]);
    }
    return end_digest(digest);
}

static int32_t samples_of(const lab_request *r) {
    return r->n_samples > 1 ? r->n_samples : 1;
}

/* Makes the prompt: the earlier request's prompt and answer, then its own tokens. The
 * engine takes *out. */
static quire_err lab_make_prompt(const lab_job *c, lab_request *r, int32_t **out) {
    const lab_request *before = r->after >= 0 && !r->is_apart ? &c->requests[r->after] : NULL;
    int32_t n_before = before != NULL ? before->n_whole : 0;
    r->n_prompt = n_before + r->n_tokens;
    r->whole = mem_new((size_t)(r->n_prompt + r->n_output), sizeof *r->whole);
    *out = mem_new((size_t)r->n_prompt, sizeof **out);
    if (r->whole == NULL || *out == NULL) {
        mem_free(*out);
        return QUIRE_NO_MEMORY;
    }
    if (before != NULL) {
        memcpy(r->whole, before->whole, (size_t)n_before * sizeof *r->whole);
    }
    memcpy(r->whole + n_before, r->tokens, (size_t)r->n_tokens * sizeof *r->whole);
    memcpy(*out, r->whole, (size_t)r->n_prompt * sizeof **out);
    r->n_whole = r->n_prompt;
    return QUIRE_OK;
}

static quire_err send_request(lab_job *c, lab_request *r, sample *samples, quire_error *err) {
    int32_t *prompt;
    quire_err e = lab_make_prompt(c, r, &prompt);
    if (e != QUIRE_OK) {
        return err_set(err, e, -1, "out of memory for a prompt");
    }
    const char *tenant = r->tenant != NULL ? r->tenant : "lab";
    engine_request q = {
        .tokens = prompt, .n_tokens = r->n_prompt, .namespace = tenant, .n_namespace = strlen(tenant)};
    ask_for_whole(&q, c->l->x.out, r->n_output);
    q.sampling.temperature = r->temperature;
    q.sampling.seed = SEED;
    q.constraint = r->rule;
    q.beams = (beam_params){.width = r->beam_width, .n_groups = 1, .length_penalty = 1.0f};
    void *users[MAX_SAMPLES];
    request_id ids[MAX_SAMPLES];
    for (int32_t k = 0; k < samples_of(r); k++) {
        samples[k] = (sample){.request = r, .leads = k == 0};
        users[k] = &samples[k];
    }
    r->sent_us = clock_us();
    r->n_left = samples_of(r);
    r->is_sent = true;
    e = engine_submit_samples(c->l->x.e, &q, samples_of(r), users, ids, err);
    if (e != QUIRE_OK) {
        mem_free(prompt);
    }
    return e;
}

static void take_token(lab_job *c, sample *u, int32_t token) {
    u->digest = add_to_digest(u->digest, token);
    if (u->leads) {
        u->request->whole[u->request->n_whole++] = token;
    }
    c->result->n_output++;
    c->n_going += ++u->n_tokens == LAB_GOING;
    if (u->n_tokens == LAB_GOING && c->n_going == c->n_samples_all) {
        engine_profile_read(c->l->x.e, &c->result->going);
    }
}

/* Records when a sample's first and last token were committed, by the engine's clock,
 * since this thread may wake long after. */
static void lab_take_times(lab_job *c, const sample *u, const engine_event *ev) {
    lab_request *r = u->request;
    int64_t first_us = ev->first_token_us > 0 ? ev->first_token_us : ev->ended_us;
    r->first_us = r->first_us == 0 || first_us < r->first_us ? first_us : r->first_us;
    r->last_us = ev->ended_us > r->last_us ? ev->ended_us : r->last_us;
    c->first_sum += (double)(first_us - r->sent_us);
    c->decode_sum += (double)(ev->ended_us - first_us);
    c->n_decoded += u->n_tokens - 1;
    c->decode_from_us = c->decode_from_us == 0 || first_us < c->decode_from_us ? first_us : c->decode_from_us;
    c->decode_to_us = ev->ended_us > c->decode_to_us ? ev->ended_us : c->decode_to_us;
}

static quire_err take_end(lab_job *c, const sample *u, const engine_event *ev, quire_error *err) {
    lab_request *r = u->request;
    if (u->leads) {
        r->n_cached = ev->n_cached;
    }
    lab_take_times(c, u, ev);
    c->result->n_prompt += r->n_prompt;
    c->result->digest += end_digest(u->digest);
    if (--r->n_left == 0) {
        c->n_open--;
        c->n_ended++;
    }
    return ev->finish == FINISH_LENGTH ? QUIRE_OK
                                       : err_set(err, ev->error != QUIRE_OK ? ev->error : QUIRE_INTERNAL, -1,
                                                 "a request ended early: %s", quire_err_text(ev->error));
}

/* Whether r may be sent: it follows no request, or one that has ended. */
static bool may_go(const lab_job *c, const lab_request *r) {
    return !r->is_sent &&
           (r->after < 0 || (c->requests[r->after].is_sent && c->requests[r->after].n_left == 0));
}

static quire_err send_more(lab_job *c, int32_t at_once, sample *samples, const int32_t *first_sample,
                           quire_error *err) {
    for (int32_t i = 0; i < c->n && c->n_open < at_once; i++) {
        if (may_go(c, &c->requests[i])) {
            TRY(send_request(c, &c->requests[i], samples + first_sample[i], err));
            c->n_open++;
            c->n_sent++;
        }
    }
    return QUIRE_OK;
}

/* Runs the job. After an error, waits for running samples, whose events refer to them. */
static quire_err lab_run_job(lab_job *c, int32_t at_once, sample *samples, const int32_t *first_sample,
                             quire_error *err) {
    quire_err e = send_more(c, at_once, samples, first_sample, err);
    engine_release(c->l->x.e);
    while (c->n_open > 0) {
        engine_event ev;
        if (!engine_out_pop(c->l->x.out, &ev)) {
            wake_wait(&c->l->x.reader, -1);
            continue;
        }
        if (ev.finish == FINISH_NONE) {
            take_token(c, ev.user, ev.token);
            continue;
        }
        quire_error one = {.message = ""};
        quire_err ended = take_end(c, ev.user, &ev, &one);
        if (e == QUIRE_OK && ended != QUIRE_OK) {
            e = ended;
            *err = one;
        }
        if (e == QUIRE_OK) {
            e = send_more(c, at_once, samples, first_sample, err);
        }
    }
    return e == QUIRE_OK && c->n_ended < c->n
               ? err_set(err, QUIRE_INTERNAL, -1, "%d requests follow what never ended",
                         (int)(c->n - c->n_ended))
               : e;
}

static void lab_fill_result(lab_job *c, int64_t start_us, int64_t cpu_start_us) {
    quire_stats s;
    engine_profile profile;
    do { /* the last step is counted when its events have been read */
        engine_stats_read(c->l->x.e, &s);
    } while (s.n_requests_running > 0);
    engine_profile_read(c->l->x.e, &profile);
    lab_result *r = c->result;
    int32_t n_answers = 0;
    for (int32_t i = 0; i < c->n; i++) {
        n_answers += samples_of(&c->requests[i]);
    }
    /* the last token of an answer is not computed, and rejected drafts do not count */
    r->n_prompt_computed = s.step_rows - (r->n_output - n_answers) - (s.draft_tokens - s.draft_accepted);
    r->n_pages_kept = s.n_pages_cached;
    r->n_cached = s.prefix_hits;
    r->n_pages_most = profile.n_pages_held_most;
    r->n_preemptions = s.preemptions;
    r->n_steps = s.steps;
    r->seconds = (double)(figures_time_us(c->l->n_threads) - start_us) * 1e-6;
    r->cpu_seconds = (double)(figures_time_us(1) - cpu_start_us) * 1e-6;
    r->first_ms = c->first_sum / n_answers / 1000;
    r->token_ms = c->n_decoded > 0 ? c->decode_sum / (double)c->n_decoded / 1000 : 0;
    r->decode_speed = c->n_decoded > 0 ? (double)c->n_decoded /
                                             (fmax(1, (double)(c->decode_to_us - c->decode_from_us)) * 1e-6)
                                       : 0;
}

quire_err lab_run(lab *l, lab_request *requests, int32_t n, int32_t at_once, lab_result *out,
                  quire_error *err) {
    *out = (lab_result){0};
    lab_job c = {.l = l, .requests = requests, .n = n, .result = out};
    int32_t *first_sample = mem_new((size_t)n, sizeof *first_sample);
    for (int32_t i = 0; first_sample != NULL && i < n; i++) {
        if (requests[i].n_samples > MAX_SAMPLES || requests[i].after >= i) {
            mem_free(first_sample);
            return err_set(err, QUIRE_INVALID, -1, "request %d: at most %d samples, and after an earlier one",
                           (int)i + 1, MAX_SAMPLES);
        }
        first_sample[i] = c.n_samples_all;
        c.n_samples_all += samples_of(&requests[i]);
    }
    sample *samples = mem_new((size_t)c.n_samples_all, sizeof *samples);
    quire_err e = mem_check_for(first_sample && samples ? first_sample : NULL, "the requests", err);
    const int64_t start = figures_time_us(l->n_threads), cpu_start = figures_time_us(1);
    TRY_DONE(e, lab_run_job(&c, at_once, samples, first_sample, err));
    lab_fill_result(&c, start, cpu_start);
done:
    mem_free(samples);
    mem_free(first_sample);
    return e;
}

void lab_forget(lab_request *requests, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        lab_request *r = &requests[i];
        mem_free(r->whole);
        r->whole = NULL;
        r->n_whole = r->n_prompt = r->n_cached = r->n_left = 0;
        r->sent_us = r->first_us = r->last_us = 0;
        r->is_sent = false;
    }
}

quire_err lab_describe(const quire_options *o, char *out, size_t n, quire_error *err) {
    lab l;
    quire_options small = *o;
    small.n_pages = small.n_pages > 0 ? small.n_pages : 1;
    TRY(lab_open(&small, (engine_ablations){0}, small.page_tokens, &l, err));
    snprintf(out, n, "%s, compute %s, KV %s, %s, tokens/s by %s", l.desc->name, compute_name(l.b->compute),
             l.layout.type_name, l.b->ops->describe(l.b), figures_time_name(o->n_threads));
    lab_close(&l);
    return QUIRE_OK;
}

enum { PROMPT_SEED = 77, LEAST_VOCAB = 256 }; /* ids that every model has */

static quire_err variant_run_once(variant *t, bool counts_vary, quire_error *err) {
    lab l;
    lab_result r;
    TRY(lab_open(&t->options, t->off, t->max_len, &l, err));
    quire_err e = lab_run(&l, t->requests, t->n, t->at_once, &r, err);
    const int64_t peak_bytes =
        l.b->ops->weight_bytes(l.b) + l.b->ops->step_bytes(l.b) + r.n_pages_most * l.layout.page_bytes;
    lab_close(&l);
    lab_forget(t->requests, t->n);
    TRY(e);
    const lab_result *b = &t->best;
    if (t->n_done > 0 && (r.digest != b->digest || r.n_output != b->n_output)) {
        return err_set(err, QUIRE_INTERNAL, -1, "two runs of the same requests gave other answers");
    }
    if (t->n_done > 0 && !counts_vary &&
        (r.n_prompt_computed != b->n_prompt_computed || r.n_cached != b->n_cached)) {
        return err_set(err, QUIRE_INTERNAL, -1,
                       "two runs of the same requests computed %lld and %lld prompt tokens",
                       (long long)b->n_prompt_computed, (long long)r.n_prompt_computed);
    }
    if (t->n_done < FIGURES_MAX_RUNS) {
        t->runs[t->n_done] = r;
    }
    if (t->n_done++ == 0 || r.seconds < b->seconds) {
        t->best = r;
        t->peak_bytes = peak_bytes;
    }
    return QUIRE_OK;
}

quire_err variants_run(variant *t, int32_t n, int32_t n_runs, bool counts_vary, quire_error *err) {
    for (int32_t run = 0; run < n_runs; run++) {
        for (int32_t i = 0; i < n; i++) {
            TRY(variant_run_once(&t[i], counts_vary, err));
        }
    }
    return QUIRE_OK;
}

int32_t *variant_prompts(const int32_t *lengths, int32_t n, int32_t n_output, lab_request *requests) {
    size_t n_tokens = 0, at = 0;
    for (int32_t i = 0; i < n; i++) {
        n_tokens += (size_t)lengths[i];
    }
    int32_t *tokens = mem_new(n_tokens, sizeof *tokens);
    uint64_t seed = PROMPT_SEED;
    for (size_t i = 0; tokens != NULL && i < n_tokens; i++) {
        tokens[i] = 1 + (int32_t)(rng_next(&seed) % (LEAST_VOCAB - 1));
    }
    for (int32_t i = 0; tokens != NULL && i < n; i++) {
        requests[i] =
            (lab_request){.tokens = tokens + at, .n_tokens = lengths[i], .n_output = n_output, .after = -1};
        at += (size_t)lengths[i];
    }
    return tokens;
}

int64_t variant_live_tokens(const lab_request *requests, int32_t n) {
    int64_t tokens = 0;
    for (int32_t i = 0; i < n; i++) {
        tokens += requests[i].n_tokens + requests[i].n_output - 1;
    }
    return tokens;
}

double variant_speed(const lab_result *r) {
    return (double)r->n_output / r->seconds;
}

static int variant_compare_speeds(const void *a, const void *b) {
    double x = variant_speed(a), y = variant_speed(b);
    return (x > y) - (x < y);
}

const lab_result *variant_median(variant *t, double *spread) {
    int32_t n = t->n_done < FIGURES_MAX_RUNS ? t->n_done : FIGURES_MAX_RUNS;
    qsort(t->runs, (size_t)n, sizeof *t->runs, variant_compare_speeds);
    double median = variant_speed(&t->runs[n / 2]);
    *spread = fmax(median - variant_speed(&t->runs[0]), variant_speed(&t->runs[n - 1]) - median);
    return &t->runs[n / 2];
}

enum { WORKLOAD_REQUESTS = 256, WORKLOAD_TOKENS = 1 << 16 };

/* The first n tokens of text number `text`. */
typedef struct part {
    int32_t text, n;
} part;

/* Numbers of texts: shared ones are small, those of one request begin at OWN. No two
 * texts begin with the same token, even modulo the smallest vocabulary. */
enum { OWN = 1100 };

/* Adds a request of texts a and b, b always new. is_new: no earlier prompt has a. */
static void workload_add(workload *w, int32_t n_vocab, part a, bool is_new, part b, int32_t n_output,
                         int32_t after) {
    const part parts[] = {a, b};
    lab_request *r = &w->requests[w->n++];
    *r = (lab_request){
        .tokens = w->tokens + w->n_tokens, .n_tokens = a.n + b.n, .n_output = n_output, .after = after};
    int32_t length = (after >= 0 ? w->requests[after].n_prompt : 0) + a.n + b.n + n_output;
    /* includes the answer while the workload is made, since following requests are longer
     * by it */
    r->n_prompt = length;
    w->max_len = length > w->max_len ? length : w->max_len;
    w->n_prompt += length - n_output;
    w->n_new += (is_new ? a.n : 0) + b.n + (after >= 0); /* the last token of the answer was not computed */
    for (int p = 0; p < 2; p++) {
        uint64_t state = (uint64_t)parts[p].text * 0x9e3779b97f4a7c15u + 1;
        for (int32_t i = 0; i < parts[p].n; i++) {
            int32_t drawn = 1 + (int32_t)(rng_next(&state) % (uint64_t)(n_vocab - 1));
            w->tokens[w->n_tokens++] = i == 0 ? 1 + parts[p].text % (LEAST_VOCAB - 1) : drawn;
        }
    }
}

#define NOTHING ((part){0, 0})

/* n requests, each of one of n_shared shared texts of this many tokens, in turn, and an
 * own text. */
typedef struct shape {
    const char *name, *line;
    int32_t n, n_shared, shared_tokens, own_tokens, output, n_turns, turn_tokens, max_seqs, max_rows;
} shape;

static const shape shapes[] = {
    /* worked example 24: all prompts are computed in one step, so that all sequences
     * advance together */
    {"chatbot", "8 users after one system prompt of 2000 tokens, 30 of their own, answers of 150", 8, 1, 2000,
     30, 150, 1, 0, 8, 16384},
    {"mmlu5", "48 questions of 60 tokens after 5 examples (700 tokens) in 4 subjects, answers of 1", 48, 4,
     700, 60, 1, 1, 0, 8, 2048},
    {"gsm8k", "24 questions of 60 tokens after 8 worked examples (900 tokens), answers of 100", 24, 1, 900,
     60, 100, 1, 0, 8, 2048},
    {"react", "6 agents, instructions of 800 tokens, 4 steps each: 60 tokens of thought, 50 of observation",
     6, 1, 800, 40, 60, 4, 50, 8, 2048},
    {"json", "24 documents of 150 tokens after one schema of 250, answers of 80", 24, 1, 250, 150, 80, 1, 0,
     8, 2048},
    {"long", "12 questions of 30 tokens about 2 documents of 1600, answers of 20", 12, 2, 1600, 30, 20, 1, 0,
     4, 2048},
    {"chat", "8 conversations of 4 turns: 60 tokens, then 40 more each, answers of 80", 8, 1, 20, 40, 80, 4,
     40, 8, 2048},
    /* published traces of coding agents: a median of 33 turns, 131 prompt tokens per
     * answered one, an ideal hit rate of 94.2% */
    {"agents",
     "4 coding agents of 33 turns: a task of 74 tokens, 74 of a tool's output a turn, answers of 11", 4, 1, 0,
     74, 11, 33, 74, 4, 2048},
    {"unique", "24 prompts of 300 tokens with nothing in common, answers of 60", 24, 1, 0, 300, 60, 1, 0, 8,
     2048},
};
enum { N_SHAPES = (int)(sizeof shapes / sizeof *shapes) };

const char *workload_name(int32_t i) {
    return i < N_SHAPES ? shapes[i].name : NULL;
}

static void build(const shape *s, int32_t n_vocab, workload *w) {
    for (int32_t turn = 0; turn < s->n_turns; turn++) {
        for (int32_t i = 0; i < s->n; i++) {
            part own = {OWN + turn * s->n + i, turn == 0 ? s->own_tokens : s->turn_tokens},
                 shared = {1 + i % s->n_shared, s->shared_tokens};
            workload_add(w, n_vocab, turn == 0 ? shared : NOTHING, i < s->n_shared, own, s->output,
                         turn == 0 ? -1 : w->n - s->n);
        }
    }
}

quire_err workload_make(const char *name, int32_t n_vocab, workload *out, quire_error *err) {
    for (int i = 0; i < N_SHAPES; i++) {
        const shape *s = &shapes[i];
        if (strcmp(s->name, name) != 0) {
            continue;
        }
        *out = (workload){.name = s->name, .line = s->line, .max_seqs = s->max_seqs, .max_rows = s->max_rows};
        out->requests = mem_new(WORKLOAD_REQUESTS, sizeof *out->requests);
        out->tokens = mem_new(WORKLOAD_TOKENS, sizeof *out->tokens);
        if (out->requests == NULL || out->tokens == NULL) {
            workload_free(out);
            return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for workload %s", name);
        }
        build(s, n_vocab, out);
        return QUIRE_OK;
    }
    return err_set(err, QUIRE_INVALID, -1, "%s: no such workload; there are " WORKLOAD_NAMES, name);
}

void workload_free(workload *w) {
    mem_free(w->requests);
    mem_free(w->tokens);
    *w = (workload){0};
}
