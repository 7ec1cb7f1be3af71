#include "lab/sim/trace_build.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/str.h"

struct named {
    size_t at, n; /* in bytes */
};

enum { MAX_NAMES = 1 << 30 };

quire_err numbering_of(numbering *g, str name, int32_t *out) {
    uint32_t hash = (uint32_t)str_hash(STR_HASH_START, name);
    HASH_INDEX_EACH(&g->index, hash, i) {
        if (str_eq((str){g->bytes.p + g->names[i].at, g->names[i].n}, name)) {
            *out = (int32_t)i;
            return QUIRE_OK;
        }
    }
    if (g->n == MAX_NAMES) {
        return QUIRE_TOO_LARGE;
    }
    TRY(mem_grow(&g->names, &g->cap_names, (size_t)g->n + 1, sizeof *g->names));
    size_t at = g->bytes.n;
    TRY(strbuf_add(&g->bytes, name.p, name.n));
    TRY(hash_index_add(&g->index, hash, (uint32_t)g->n));
    g->names[g->n] = (struct named){at, name.n};
    *out = g->n++;
    return QUIRE_OK;
}

void numbering_deinit(numbering *g) {
    strbuf_deinit(&g->bytes);
    mem_free(g->names);
    hash_index_deinit(&g->index);
    *g = (numbering){0};
}

#define MAX_TEXT_TOKENS ((int64_t)INT32_MAX + 1) /* negative ids */

void trace_build_deinit(trace_builder *b) {
    numbering_deinit(&b->names);
    numbering_deinit(&b->tenants);
    mem_free(b->text_of);
    mem_free(b->lengths);
    mem_free(b->requests);
    mem_free(b->runs);
    *b = (trace_builder){0};
}

quire_err trace_build_start(trace_builder *b, int64_t arrival_us, str tenant) {
    b->now = (trace_request){.arrival_us = arrival_us, .first_run = (int64_t)b->n_runs};
    b->in_answer = false;
    return numbering_of(&b->tenants, tenant, &b->now.tenant);
}

/* Counts n more tokens to the prompt or the answer. */
static quire_err trace_build_count(trace_builder *b, int32_t n) {
    int32_t *sum = b->in_answer ? &b->now.n_output : &b->now.n_prompt;
    if (n > TRACE_MAX_TOKENS - *sum) {
        return QUIRE_TOO_LARGE;
    }
    *sum += n;
    return QUIRE_OK;
}

static quire_err add_run(trace_builder *b, int32_t first, int32_t n) {
    void *runs = b->runs;
    quire_err e = mem_grow(&runs, &b->cap_runs, b->n_runs + 1, sizeof *b->runs);
    b->runs = runs;
    TRY(e);
    b->runs[b->n_runs++] = (trace_run){first, n};
    b->now.n_runs++;
    return QUIRE_OK;
}

static quire_err new_text(trace_builder *b, int32_t *out) {
    void *lengths = b->lengths;
    quire_err e = b->n_texts == INT32_MAX
                      ? QUIRE_TOO_LARGE
                      : mem_grow(&lengths, &b->cap_lengths, (size_t)b->n_texts + 1, sizeof *b->lengths);
    b->lengths = lengths;
    TRY(e);
    b->lengths[b->n_texts] = 0;
    *out = b->n_texts++;
    return QUIRE_OK;
}

/* The first n tokens of a text. */
static quire_err add_text(trace_builder *b, int32_t text, int32_t n) {
    TRY(trace_build_count(b, n));
    b->lengths[text] = n > b->lengths[text] ? n : b->lengths[text];
    return n > 0 ? add_run(b, -1 - text, n) : QUIRE_OK;
}

quire_err trace_build_text(trace_builder *b, text_kind kind, str name, int32_t n) {
    char key[256];
    if (name.n >= sizeof key) {
        return QUIRE_TOO_LARGE;
    }
    key[0] = (char)kind;
    memcpy(key + 1, name.p, name.n);
    int32_t before = b->names.n, number;
    void *text_of = b->text_of;
    quire_err e = mem_grow(&text_of, &b->cap_text_of, (size_t)before + 1, sizeof *b->text_of);
    b->text_of = text_of;
    TRY(e);
    TRY(numbering_of(&b->names, (str){key, name.n + 1}, &number));
    if (number == before) {
        TRY(new_text(b, &b->text_of[number]));
    }
    return add_text(b, b->text_of[number], n);
}

quire_err trace_build_new(trace_builder *b, int32_t n) {
    int32_t text;
    TRY(new_text(b, &text));
    return add_text(b, text, n);
}

