/* Sequences that share pages have their common chunks computed together (core/batch.h):
 * what that saves is counted, and every bit stays as it is without. */
#include <stdio.h>

#include "backend/cpu/cpu.h"
#include "engine/beam_world.h"
#include "test.h"

enum { N_RUNS = 6, SHARED = 520, LONGEST = SHARED + 300, N_NEW = 40, N_LOGITS = 3, WINDOW = 300 };

static int32_t prompts[N_RUNS][LONGEST];

/* ---- what attention reads ---- */

static const backend_ops *inner;
static backend_ops counted;
static int64_t n_read; /* positions, over all layers; the engine thread's while a harness is open */
static bool windowed;

static void counted_attention(backend *b, int32_t layer, buffer q, const attn_spec *spec, buffer out) {
    attn_spec s = *spec;
    s.window = windowed && layer % 2 == 0 ? WINDOW : 0;
    n_read += batch_read_tokens(((const cpu_backend *)b)->batch);
    inner->attention(b, layer, q, &s, out);
}

static const backend_ops *count_reads(const backend_ops *ops, const model_desc *d) {
    (void)d;
    inner = ops;
    counted = *inner;
    counted.attention = counted_attention;
    return &counted;
}

/* Opens with every other layer windowed, if o cuts its pages so. */
static void open_counted(const harness_options *o, bool no_cascade, harness *h) {
    harness_options way = *o;
    way.no_cascade = no_cascade;
    way.starts_paused = true; /* all together: who comes first computes what the others wait for */
    way.path = "models/builtin-small.gguf";
    way.wrap = count_reads;
    n_read = 0;
    windowed = o->layer_kinds != NULL;
    *h = (harness){0};
    harness_open(&way, h);
}

/* ---- requests after a cached prefix ---- */

typedef struct outcome {
    harness_run runs[N_RUNS]; /* logits: of the last N_LOGITS positions of each prompt */
    int32_t n_vocab;
    int64_t n_read, preemptions;
} outcome;

/* All share SHARED tokens, half of them 260 more: two levels of whole chunks. */
static int32_t prompt_length(int32_t i) {
    return i % 2 == 0 ? SHARED + 9 + i : SHARED + 265 + i;
}

static void run_cached(const harness_options *o, bool no_cascade, outcome *out) {
    harness h;
    open_counted(o, no_cascade, &h);
    for (int32_t i = 0; i < N_RUNS; i++) {
        int32_t n = prompt_length(i);
        out->runs[i] = (harness_run){
            .prompt = prompts[i], .n_prompt = n, .sampling = greedy(N_NEW), .logits_first = n - N_LOGITS};
        out->runs[i].logits = mem_new((size_t)n * (size_t)h.n_vocab, sizeof(float));
        harness_submit(&h, &out->runs[i]);
    }
    engine_release(h.e);
    harness_wait(&h, N_RUNS);
    out->preemptions = harness_idle_stats(&h).preemptions;
    out->n_vocab = h.n_vocab;
    out->n_read = n_read;
    harness_close(&h);
}

static void same_run(const harness_run *a, const harness_run *b, int32_t n_vocab, const char *what) {
    size_t first = (size_t)a->logits_first * (size_t)n_vocab, n = N_LOGITS * (size_t)n_vocab;
    assert_int_equal(a->finish, FINISH_LENGTH);
    assert_int_equal(b->finish, FINISH_LENGTH);
    if (memcmp(a->tokens, b->tokens, N_NEW * sizeof *a->tokens) != 0 ||
        memcmp(a->logits + first, b->logits + first, n * sizeof(float)) != 0) {
        fail_msg("%s: a prompt of %d tokens got other bits", what, (int)a->n_prompt);
    }
}

/* Runs both ways: the same bits, and a part of what is read. Returns how often a sequence
 * was preempted. */
static int64_t both_ways(const harness_options *o, double part, const char *what) {
    static outcome with, without;
    run_cached(o, true, &without);
    run_cached(o, false, &with);
    for (int32_t i = 0; i < N_RUNS; i++) {
        same_run(&with.runs[i], &without.runs[i], with.n_vocab, what);
        mem_free(with.runs[i].logits);
        mem_free(without.runs[i].logits);
    }
    print_message("%s: %lld positions read, %lld without\n", what, (long long)with.n_read,
                  (long long)without.n_read);
    assert_true((double)with.n_read < part * (double)without.n_read);
    return with.preemptions;
}

