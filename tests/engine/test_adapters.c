/* Adapters: logits and tokens under one are the same bits alone, beside others, beside
 * the base, in any order, after it was freed and loaded again, through the prefix cache,
 * samples, preemption by both ways, drafts and tiers; the base's rows are those of an
 * engine without adapters. */
#define _DEFAULT_SOURCE /* mkdtemp */

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "harness.h"
#include "model/model_adapter.h"
#include "test.h"

enum { N_PROMPT = 70, N_NEW = 16, N_STRANGERS = 5, RANK = 4, N_ADAPTERS = 3 };

static int32_t prompt[N_PROMPT];
static char root[] = "/tmp/quire-test-adapters-XXXXXX";

/* ---- files ---- */

/* Writes a PEFT directory that changes the outputs of attention and their queries. */
static void write_adapter(const char *dir, const model_desc *d, uint64_t seed) {
    char path[128], header[8192];
    const layer_desc *l = desc_attention_layer(d);
    size_t n = 0, at = 0, rank = RANK, width = (size_t)d->d_model,
           heads = (size_t)l->n_heads * (size_t)d->caches[l->caches[0]].d_key;
    const struct {
        const char *name;
        size_t n_in, n_out;
    } linears[] = {{"q_proj", width, heads}, {"o_proj", heads, width}};
    n += (size_t)snprintf(header, sizeof header, "{");
    for (int32_t i = 0; i < d->n_layers && i < 8; i++) {
        for (int k = 0; k < 4; k++) {
            size_t rows = k % 2 == 0 ? rank : linears[k / 2].n_out,
                   columns = k % 2 == 0 ? linears[k / 2].n_in : rank;
            n += (size_t)snprintf(header + n, sizeof header - n,
                                  "%s\"base_model.model.model.layers.%d.self_attn.%s.lora_%c.weight\":{"
                                  "\"dtype\":"
                                  "\"F32\",\"shape\":[%zu,%zu],\"data_offsets\":[%zu,%zu]}",
                                  n > 1 ? "," : "", (int)i, linears[k / 2].name, k % 2 == 0 ? 'A' : 'B', rows,
                                  columns, at, at + rows * columns * sizeof(float));
            at += rows * columns * sizeof(float);
        }
    }
    n += (size_t)snprintf(header + n, sizeof header - n, "}");
    assert_true(n < sizeof header);
    assert_int_equal(mkdir(dir, 0700), 0);
    (void)snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    uint64_t n_header = n;
    assert_int_equal(fwrite(&n_header, sizeof n_header, 1, f), 1);
    assert_int_equal(fwrite(header, 1, n, f), n);
    for (size_t i = 0; i < at / sizeof(float); i++) {
        float x = (float)((double)(rng_next(&seed) % 2001) / 1000.0 - 1.0) * 0.3f;
        assert_int_equal(fwrite(&x, sizeof x, 1, f), 1);
    }
    (void)fclose(f);
    (void)snprintf(path, sizeof path, "%s/adapter_config.json", dir);
    f = fopen(path, "w");
    assert_non_null(f);
    (void)fprintf(
        f, "{\"peft_type\":\"LORA\",\"r\":%d,\"lora_alpha\":%d,\"target_modules\":[\"q_proj\",\"o_proj\"]}",
        RANK, RANK);
    (void)fclose(f);
}

static void path_of(int i, char out[64]) {
    (void)snprintf(out, 64, "%s/%d", root, i);
}

/* The adapters of an open engine. */
typedef struct loaded {
    model_adapter own[N_ADAPTERS];
    adapter_ref refs[N_ADAPTERS];
} loaded;