quire_err trace_build_token(trace_builder *b, int32_t id) {
    TRY(trace_build_count(b, 1));
    return add_run(b, id, 1);
}

void trace_build_answer(trace_builder *b) {
    b->in_answer = true;
}

quire_err trace_build_end(trace_builder *b) {
    if (b->now.n_prompt == 0) {
        return QUIRE_INVALID;
    }
    void *requests = b->requests;
    quire_err e = b->n_requests == INT32_MAX
                      ? QUIRE_TOO_LARGE
                      : mem_grow(&requests, &b->cap_requests, (size_t)b->n_requests + 1, sizeof *b->requests);
    b->requests = requests;
    TRY(e);
    b->requests[b->n_requests++] = b->now;
    return QUIRE_OK;
}

/* By arrival, then as in the file, which is the order of their runs. */
static int by_arrival(const void *a, const void *b) {
    const trace_request *x = a, *y = b;
    if (x->arrival_us != y->arrival_us) {
        return x->arrival_us < y->arrival_us ? -1 : 1;
    }
    return (x->first_run > y->first_run) - (x->first_run < y->first_run);
}

quire_err trace_build_finish(trace_builder *b, trace *out) {
    int64_t n_ids = 0;
    for (int32_t text = 0; text < b->n_texts; text++) {
        int64_t n = b->lengths[text];
        b->lengths[text] = (int32_t)(INT32_MIN + n_ids); /* its first id, from here on */
        n_ids += n;
        if (n_ids > MAX_TEXT_TOKENS) {
            return QUIRE_TOO_LARGE;
        }
    }
    for (size_t i = 0; i < b->n_runs; i++) {
        if (b->runs[i].first < 0) {
            b->runs[i].first = b->lengths[-1 - b->runs[i].first];
        }
    }
    trace t = {
        .requests = b->requests, .runs = b->runs, .n_requests = b->n_requests, .n_tenants = b->tenants.n};
    for (int32_t i = 0; i < t.n_requests; i++) {
        const trace_request *r = &t.requests[i];
        t.n_prompt_tokens += r->n_prompt;
        t.n_output_tokens += r->n_output;
        t.longest = r->n_prompt + r->n_output > t.longest ? r->n_prompt + r->n_output : t.longest;
    }
    if (t.n_requests > 0) {
        qsort(t.requests, (size_t)t.n_requests, sizeof *t.requests, by_arrival);
    }
    b->requests = NULL;
    b->runs = NULL;
    trace_build_deinit(b);
    *out = t;
    return QUIRE_OK;
}

/* ---- what a trace tells ---- */

void trace_deinit(trace *t) {
    mem_free(t->requests);
    mem_free(t->runs);
    *t = (trace){0};
}

/* Shortens the runs of one request; its prompt's come first, and none holds tokens of
 * both prompt and answer. */
static void shrink_request(trace *t, trace_request *r, int32_t by) {
    int32_t n_prompt = r->n_prompt, seen = 0;
    r->n_prompt = r->n_output = 0;
    for (int32_t i = 0; i < r->n_runs; i++) {
        trace_run *run = &t->runs[r->first_run + i];
        bool in_prompt = seen < n_prompt;
        seen += run->n;
        run->n = (run->n + by - 1) / by;
        *(in_prompt ? &r->n_prompt : &r->n_output) += run->n;
    }
}

void trace_shrink(trace *t, int32_t by) {
    t->n_prompt_tokens = t->n_output_tokens = t->longest = 0;
    for (int32_t i = 0; i < t->n_requests; i++) {
        trace_request *r = &t->requests[i];
        shrink_request(t, r, by);
        t->n_prompt_tokens += r->n_prompt;
        t->n_output_tokens += r->n_output;
        t->longest = r->n_prompt + r->n_output > t->longest ? r->n_prompt + r->n_output : t->longest;
    }
}

void trace_tokens(const trace *t, const trace_request *r, int32_t *out) {
    const trace_run *runs = t->runs + r->first_run;
    for (int32_t i = 0; i < r->n_runs; i++) {
        for (int32_t j = 0; j < runs[i].n; j++) {
            *out++ = runs[i].first + j;
        }
    }
}

int32_t trace_token_of(int32_t id, int32_t n_vocab) {
    uint64_t z = (uint64_t)(uint32_t)id * 0x9e3779b97f4a7c15u;
    z ^= z >> 32;
    return (int32_t)(z * 0xd6e8feb86659fd93u >> 33) % n_vocab;
}
