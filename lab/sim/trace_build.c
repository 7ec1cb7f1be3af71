#include "lab/sim/trace_build.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/str.h"

struct named {
    size_t at, n; /* in bytes */
    uint64_t hash;
};

enum { MAX_NAMES = 1 << 30, FIRST_SLOTS = 64 };

/* FNV-1a, with the upper bits folded in, as the slots take the lower ones. */
static uint64_t hash_of(str name) {
    uint64_t h = str_hash(STR_HASH_START, name);
    return h ^ h >> 32;
}

/* Where name stands, or would. */
static size_t slot_of(const numbering *g, str name, uint64_t hash) {
    size_t i = hash & (g->n_slots - 1);
    for (; g->slots[i] != 0; i = (i + 1) & (g->n_slots - 1)) {
        const struct named *other = &g->names[g->slots[i] - 1];
        if (other->hash == hash && str_eq((str){g->bytes.p + other->at, other->n}, name)) {
            break;
        }
    }
    return i;
}

static quire_err double_slots(numbering *g) {
    size_t n_slots = g->n_slots == 0 ? FIRST_SLOTS : 2 * g->n_slots;
    int32_t *slots = mem_new(n_slots, sizeof *slots);
    if (slots == NULL) {
        return QUIRE_NO_MEMORY;
    }
    for (int32_t number = 0; number < g->n; number++) {
        size_t i = g->names[number].hash & (n_slots - 1);
        while (slots[i] != 0) {
            i = (i + 1) & (n_slots - 1);
        }
        slots[i] = number + 1;
    }
    mem_free(g->slots);
    g->slots = slots;
    g->n_slots = n_slots;
    return QUIRE_OK;
}

quire_err numbering_of(numbering *g, str name, int32_t *out) {
    if ((size_t)g->n + 1 > g->n_slots / 2) {
        TRY(double_slots(g));
    }
    uint64_t hash = hash_of(name);
    size_t slot = slot_of(g, name, hash);
    if (g->slots[slot] == 0) {
        TRY(mem_grow(&g->names, &g->cap_names, (size_t)g->n + 1, sizeof *g->names));
        if (g->n == MAX_NAMES) {
            return QUIRE_TOO_LARGE;
        }
        size_t at = g->bytes.n;
        TRY(strbuf_add(&g->bytes, name.p, name.n));
        g->names[g->n] = (struct named){at, name.n, hash};
        g->slots[slot] = ++g->n;
    }
    *out = g->slots[slot] - 1;
    return QUIRE_OK;
}

void numbering_deinit(numbering *g) {
    strbuf_deinit(&g->bytes);
    mem_free(g->names);
    mem_free(g->slots);
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
