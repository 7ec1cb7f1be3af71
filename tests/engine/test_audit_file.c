/* The audit file: every allocation has its line, and the lines add up. */
#include <stdio.h>
#include <unistd.h>

#include "harness.h"
#include "seed.h"

static harness_options small_model;
static char path[] = "/tmp/quire-audit-XXXXXX";

typedef struct line {
    long long step, request, rows, pages, live, reserved, wasted, shared, cached, free, own_live,
        own_reserved, own_wasted, own_shared;
} line;

static int read_lines(line *out, int cap) {
    FILE *f = fopen(path, "r");
    char text[1024];
    int n = 0;
    assert_non_null(f);
    while (fgets(text, sizeof text, f)) {
        line l;
        int got = sscanf(text,
                         "{\"step\":%lld,\"request\":%lld,\"rows\":%lld,\"pages\":%lld,\"live_bytes\":%lld,"
                         "\"reserved_bytes\":%lld,\"wasted_bytes\":%"
                         "lld,"
                         "\"shared_bytes\":%lld,\"cached_bytes\":%lld,\"free_bytes\":%lld,\"of_request\":{"
                         "\"live_bytes\":%lld,\"reserved_bytes\":%lld,"
                         "\"wasted_bytes\":%lld,\"shared_bytes\":%lld}}",
                         &l.step, &l.request, &l.rows, &l.pages, &l.live, &l.reserved, &l.wasted, &l.shared,
                         &l.cached, &l.free, &l.own_live, &l.own_reserved, &l.own_wasted, &l.own_shared);
        assert_int_equal(got, 14);
        assert_true(n < cap);
        out[n++] = l;
    }
    fclose(f);
    return n;
}

/* 40 tokens at page 16, then 30 more: pages are taken with the prompt, and at the tokens
 * that begin one. */
TEST(a_lone_request_takes_a_page_every_16_tokens) {
    harness h = {0};
    harness_options o = small_model;
    int32_t prompt[40];
    line l[16];
    o.audit_path = path;
    harness_open(&o, &h);
    long long page = h.layout.page_bytes, token = kv_layout_token_bytes(&h.layout), pool = o.n_pages * page;
    random_prompt(&seed, h.n_vocab, 40, prompt);
    harness_run r = {.prompt = prompt, .n_prompt = 40, .sampling = greedy(31)};
    harness_submit(&h, &r);
    harness_wait(&h, 1);
    harness_close(&h);
    int n = read_lines(l, 16);
    static const int tokens[] = {40, 49, 65}, pages[] = {3, 4, 5};
    assert_int_equal(n, 3);
    for (int i = 0; i < n; i++) {
        assert_int_equal(l[i].pages, i == 0 ? 3 : 1);
        assert_int_equal(l[i].rows, i == 0 ? 40 : 1);
        assert_int_equal(l[i].live, tokens[i] * token);
        assert_int_equal(l[i].reserved, pages[i] * page);
        assert_int_equal(l[i].wasted, l[i].reserved - l[i].live);
        assert_int_equal(l[i].free, pool - l[i].reserved);
        assert_int_equal(l[i].cached + l[i].shared, 0);
        assert_int_equal(l[i].own_live, l[i].live);
        assert_int_equal(l[i].own_reserved, l[i].reserved);
    }
}

TEST(the_bytes_of_many_requests_add_up) {
    enum { N = 24 };
    harness h = {0};
    harness_options o = small_model;
    static int32_t prompts[N][100];
    static harness_run runs[N];
    static line l[4096];
    o.audit_path = path;
    o.n_pages = 60; /* evictions and preemptions too */
    o.starts_paused = true;
    harness_open(&o, &h);
    long long pool = o.n_pages * h.layout.page_bytes;
    random_prompt(&seed, h.n_vocab, 100, prompts[0]);
    for (int i = 0; i < N; i++) {
        memcpy(prompts[i], prompts[0], sizeof prompts[i]);
        random_prompt(&seed, h.n_vocab, 60, prompts[i] + 40);
        runs[i] = (harness_run){.prompt = prompts[i], .n_prompt = 45 + i, .sampling = greedy(40)};
        harness_submit(&h, &runs[i]);
    }
    harness_wait(&h, N);
    harness_close(&h);
    int n = read_lines(l, 4096), n_shared = 0;
    bool seen[N] = {false};
    for (int i = 0; i < n; i++) {
        assert_int_equal(l[i].reserved + l[i].cached + l[i].free, pool);
        assert_int_equal(l[i].wasted, l[i].reserved - l[i].live);
        assert_true(l[i].live >= l[i].own_live && l[i].reserved >= l[i].own_reserved && l[i].wasted >= 0);
        assert_in_range(l[i].request, 0, N - 1);
        assert_true(l[i].pages > 0 && l[i].rows > 0 && (i == 0 || l[i].step >= l[i - 1].step));
        seen[l[i].request] = true;
        n_shared += l[i].shared > 0;
    }
    for (int i = 0; i < N; i++) {
        assert_true(seen[i]);
    }
    assert_true(n_shared > 0);
}

TEST(a_file_that_cannot_be_written_stops_nobody) {
    harness h = {0};
    harness_options o = small_model;
    int32_t prompt[40];
    o.audit_path = "/dev/full";
    harness_open(&o, &h);
    random_prompt(&seed, h.n_vocab, 40, prompt);
    harness_run r = {.prompt = prompt, .n_prompt = 40, .sampling = greedy(31)};
    harness_submit(&h, &r);
    harness_wait(&h, 1);
    assert_int_equal(r.finish, FINISH_LENGTH);
    harness_close(&h);
}

int main(void) {
    draw_seed();
    small_model = harness_defaults;
    small_model.path = "models/builtin-small.gguf";
    int fd = mkstemp(path);
    if (fd < 0) {
        return 1;
    }
    close(fd);
    int failed = tests_run(NULL, NULL);
    unlink(path);
    return failed;
}
