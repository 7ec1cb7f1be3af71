/* What bounds the memory that a process may still take, and the pool that is planned in
 * it. Kernel files are fakes. */
#include "base/fake_root.h"

#include <sys/resource.h>

#include "setup/pool_plan.h"

#define KIB ((int64_t)1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

static void put_kib(const char *path, const char *format, int64_t bytes) {
    char text[256];
    snprintf(text, sizeof text, format, (long long)(bytes / KIB));
    put(path, text);
}

static void put_machine(int64_t available) {
    put_kib("proc/meminfo",
            "MemTotal:       99999999 kB\nMemFree:         1 kB\nMemAvailable:   %lld kB\nBuffers:  5 kB\n",
            available);
}

static void put_cgroup(int64_t limit, int64_t used) {
    char text[64];
    put("proc/self/cgroup", "0::/my.service\n");
    put("proc/self/mountinfo", "31 22 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    snprintf(text, sizeof text, "%lld\n", (long long)limit);
    put("sys/fs/cgroup/my.service/memory.max", text);
    snprintf(text, sizeof text, "%lld\n", (long long)used);
    put("sys/fs/cgroup/my.service/memory.current", text);
}

static void assert_room(int64_t mapped, int64_t bytes, memory_bound bound, const char *words) {
    memory_room room;
    strbuf text = {0};
    memory_room_read(root, mapped, &room);
    assert_int_equal(room.bytes, bytes);
    assert_int_equal(room.bound, bound);
    assert_int_equal(memory_room_explain(&room, &text), QUIRE_OK);
    assert_string_equal(text.p, words);
    strbuf_deinit(&text);
}

ROOT_TEST(the_tightest_bound_holds) {
    assert_room(0, -1, MEMORY_UNKNOWN, "an unknown amount of memory");
    put("proc/meminfo", "MemAvailable: many kB\n");
    assert_room(0, -1, MEMORY_UNKNOWN, "an unknown amount of memory");
    put_machine(8 * GIB);
    assert_room(0, 8 * GIB, MEMORY_OF_MACHINE, "the 8.6 GB that the machine has available");
    put_cgroup(16 * GIB, 1 * GIB);
    assert_room(0, 8 * GIB, MEMORY_OF_MACHINE, "the 8.6 GB that the machine has available");
    put_cgroup(4 * GIB, 1 * GIB);
    assert_room(0, 3 * GIB, MEMORY_OF_CGROUP,
                "the 3.2 GB that the cgroup's limit of 4.3 GB (/sys/fs/cgroup/my.service/memory.max) leaves");
    put_cgroup(1 * GIB, 2 * GIB);
    assert_room(
        0, 0, MEMORY_OF_CGROUP,
        "the 0 bytes that the cgroup's limit of 1.1 GB (/sys/fs/cgroup/my.service/memory.max) leaves");
}

ROOT_TEST(mapped_weights_are_not_free_although_the_system_says_so) {
    put_machine(8 * GIB);
    assert_room(3 * GIB, 5 * GIB, MEMORY_OF_MACHINE, "the 5.4 GB that the machine has available");
    assert_room(9 * GIB, 0, MEMORY_OF_MACHINE, "the 0 bytes that the machine has available");
    put_cgroup(6 * GIB, 1 * GIB);
    assert_room(3 * GIB, 2 * GIB, MEMORY_OF_CGROUP,
                "the 2.1 GB that the cgroup's limit of 6.4 GB (/sys/fs/cgroup/my.service/memory.max) leaves");
}

/* Limits far above what the test itself needs: what it uses is read from the fake
 * status. */
ROOT_TEST(limits_of_the_process_count) {
    enum { N = 2 };
    static const int resources[N] = {RLIMIT_AS, RLIMIT_DATA};
    static const memory_bound bounds[N] = {MEMORY_OF_RLIMIT_AS, MEMORY_OF_RLIMIT_DATA};
    static const char *const words[N] = {
        "the 2.1 GB that the limit of address space of 72057.6 TB (ulimit -v) leaves beside stacks (",
        "the 1.1 GB that the limit of data of 72057.6 TB (ulimit -d) leaves beside stacks ("};
    const int64_t limit = (int64_t)1 << 56;
    memory_room before_all;
    memory_room_read(root, 0, &before_all);
    int64_t spare = before_all.stack_bytes / KIB * KIB; /* for stacks: what is left then is a round number */
    char status[256];
    snprintf(status, sizeof status,
             "Name:\tVmSize: 1 kB\nVmPeak:\t   1 kB\nVmSize:\t%lld kB\nVmData:\t%lld kB\nVmStk:\t 136 kB\n",
             (long long)((limit - spare - 2 * GIB) / KIB), (long long)((limit - spare - 1 * GIB) / KIB));
    put("proc/self/status", status);
    put_machine(8 * GIB);
    for (int i = 0; i < N; i++) {
        struct rlimit before, lower;
        assert_int_equal(getrlimit(resources[i], &before), 0);
        lower = before;
        lower.rlim_cur = (rlim_t)limit;
        assert_room(0, 8 * GIB, MEMORY_OF_MACHINE, "the 8.6 GB that the machine has available");
        assert_int_equal(setrlimit(resources[i], &lower), 0);
        memory_room room;
        memory_room_read(root, 5 * GIB, &room); /* mapped files count in these limits already */
        assert_in_range(room.stack_bytes, 6 * 16 * KIB, 6 * GIB / 16);
        assert_int_equal(room.bytes, (2 - i) * GIB);
        strbuf text = {0};
        assert_int_equal(strbuf_addf(&text, "%s%s)", words[i], memory_show(room.stack_bytes).text), QUIRE_OK);
        assert_room(0, (2 - i) * GIB, bounds[i], text.p);
        strbuf_deinit(&text);
        assert_int_equal(setrlimit(resources[i], &before), 0);
    }
}

TEST(bytes_are_written_for_people) {
    static const struct {
        int64_t bytes;
        const char *text;
    } cases[] = {{0, "0 bytes"},
                 {999, "999 bytes"},
                 {1000, "1.0 kB"},
                 {999949, "999.9 kB"},
                 {999950, "1.0 MB"},
                 {2934528, "2.9 MB"},
                 {21346576640, "21.3 GB"},
                 {999949999999, "999.9 GB"},
                 {1000000000000, "1.0 TB"},
                 {INT64_MAX, "9223372.0 TB"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_string_equal(memory_show(cases[i].bytes).text, cases[i].text);
    }
}

/* ---- the pool ---- */

static pool_plan plan_of(quire_options *o, int64_t room) {
    pool_plan p = pool_plan_of(o);
    p.room =
        (memory_room){.bytes = room, .bound = room < 0 ? MEMORY_UNKNOWN : MEMORY_OF_MACHINE, .limit = room};
    p.weight_bytes = 2 * GIB;
    return p;
}

static void assert_explained(const pool_plan *p, const char *words) {
    strbuf b = {0};
    assert_int_equal(pool_plan_explain(p, &b), QUIRE_OK);
    assert_string_equal(b.p, words);
    strbuf_deinit(&b);
}

TEST(a_pool_takes_its_part_of_what_is_left) {
    kv_layout l = {.page_tokens = 16, .page_bytes = 1 * MIB, .n_groups = 1};
    quire_options o;
    quire_options_init(&o);
    o.rule_bytes = 0;
    pool_plan p = plan_of(&o, 1000 * MIB);
    assert_int_equal(pool_plan_pages(&p, &l), 500);
    assert_explained(&p, "50% (--memory-utilization, 0.5 by default) of the 1.0 GB that the machine has "
                         "available beside weights (2.1 GB)");
    o.memory_utilization = 0.125;
    o.swap_bytes = 100 * MIB;
    o.tier_host_bytes = 100 * MIB;
    p = plan_of(&o, 1000 * MIB);
    p.buffer_bytes = 5 * MIB;
    assert_int_equal(pool_plan_pages(&p, &l), 100);
    assert_explained(&p, "12.5% (--memory-utilization, 0.5 by default) of the 1.0 GB that the machine has "
                         "available beside weights (2.1 GB) "
                         "and buffers (5.2 MB), less 209.7 MB for --swap-space and --kv-tier-host-bytes");
    o.tier_host_bytes = INT64_MAX;
    p = plan_of(&o, 1000 * MIB);
    assert_int_equal(pool_plan_pages(&p, &l), 0);
    o.n_pages = 77;
    p = plan_of(&o, -1);
    assert_int_equal(pool_plan_pages(&p, &l), 77);
    o.n_pages = 0;
    p = plan_of(&o, -1);
    assert_int_equal(pool_plan_pages(&p, &l), -1);
    quire_options_init(&o);
    o.rule_bytes = 0;
    p = plan_of(&o, INT64_MAX / 2);
    l.page_bytes = 64;
    assert_int_equal(pool_plan_pages(&p, &l), POOL_MAX_PAGES);
}

TEST(memory_for_rules_comes_off_and_is_at_most_a_sixteenth) {
    kv_layout l = {.page_tokens = 16, .page_bytes = 1 * MIB, .n_groups = 1};
    quire_options o;
    quire_options_init(&o);
    pool_plan p = plan_of(&o, 1600 * MIB);
    assert_int_equal(pool_plan_rules(&p), 100 * MIB);
    assert_int_equal(pool_plan_pages(&p, &l), 750);
    assert_explained(&p, "50% (--memory-utilization, 0.5 by default) of the 1.7 GB that the machine has "
                         "available beside weights (2.1 GB), "
                         "less 104.9 MB for rules (--rule-memory-bytes)");
    o.swap_bytes = 100 * MIB;
    p = plan_of(&o, 16 * GIB);
    assert_int_equal(pool_plan_rules(&p), 256 * MIB);
    assert_explained(&p, "50% (--memory-utilization, 0.5 by default) of the 17.2 GB that the machine has "
                         "available beside weights "
                         "(2.1 GB), less 104.9 MB for --swap-space and --kv-tier-host-bytes and 268.4 MB for "
                         "rules (--rule-memory-bytes)");
    p = plan_of(&o, 0);
    assert_int_equal(pool_plan_rules(&p), 1 * MIB);
    assert_int_equal(pool_plan_pages(&p, &l), 0);
    p = plan_of(&o, -1);
    assert_int_equal(pool_plan_rules(&p), 256 * MIB);
    p.step_rows = 512; /* an encoder obeys none */
    assert_int_equal(pool_plan_rules(&p), 0);
}

TEST(a_pool_that_holds_no_request_is_refused_and_says_why) {
    kv_layout l = {.page_tokens = 16, .page_bytes = 1 * MIB, .n_groups = 2};
    kv_most most = kv_most_of_layout(&l, 32);
    quire_options o;
    quire_error err = {0};
    int32_t n = -5;
    quire_options_init(&o);
    o.rule_bytes = 0;
    pool_plan p = plan_of(&o, 8 * MIB);
    assert_int_equal(pool_plan_resolve(&p, &l, &most, 32, &n, &err), QUIRE_OK);
    assert_int_equal(n, 4);
    assert_int_equal(pool_plan_resolve(&p, &l, &most, 33, &n, &err), QUIRE_NO_MEMORY);
    assert_non_null(strstr(err.message, "--memory-utilization or free memory"));
    p.given_pages = 3;
    assert_int_equal(pool_plan_resolve(&p, &l, &most, 17, &n, &err), QUIRE_NO_MEMORY);
    assert_non_null(strstr(err.message, "raise --kv-pages"));
    p = plan_of(&o, -1);
    assert_int_equal(pool_plan_resolve(&p, &l, &most, 16, &n, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.message, "--kv-pages N"));
    assert_int_equal(n, 4);
}

/* One group of two has a window of 17 tokens: with 32 rows a step it sees 48, which lie
 * in 4 pages at most, however long the request. */
TEST(groups_with_windows_count_what_their_windows_see) {
    kv_layout l = {.page_tokens = 16,
                   .page_bytes = 1 * MIB,
                   .n_groups = 2,
                   .groups = {{.kind = LAYER_FULL}, {.kind = LAYER_WINDOW, .window = 17}}};
    kv_most most = kv_most_of_layout(&l, 32);
    quire_options o;
    quire_error err = {0};
    int32_t n = -5;
    quire_options_init(&o);
    pool_plan p = plan_of(&o, 0);
    p.given_pages = 14;
    assert_int_equal(pool_plan_resolve(&p, &l, &most, 160, &n, &err), QUIRE_OK);
    assert_int_equal(n, 14);
    assert_int_equal(pool_plan_resolve(&p, &l, &most, 161, &n, &err), QUIRE_NO_MEMORY);
    assert_non_null(strstr(err.message, "which takes 15; lower --max-model-len or --chunk"));
}

TEST(a_mapped_model_larger_than_memory_leaves_an_eighth) {
    memory_room room = {.bytes = 800 * MIB, .bound = MEMORY_OF_CGROUP};
    assert_int_equal(pool_plan_kept(&room, 500 * MIB), 500 * MIB);
    assert_int_equal(pool_plan_kept(&room, 700 * MIB), 700 * MIB);
    assert_int_equal(pool_plan_kept(&room, 3000 * MIB), 700 * MIB);
    room.bound = MEMORY_OF_RLIMIT_AS; /* its place is taken */
    assert_int_equal(pool_plan_kept(&room, 3000 * MIB), 3000 * MIB);
    room = (memory_room){.bytes = -1, .bound = MEMORY_UNKNOWN};
    assert_int_equal(pool_plan_kept(&room, 3000 * MIB), 3000 * MIB);
    quire_options o;
    quire_options_init(&o);
    o.rule_bytes = 0;
    pool_plan p = plan_of(&o, 100 * MIB);
    p.weight_bytes = 3000000000;
    p.dropped_bytes = 2300000000;
    assert_explained(&p, "50% (--memory-utilization, 0.5 by default) of the 104.9 MB that the machine has "
                         "available beside weights (3.0 "
                         "GB, of which 700.0 MB stay in memory)");
}

TEST(an_encoder_gets_the_pages_of_one_step) {
    model_desc d = desc_plain(2, 4, 4, 16, 64);
    kv_layout l;
    quire_options o;
    quire_error err = {0};
    quire_options_init(&o);
    assert_int_equal(kv_layout_init(&d, kv_both(DTYPE_F32), o.page_tokens, &l, &err), QUIRE_OK);
    pool_plan p = pool_plan_of(&o);
    p.room = (memory_room){.bytes = 64 * GIB, .bound = MEMORY_OF_MACHINE};
    pool_plan_encoder(&p, &o, &d, 512);
    assert_true(pool_plan_pages(&p, &l) * l.page_bytes > 31 * GIB); /* a decoder keeps what it has computed */
    d.two_sided = true;
    pool_plan_encoder(&p, &o, &d, 512);
    assert_int_equal(pool_plan_pages(&p, &l), (512 / o.page_tokens + o.max_seqs) * l.n_groups);
    o.max_seqs = 1 << 16;
    pool_plan_encoder(&p, &o, &d, 512);
    assert_int_equal(pool_plan_pages(&p, &l), 512 * l.n_groups); /* a page holds a row at least */
    strbuf text = {0};
    assert_int_equal(pool_plan_explain(&p, &text), QUIRE_OK);
    assert_string_equal(text.p, "room for one step of 512 rows: an encoder keeps no keys and values");
    strbuf_deinit(&text);
    p.room.bytes = -1; /* nor does it need to know the memory */
    assert_int_equal(pool_plan_pages(&p, &l), 512 * l.n_groups);
    p.room.bytes = 4 * l.page_bytes;
    assert_int_equal(pool_plan_pages(&p, &l), 2);
    p.given_pages = 7;
    assert_int_equal(pool_plan_pages(&p, &l), 7);
}

TEST(a_cap_bounds_weights_buffers_and_pages_together) {
    kv_layout l = {.page_tokens = 16, .page_bytes = 1 * MIB, .n_groups = 1};
    quire_options o;
    quire_options_init(&o);
    o.rule_bytes = 0;
    o.models_memory_bytes = 2 * GIB + 300 * MIB;
    pool_plan p = plan_of(&o, 1000 * MIB);
    p.buffer_bytes = 50 * MIB;
    assert_int_equal(pool_plan_pages(&p, &l), 250);
    assert_explained(&p,
                     "50% (--memory-utilization, 0.5 by default) of the 1.0 GB that the machine has "
                     "available beside weights (2.1 GB) and buffers (52.4 MB); weights, buffers and pages "
                     "of all models at most 2.5 GB (--models-memory-bytes)");
    p.dropped_bytes = 1 * GIB; /* of mapped weights counts what stays */
    assert_int_equal(pool_plan_pages(&p, &l), 500);
    p.dropped_bytes = 0;
    p.given_pages = 251;
    assert_int_equal(pool_plan_pages(&p, &l), 250);
    p.given_pages = 249;
    assert_int_equal(pool_plan_pages(&p, &l), 249);
    p.given_pages = 0;
    p.room.bytes = -1;
    assert_int_equal(pool_plan_pages(&p, &l), 250);
    p.has_draft = true;
    p.draft_bytes = 30 * MIB;
    assert_int_equal(pool_plan_pages(&p, &l), 220);
    p.draft_bytes = 0;
    p.cap_bytes = 1 * GIB;
    assert_int_equal(pool_plan_pages(&p, &l), 0);
}

TEST(models_that_share_memory_have_equal_parts_of_a_half_of_it) {
    const kv_layout l = {.page_tokens = 16, .page_bytes = 1 * MIB, .n_groups = 1};
    const kv_most most = kv_most_of_layout(&l, 32);
    quire_options o;
    quire_error err = {0};
    model_memory *m;
    int32_t n, sure;
    quire_options_init(&o);
    o.rule_bytes = 0;
    pool_plan p = plan_of(&o, 2000 * MIB);
    assert_int_equal(model_memory_open(&p, pool_plan_bytes(&p, l.page_bytes), 4, &m), QUIRE_OK);
    assert_int_equal(model_memory_fixed(m, 300 * MIB), 150 * MIB); /* the plan would have had as much less */
    assert_int_equal(model_memory_share(m, &p, &l, &most, 2, &n, &sure, &err), QUIRE_OK);
    assert_true(n == 1000 && sure == 124); /* of whole granules */
    assert_int_equal(model_memory_share(m, &p, &l, &most, 16 * 200, &n, &sure, &err), QUIRE_OK);
    assert_true(n == 1000 && sure == 200);
    assert_int_equal(model_memory_share(m, &p, &l, &most, 16 * 1001, &n, &sure, &err), QUIRE_NO_MEMORY);
    assert_non_null(strstr(err.message, "1000 KV pages of 1048576 bytes hold not even one request of 16016"));
    p.given_pages = 100; /* bounds each pool */
    assert_int_equal(model_memory_share(m, &p, &l, &most, 2, &n, &sure, &err), QUIRE_OK);
    assert_true(n == 100 && sure == 100);
    p.given_pages = 0;
    p.step_rows = 64; /* an encoder's: what a step needs */
    p.step_seqs = 3;
    assert_int_equal(model_memory_share(m, &p, &l, &most, 2, &n, &sure, &err), QUIRE_OK);
    assert_true(n == 7 && sure == 7);
    model_memory_drop(model_memory_hold(m));
    model_memory_drop(m);
    p = plan_of(&o, 2000 * MIB);
    p.given_pages = 10;
    assert_int_equal(model_memory_open(&p, pool_plan_bytes(&p, l.page_bytes), 2, &m), QUIRE_OK);
    assert_int_equal(kv_budget_count(m->budget).bytes, 10 * MIB);
    assert_int_equal(model_memory_fixed(m, 300 * MIB), 0); /* the pages are given */
    model_memory_drop(m);
    p.given_pages = 0;
    p.cap_bytes = 3 * GIB;
    assert_int_equal(model_memory_open(&p, pool_plan_bytes(&p, l.page_bytes), 2, &m), QUIRE_OK);
    assert_int_equal(model_memory_fixed(m, 300 * MIB), 300 * MIB); /* under a cap each byte counts */
    model_memory_drop(m);
    assert_int_equal(model_memory_open(&p, 0, 2, &m), QUIRE_NO_MEMORY);
}

TEST_MAIN(NULL, NULL)
