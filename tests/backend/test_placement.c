/* Threads are bound to processors, and memory is spread over NUMA nodes, as asked. */
/* syscall() is outside POSIX. */
#define _DEFAULT_SOURCE

#include <linux/mempolicy.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/placement.h"
#include "base/mem.h"
#include "base/topology.h"
#include "test.h"

/* Two nodes of four cores, two hyperthreads each: 0-3 and 4-7, then 8-15. Of them the
 * first n_cpus in the order of topology.h. */
static topology machine(int32_t n_cpus) {
    topology t = {.n_cpus = n_cpus, .n_cores = n_cpus < 8 ? n_cpus : 8};
    for (int32_t i = 0; i < n_cpus; i++) {
        t.cpus[i] = (topology_cpu){.cpu = i, .sibling = i / 8, .node = i / 4 % 2};
    }
    return t;
}

static void check(const char *bind, int32_t n_threads, int32_t n_usual, int32_t n_cpus, int32_t expected_n,
                  const char *expected, uint64_t nodes) {
    topology t = machine(n_cpus);
    cpu_placement p;
    quire_error err;
    assert_int_equal(cpu_placement_choose(bind, n_threads, n_usual, &t, &p, &err), QUIRE_OK);
    assert_int_equal(p.n_threads, expected_n);
    assert_int_equal(p.is_bound, expected != NULL);
    assert_int_equal(p.nodes, nodes);
    cpu_mask m = {{0}};
    for (int32_t i = 0; p.is_bound && i < p.n_threads; i++) {
        cpu_mask_add(&m, p.cpus[i]);
    }
    char text[64];
    cpu_mask_print(&m, text, sizeof text);
    assert_string_equal(text, expected != NULL ? expected : "");
}

TEST(without_being_told_no_thread_is_bound) {
    check(NULL, 0, 8, 16, 8, NULL, 3);
    check("none", 0, 8, 16, 8, NULL, 3);
    check("none", 3, 8, 16, 3, NULL, 3);
    check("none", 0, 4, 4, 4, NULL, 1);
}

TEST(auto_binds_threads_that_fill_the_cores_or_the_processors_and_no_others) {
    check("auto", 0, 8, 16, 8, "0-7", 3);
    check("auto", 8, 8, 16, 8, "0-7", 3);
    check("auto", 16, 8, 16, 16, "0-15", 3);
    check("auto", 0, 3, 3, 3, "0-2", 1);
    /* a quota of two processors: which ones, others may have chosen too */
    check("auto", 0, 2, 16, 2, NULL, 3);
    check("auto", 4, 8, 16, 4, NULL, 3);
    check("auto", 12, 8, 16, 12, NULL, 3);
    check("auto", 99, 8, 16, 99, NULL, 3);
    check("auto", 1, 1, 0, 1, NULL, 0); /* nothing is known of the machine */
}

TEST(a_list_is_a_thread_a_processor_or_as_many_as_are_asked_for_one_a_core_first) {
    check("0-3", 0, 8, 16, 4, "0-3", 1);
    check("4-7", 0, 8, 16, 4, "4-7", 2);
    check("3,4", 0, 8, 16, 2, "3-4", 3);
    check("0,8,1,9", 0, 8, 16, 4, "0-1,8-9", 1);
    check("0,8,1,9", 2, 8, 16, 2, "0-1", 1);
    check("8-15", 2, 8, 16, 2, "8-9", 1);
    check("15", 0, 8, 16, 1, "15", 2);
}