TEST(requests_behind_a_cached_prefix_read_it_once_and_keep_their_bits) {
    harness_options o = harness_defaults;
    (void)both_ways(&o, 0.5, "f32");
    o.n_threads = 2;
    o.page_tokens = 256;
    o.n_pages = 64;
    o.compute = COMPUTE_INT8;
    o.kv = DTYPE_BF16;
    (void)both_ways(&o, 0.5, "int8, pages of 256");
    o.page_tokens = 1;
    o.n_pages = 16384;
    o.chunk = 7;
    (void)both_ways(&o, 0.6, "pages of 1, chunks of 7");
}

TEST(preempted_sequences_keep_their_bits) {
    harness_options o = harness_defaults;
    o.n_pages = (SHARED + 260) / o.page_tokens + 14;
    assert_in_range(both_ways(&o, 0.6, "few pages"), 1, INT32_MAX);
}

TEST(drafts_are_verified_with_the_same_bits) {
    harness_options o = harness_defaults;
    o.draft = (draft_options){.method = DRAFT_METHOD_NGRAM, .n_tokens = 4, .lookup_min = 1, .lookup_max = 3};
    (void)both_ways(&o, 0.6, "drafts");
}

/* Every other layer forgets what its window has left behind, at another page for each
 * length: what all have forgotten is shared, what some have is not. */
TEST(windows_keep_their_bits) {
    static layer_kind kinds[DESC_MAX_LAYERS];
    harness_options o = harness_defaults;
    for (int i = 0; i < DESC_MAX_LAYERS; i++) {
        kinds[i] = i % 2 == 0 ? LAYER_WINDOW : LAYER_FULL;
    }
    o.layer_kinds = kinds;
    o.window = WINDOW;
    (void)both_ways(&o, 0.7, "windows");
}

/* ---- samples and beams of one prompt ---- */

TEST(samples_share_their_prompt_and_keep_their_tokens) {
    static harness_run runs[2][4];
    int64_t read[2];
    for (int way = 0; way < 2; way++) {
        harness h;
        harness_options o = harness_defaults;
        quire_error err = {0};
        void *users[4];
        request_id ids[4];
        o.prefix_cache = PREFIX_CACHE_NONE;
        open_counted(&o, way == 1, &h);
        engine_request r = {.tokens = (int32_t *)mem_dup(prompts[0], SHARED * sizeof(int32_t)),
                            .n_tokens = SHARED,
                            .sampling = greedy(N_NEW),
                            .namespace = "test",
                            .n_namespace = 4,
                            .out = h.out};
        r.sampling.temperature = 1.0f;
        for (int i = 0; i < 4; i++) {
            users[i] = &runs[way][i];
        }
        assert_int_equal(engine_submit_samples(h.e, &r, 4, users, ids, &err), QUIRE_OK);
        engine_release(h.e);
        harness_wait(&h, 4);
        read[way] = n_read;
        harness_close(&h);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(runs[0][i].n_tokens, N_NEW);
        assert_memory_equal(runs[0][i].tokens, runs[1][i].tokens, N_NEW * sizeof(int32_t));
    }
    assert_true(read[0] < read[1] / 2);
}

TEST(beams_share_their_prompt_and_keep_their_results) {
    static search searches[2];
    int64_t read[2];
    for (int way = 0; way < 2; way++) {
        harness h;
        harness_options o = harness_defaults;
        o.max_rows = 512;
        open_counted(&o, way == 1, &h);
        search_init(&searches[way], &h, 7, 300, 4, 20);
        engine_release(h.e);
        search_run(&h, &searches[way]);
        read[way] = n_read;
        harness_close(&h);
    }
    assert_same_results(&searches[0], &searches[1]);
    assert_true(read[0] < read[1]);
}

int main(void) {
    uint64_t seed = rng_os_seed();
    printf("seed %llu\n", (unsigned long long)seed);
    int32_t shared[LONGEST];
    random_prompt(&seed, 256, LONGEST, shared);
    for (int32_t i = 0; i < N_RUNS; i++) {
        int32_t n = i % 2 == 0 ? SHARED : SHARED + 260;
        random_prompt(&seed, 256, LONGEST, prompts[i]);
        memcpy(prompts[i], shared, sizeof *shared * (size_t)n);
    }
    return tests_run(NULL, NULL);
}