static void load_one(const harness *h, loaded *l, int i) {
    const adapter_limits limits = {.max_rank = 16, .max_bytes = 1 << 24};
    quire_error err = {0};
    char path[64];
    path_of(i, path);
    l->own[i] = (model_adapter){0};
    if (model_adapter_open(h->m, h->b, path, &limits, &l->own[i], &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    l->refs[i] = (adapter_ref){.weights = l->own[i].weights, .rank = l->own[i].rank};
    atomic_store(&l->refs[i].holders, 1);
}

static void drop_one(const harness *h, loaded *l, int i) {
    assert_int_equal(atomic_load(&l->refs[i].holders), 1); /* every request has given its own back */
    model_adapter_close(h->b, &l->own[i]);
}

/* ---- one way ---- */

typedef struct way {
    harness_options o;
    int own;      /* the adapter; -1: the base */
    int32_t from; /* its first position */
    int32_t n_strangers;
    bool reloads;  /* it is freed and loaded again first */
    bool repeats;  /* the same request ran before, and left its pages */
    bool is_first; /* it is submitted before the strangers */
} way;

typedef struct outcome {
    float *logits;
    size_t n_bytes;
    int32_t tokens[N_NEW];
    int32_t n_cached, n_preempted;
} outcome;

static const char *name_of(int i) {
    static const char *const names[] = {"base", "adapter 0", "adapter 1", "adapter 2"};
    return names[i + 1];
}

static void submit_strangers(harness *h, const way *w, loaded *l, harness_run *runs) {
    for (int32_t i = 0; i < w->n_strangers; i++) {
        int k = i % (N_ADAPTERS + 1) - 1;
        bool has = k >= 0 && w->o.max_adapters > 0;
        runs[i] = (harness_run){.prompt = prompt,
                                .n_prompt = 20 + 9 * i,
                                .sampling = greedy(8 + 3 * i),
                                .adapter = has ? &l->refs[k] : NULL,
                                .namespace = name_of(has ? k : -1)};
        harness_submit(h, &runs[i]);
    }
}

static void run_way(const way *w, outcome *out) {
    static harness_run runs[N_STRANGERS + 2];
    static loaded l;
    harness h = {0};
    memset(runs, 0, sizeof runs);
    harness_open(&w->o, &h);
    for (int i = 0; i < N_ADAPTERS && w->o.max_adapters > 0; i++) {
        load_one(&h, &l, i);
    }
    if (w->reloads) {
        drop_one(&h, &l, w->own);
        load_one(&h, &l, w->own);
    }
    *out = (outcome){.n_bytes = (size_t)N_PROMPT * (size_t)h.n_vocab * sizeof(float)};
    out->logits = mem_new(1, out->n_bytes);
    harness_run *own = &runs[N_STRANGERS];
    *own = (harness_run){.prompt = prompt,
                         .n_prompt = N_PROMPT,
                         .sampling = greedy(N_NEW),
                         .adapter = w->own >= 0 ? &l.refs[w->own] : NULL,
                         .adapter_from = w->from,
                         .namespace = name_of(w->from > 0 ? -1 : w->own)};
    harness_run *before = &runs[N_STRANGERS + 1];
    if (w->repeats) {
        *before = *own;
        harness_submit(&h, before);
        harness_wait(&h, 1);
    } else {
        own->logits = out->logits;
    }
    if (w->is_first) {
        harness_submit(&h, own);
    }
    submit_strangers(&h, w, &l, runs);
    if (!w->is_first) {
        harness_submit(&h, own);
    }
    harness_wait(&h, w->n_strangers + 1);
    assert_int_equal(own->finish, FINISH_LENGTH);
    memcpy(out->tokens, own->tokens, sizeof out->tokens);
    out->n_cached = own->n_cached;
    out->n_preempted = own->n_preempted;
    engine_stop(h.e);
    for (int i = 0; i < N_ADAPTERS && w->o.max_adapters > 0; i++) {
        drop_one(&h, &l, i);
    }
    harness_close(&h);
}

static bool same(const outcome *a, const outcome *b, bool with_logits) {
    return memcmp(a->tokens, b->tokens, sizeof a->tokens) == 0 &&
           (!with_logits || memcmp(a->logits, b->logits, a->n_bytes) == 0);
}

static void expect(const outcome *base, const way *w, const char *what) {
    outcome other;
    run_way(w, &other);
    if (!same(base, &other, !w->repeats)) {
        fail_msg("%s under %s: other bits", what, name_of(w->own));
    }
    if (w->repeats) {
        assert_true(other.n_cached >= N_PROMPT - 16);
    }
    mem_free(other.logits);
}

static way usual(int own) {
    way w = {.o = harness_defaults, .own = own};
    w.o.max_adapters = N_ADAPTERS;
    return w;
}

static void all_ways(compute_mode compute, int own) {
    outcome alone;
    way w = usual(own);
    w.o.compute = compute;
    run_way(&w, &alone);
    w.n_strangers = N_STRANGERS;
    expect(&alone, &w, "beside others");
    w.is_first = true;
    expect(&alone, &w, "before others");
    w.o.chunk = 7;
    w.o.n_threads = 2;
    expect(&alone, &w, "in chunks, on two threads");
    w.o.max_adapters = 2; /* others wait for a slot */
    expect(&alone, &w, "with two slots");
    w = usual(own);
    w.o.compute = compute;
    w.repeats = true;
    expect(&alone, &w, "from the prefix cache");
    w = usual(own);
    w.o.compute = compute;
    w.reloads = own >= 0;
    w.n_strangers = 2;
    expect(&alone, &w, "loaded again");
    mem_free(alone.logits);
}

TEST(logits_under_an_adapter_do_not_depend_on_how_they_were_run) {
    all_ways(COMPUTE_F32, 0);
    all_ways(COMPUTE_INT8, 1);
}

TEST(the_bases_rows_are_those_of_an_engine_without_adapters) {
    outcome without, with, other;
    way w = {.o = harness_defaults, .own = -1};
    run_way(&w, &without);
    w = usual(-1);
    w.n_strangers = N_STRANGERS;
    run_way(&w, &with);
    assert_true(same(&without, &with, true));
    w.own = 0;
    run_way(&w, &other);
    assert_false(same(&without, &other, true)); /* the adapter does something */
    mem_free(without.logits);
    mem_free(with.logits);
    mem_free(other.logits);
}

TEST(few_pages_preempt_and_change_no_bit) {
    for (preempt_mode mode = PREEMPT_RECOMPUTE; mode <= PREEMPT_SWAP; mode++) {
        outcome alone;
        way w = usual(1);
        run_way(&w, &alone);
        w.n_strangers = N_STRANGERS;
        w.is_first = false;
        w.o.n_pages = 12;
        w.o.preempt = mode;
        w.o.swap_bytes = mode == PREEMPT_SWAP ? 1 << 24 : 0;
        expect(&alone, &w, mode == PREEMPT_SWAP ? "swapped" : "computed again");
        mem_free(alone.logits);
    }
}

TEST(drafts_are_verified_under_the_adapter) {
    outcome alone;
    way w = usual(2);
    run_way(&w, &alone);
    w.o.draft =
        (draft_options){.method = DRAFT_METHOD_NGRAM, .n_tokens = 5, .lookup_min = 1, .lookup_max = 4};
    w.n_strangers = 3;
    expect(&alone, &w, "with drafts");
    mem_free(alone.logits);
}

/* ---- activated adapters ---- */

TEST(rows_before_the_invocation_are_the_bases_and_share_its_pages) {
    outcome base, cold;
    const int32_t from = 48;
    way w = usual(-1);
    run_way(&w, &base);
    w.own = 0;
    w.from = from;
    run_way(&w, &cold);
    size_t row = base.n_bytes / N_PROMPT;
    assert_memory_equal(base.logits, cold.logits, (size_t)from * row);
    assert_memory_not_equal((char *)base.logits + (size_t)from * row,
                            (char *)cold.logits + (size_t)from * row, row);
    /* behind a base request of the same prompt, and then behind itself */
    static harness_run runs[4];
    static loaded l;
    harness h = {0};
    memset(runs, 0, sizeof runs);
    harness_open(&w.o, &h);
    load_one(&h, &l, 0);
    for (int i = 0; i < 4; i++) {
        bool has = i == 1 || i == 2;
        runs[i] = (harness_run){.prompt = prompt,
                                .n_prompt = N_PROMPT,
                                .sampling = greedy(N_NEW),
                                .adapter = has ? &l.refs[0] : NULL,
                                .adapter_from = has ? from : 0,
                                .namespace = name_of(-1)};
        harness_submit(&h, &runs[i]);
        harness_wait(&h, 1);
        assert_memory_equal(runs[i].tokens, has ? cold.tokens : base.tokens, sizeof cold.tokens);
    }
    assert_int_equal(runs[1].n_cached, from);
    assert_int_equal(runs[2].n_cached, from); /* what it computed itself is nobody's */
    assert_true(runs[3].n_cached >= N_PROMPT - 1);
    engine_stop(h.e);
    drop_one(&h, &l, 0);
    harness_close(&h);
    mem_free(base.logits);
    mem_free(cold.logits);
}

static int set_up(void **state) {
    (void)state;
    harness h = {0};
    uint64_t seed = 11;
    assert_non_null(mkdtemp(root));
    harness_open(&harness_defaults, &h);
    random_prompt(&seed, h.n_vocab, N_PROMPT, prompt);
    for (int i = 0; i < N_ADAPTERS; i++) {
        char path[64];
        path_of(i, path);
        write_adapter(path, model_description(h.m), 100 + (uint64_t)i);
    }
    harness_close(&h);
    return 0;
}

static int tear_down(void **state) {
    char command[64];
    (void)state;
    (void)snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_under_an_adapter_do_not_depend_on_how_they_were_run),
        cmocka_unit_test(the_bases_rows_are_those_of_an_engine_without_adapters),
        cmocka_unit_test(few_pages_preempt_and_change_no_bit),
        cmocka_unit_test(drafts_are_verified_under_the_adapter),
        cmocka_unit_test(rows_before_the_invocation_are_the_bases_and_share_its_pages),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