TEST(an_impossible_list_is_refused_with_a_reason) {
    static const struct {
        const char *bind, *words;
        int32_t n_threads;
    } cases[] = {{"0-16", "processor 16 is not among those that this process may use: 0-15", 0},
                 {"0-3", "4 processors for 5 threads", 5},
                 {"7", "1 processor for 2 threads", 2},
                 {"0,x", "at \"x\"", 0},
                 {"", "0-3,8", 0},
                 {"Auto", "auto, none or a list", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        topology t = machine(16);
        cpu_placement p;
        quire_error err;
        assert_int_equal(cpu_placement_choose(cases[i].bind, cases[i].n_threads, 8, &t, &p, &err),
                         QUIRE_INVALID);
        assert_non_null(strstr(err.message, "--cpu-bind"));
        assert_non_null(strstr(err.message, cases[i].words));
    }
}

/* ---- a real backend ---- */

typedef struct seen {
    cpu_mask where[2]; /* by member */
    _Atomic int32_t came;
} seen;

/* Takes until both members are here, so that each has a part. */
static void look(void *context, int32_t part, int32_t member) {
    (void)part;
    seen *s = context;
    (void)cpu_mask_get(pthread_self(), &s->where[member]);
    atomic_fetch_add(&s->came, 1);
    for (int32_t i = 0; i < 600000 && atomic_load(&s->came) < 2; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
}

/* Emulators need not start threads (tools/neon.sh). */
static void need_threads(void) {
    if (getenv("QUIRE_TEST_EMULATED") != NULL) {
        print_message("skipped: an emulator starts no threads everywhere\n");
        skip();
    }
}

TEST(every_thread_that_computes_is_on_its_own_processor_and_the_caller_gets_back_what_it_had) {
    cpu_mask before, after;
    need_threads();
    assert_true(cpu_mask_get(pthread_self(), &before));
    if (cpu_mask_count(&before) < 2) {
        print_message("skipped: this process may use one processor only\n");
        skip();
    }
    char list[32];
    int32_t first = 0;
    while (!cpu_mask_has(&before, first)) {
        first++;
    }
    int32_t second = first + 1;
    while (!cpu_mask_has(&before, second)) {
        second++;
    }
    (void)snprintf(list, sizeof list, "%d,%d", first, second);
    backend *b;
    quire_error err;
    assert_int_equal(backend_cpu_open(&(backend_options){.cpu_bind = list}, &b, &err), QUIRE_OK);
    assert_non_null(strstr(b->ops->describe(b), "2 threads bound to "));
    /* outside of enter and leave the caller is where it was; members are always bound */
    for (int32_t round = 0; round < 2; round++) {
        seen s = {.came = 0};
        if (round == 1) {
            b->ops->enter(b);
        }
        b->ops->run_tasks(b, look, &s, 2);
        if (round == 1) {
            b->ops->leave(b);
        }
        assert_int_equal(cpu_mask_count(&s.where[1]), 1);
        assert_int_equal(cpu_mask_count(&s.where[0]), round == 1 ? 1 : cpu_mask_count(&before));
        if (round == 1) {
            assert_memory_not_equal(&s.where[0], &s.where[1], sizeof s.where[0]);
            assert_true(cpu_mask_has(&s.where[0], first) || cpu_mask_has(&s.where[0], second));
        }
        assert_true(cpu_mask_has(&s.where[1], first) || cpu_mask_has(&s.where[1], second));
    }
    assert_true(cpu_mask_get(pthread_self(), &after));
    assert_memory_equal(&before, &after, sizeof before);
    b->ops->close(b);
}

TEST(threads_that_are_not_bound_go_where_the_process_may) {
    cpu_mask before;
    seen s = {.came = 0};
    backend *b;
    quire_error err;
    need_threads();
    assert_true(cpu_mask_get(pthread_self(), &before));
    assert_int_equal(backend_cpu_open(&(backend_options){.n_threads = 2}, &b, &err), QUIRE_OK);
    b->ops->enter(b);
    b->ops->run_tasks(b, look, &s, 2);
    b->ops->leave(b);
    assert_memory_equal(&s.where[0], &before, sizeof before);
    assert_memory_equal(&s.where[1], &before, sizeof before);
    b->ops->close(b);
}

static int policy_at(char *p) {
    int policy = -1;
    assert_int_equal(syscall(SYS_get_mempolicy, &policy, NULL, 0UL, p, (unsigned long)MPOL_F_ADDR), 0);
    return policy;
}

TEST(memory_of_weights_and_pages_is_spread_where_there_are_nodes_to_spread_it_over) {
    uint64_t nodes = numa_nodes();
    if (nodes == 0) {
        print_message("skipped: this system lets no memory be placed\n");
        skip();
    }
    cpu_backend b = {.nodes = 0};
    for (int32_t told = 0; told < 2; told++) {
        b.nodes = told ? nodes : 0; /* one node is as good as several to see what the kernel was told */
        char *large = cpu_new_spread(&b, 3 * MEM_HUGE_BYTES + 100),
             *small = cpu_new_spread(&b, MEM_HUGE_BYTES / 2);
        assert_true(large != NULL && small != NULL);
        assert_int_equal(policy_at(large), told ? MPOL_INTERLEAVE : MPOL_DEFAULT);
        assert_int_equal(policy_at(large + 3 * MEM_HUGE_BYTES), told ? MPOL_INTERLEAVE : MPOL_DEFAULT);
        assert_int_equal(policy_at(small), MPOL_DEFAULT);
        large[3 * MEM_HUGE_BYTES + 99] = 1;
        mem_free(large);
        mem_free(small);
    }
}

TEST_MAIN(NULL, NULL)
