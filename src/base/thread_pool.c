/* syscall() is outside POSIX. */
#define _DEFAULT_SOURCE

#include "base/thread_pool.h"

#include <assert.h>
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/process.h"
#include "base/topology.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "base/clock.h"
#include "base/mem.h"
#include "base/topology.h"

/* time that an idle worker spins before it sleeps: more than the gap between two ops */
#define SPIN_US      50
#define SPINS_A_LOOK 32 /* pauses of a spinning worker between two reads of the clock */
#define MAX_WORKERS  4096

/* Work stealing (Blumofe and Leiserson, Scheduling multithreaded computations by work
 * stealing, 1999) over shares that need no queue: worker w has the tasks w, w +
 * n_workers, w + 2 n_workers...; it takes its own in order, then the rest of the others'.
 * So the cache line that counts a share rarely moves between processors, and a worker
 * that has been descheduled delays at most one task.
 *
 * Two kinds of words are pairs (run, number), with the number in the low TASK_BITS: the
 * published run with its n_tasks, and each share's `next` with the run that it belongs
 * to. A `next` of an older run counts as 0: the first worker that takes from a share
 * starts it. Late workers of an old run take nothing: in each share all tasks of their
 * run are taken, or a newer run has begun. tests/base/thread_pool.pml models this. */
#define TASK_BITS 24
#define TASK_MASK (((uint64_t)1 << TASK_BITS) - 1)
#define MAX_TASKS ((int32_t)TASK_MASK)

typedef struct worker {
    /* (run, number) of this worker's share: tasks before `number` are taken */
    _Alignas(MEM_ALIGN) _Atomic uint64_t next;
    _Alignas(MEM_ALIGN) thread_pool *thread_pool;
    pthread_t thread;
    int32_t number;
} worker;

struct thread_pool {
    _Alignas(MEM_ALIGN) _Atomic uint64_t published; /* (run, n_tasks) */
    /* fn and context of the published run: constant until all of its tasks are done */
    thread_pool_fn fn;
    void *context;
    _Alignas(MEM_ALIGN) _Atomic uint64_t n_done; /* tasks done by workers 1.., over all runs */
    /* from here on: read by every worker, rarely written */
    _Alignas(MEM_ALIGN) _Atomic int32_t n_sleeping;
    _Atomic bool closing;
    atomic_int n_holders;
    int32_t n_workers;
    pthread_mutex_t mutex; /* used for sleeping only */
    pthread_cond_t wake;
    /* [n_workers]; worker 0 is the caller of thread_pool_run and has no thread here */
    worker *workers;
    /* the value of n_done after the last run; from here on used by the caller only */
    _Alignas(MEM_ALIGN) uint64_t n_expected;
    int32_t first_cpu; /* worker 0's processor; -1: workers are not bound */
    bool has_entered;
    cpu_mask before; /* affinity of the calling thread before thread_pool_enter, restored by leave */
};

static inline uint64_t thread_pool_run_of(uint64_t pair) {
    return pair >> TASK_BITS;
}

static inline int32_t thread_pool_number_of(uint64_t pair) {
    return (int32_t)(pair & TASK_MASK);
}

static inline void pause_cpu(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Sets IEEE 754's default rounding and denormals. Reading the register costs a few
 * cycles; writing it costs as much as a small op. */
static void set_float_environment(void) {
#if defined(__SSE2__)
    if ((_mm_getcsr() & ~(unsigned)_MM_EXCEPT_MASK) == _MM_MASK_MASK) {
        return;
    }
#endif
    fesetenv(FE_DFL_ENV);
}

/* Takes the next task of a share in the published run. -1: none is left, or a new run
 * began. */
static int32_t thread_pool_take(thread_pool *t, int32_t share, uint64_t published) {
    _Atomic uint64_t *word = &t->workers[share].next;
    uint64_t next = atomic_load_explicit(word, memory_order_relaxed);
    for (;;) {
        if (thread_pool_run_of(next) > thread_pool_run_of(published)) {
            return -1;
        }
        uint64_t taken =
            thread_pool_run_of(next) == thread_pool_run_of(published) ? next : published & ~TASK_MASK;
        int64_t task = share + (int64_t)thread_pool_number_of(taken) * t->n_workers;
        if (task >= thread_pool_number_of(published)) {
            return -1;
        }
        if (atomic_compare_exchange_weak_explicit(word, &next, taken + 1, memory_order_acquire,
                                                  memory_order_relaxed)) {
            return (int32_t)task;
        }
    }
}

/* Runs the rest of a share. Returns the number of tasks run. */
static int32_t run_share(thread_pool *t, int32_t share, uint64_t published, int32_t number) {
    int32_t n = 0;
    for (int32_t task; (task = thread_pool_take(t, share, published)) >= 0; n++) {
        t->fn(t->context, task, number);
    }
    return n;
}

/* Runs a worker other than 0 until no task of the published run is left. Returns the
 * run. */
static uint64_t thread_pool_work(thread_pool *t, int32_t number) {
    uint64_t published = atomic_load_explicit(&t->published, memory_order_acquire);
    for (int32_t i = 0; i < t->n_workers; i++) {
        int32_t n = run_share(t, (number + i) % t->n_workers, published, number);
        if (n > 0) {
            atomic_fetch_add_explicit(&t->n_done, (uint64_t)n, memory_order_release);
        }
    }
    return thread_pool_run_of(published);
}

static bool has_news(const thread_pool *t, uint64_t seen_run) {
    return thread_pool_run_of(atomic_load(&t->published)) != seen_run || atomic_load(&t->closing);
}

static bool spin(const thread_pool *t, uint64_t seen_run) {
    int64_t deadline = clock_us() + SPIN_US;
    do {
        for (int i = 0; i < SPINS_A_LOOK; i++) {
            if (has_news(t, seen_run)) {
                return true;
            }
            pause_cpu();
        }
    } while (clock_us() < deadline);
    return false;
}

/* A sleeper increments the count of sleepers, then reads the run; thread_pool_run
 * publishes the run, then reads the count. Both are sequentially consistent, so at least
 * one sees the other's write. */
static void sleep_until_news(thread_pool *t, uint64_t seen_run) {
    pthread_mutex_lock(&t->mutex);
    atomic_fetch_add(&t->n_sleeping, 1);
    while (!has_news(t, seen_run)) {
        pthread_cond_wait(&t->wake, &t->mutex);
    }
    atomic_fetch_sub(&t->n_sleeping, 1);
    pthread_mutex_unlock(&t->mutex);
}

static void wake_sleepers(thread_pool *t) {
    if (atomic_load(&t->n_sleeping) > 0) {
        pthread_mutex_lock(&t->mutex);
        pthread_cond_broadcast(&t->wake);
        pthread_mutex_unlock(&t->mutex);
    }
}

static void *worker_main(void *argument) {
    const worker *m = argument;
    uint64_t seen_run = 0;
    set_float_environment();
    while (!atomic_load(&m->thread_pool->closing)) {
        if (!spin(m->thread_pool, seen_run)) {
            sleep_until_news(m->thread_pool, seen_run);
        }
        seen_run = thread_pool_work(m->thread_pool, m->number);
    }
    return NULL;
}

/* Starts a worker's thread, with signals blocked: the program's threads handle them. */
static quire_err start_member(worker *m) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int e = pthread_create(&m->thread, NULL, worker_main, m);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return e == 0 ? QUIRE_OK : QUIRE_NO_MEMORY;
}

quire_err thread_pool_open(int32_t n_threads, thread_pool **out) {
    int32_t n = n_threads == 0 ? thread_pool_cpus() : n_threads;
    if (n < 1 || n > MAX_WORKERS) {
        return QUIRE_INVALID;
    }
    thread_pool *t = mem_new(1, sizeof *t);
    worker *workers = mem_new((size_t)n, sizeof *workers);
    if (t == NULL || workers == NULL) {
        mem_free(t);
        mem_free(workers);
        return QUIRE_NO_MEMORY;
    }
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->wake, NULL);
    atomic_init(&t->n_holders, 1);
    t->workers = workers;
    t->n_workers = 1;
    t->first_cpu = -1;
    while (t->n_workers < n) {
        worker *m = &workers[t->n_workers];
        *m = (worker){.thread_pool = t, .number = t->n_workers};
        quire_err e = start_member(m);
        if (e != QUIRE_OK) {
            thread_pool_close(t);
            return e;
        }
        t->n_workers++;
    }
    *out = t;
    return QUIRE_OK;
}

thread_pool *thread_pool_hold(thread_pool *t) {
    atomic_fetch_add(&t->n_holders, 1);
    return t;
}

void thread_pool_close(thread_pool *t) {
    if (t == NULL || atomic_fetch_sub(&t->n_holders, 1) > 1) {
        return;
    }
    atomic_store(&t->closing, true);
    wake_sleepers(t);
    for (int32_t i = 1; i < t->n_workers; i++) {
        pthread_join(t->workers[i].thread, NULL);
    }
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->mutex);
    mem_free(t->workers);
    mem_free(t);
}

int32_t thread_pool_size(const thread_pool *t) {
    return t->n_workers;
}

static bool bind_thread(pthread_t thread, int32_t cpu) {
    cpu_mask one = {{0}};
    cpu_mask_add(&one, cpu);
    return cpu_mask_set(thread, &one);
}

bool thread_pool_bind(thread_pool *t, const int32_t *cpus) {
    assert(t != NULL);
    for (int32_t i = 1; i < t->n_workers; i++) {
        if (!bind_thread(t->workers[i].thread, cpus[i])) {
            return false;
        }
    }
    t->first_cpu = cpus[0];
    return true;
}

bool thread_pool_enter(thread_pool *t) {
    assert(t != NULL);
    t->has_entered = t->first_cpu >= 0 && cpu_mask_get(pthread_self(), &t->before) &&
                     bind_thread(pthread_self(), t->first_cpu);
    return t->has_entered || t->first_cpu < 0;
}

void thread_pool_leave(thread_pool *t) {
    assert(t != NULL);
    if (t->has_entered) {
        /* fails only if all of these processors have been removed */
        (void)cpu_mask_set(pthread_self(), &t->before);
        t->has_entered = false;
    }
}

void thread_pool_pause(int32_t turn) {
    if (turn < 10000) {
        pause_cpu();
    } else {
        sched_yield();
    }
}

static void wait_until_done(const thread_pool *t) {
    for (int32_t i = 0; atomic_load_explicit(&t->n_done, memory_order_acquire) != t->n_expected; i++) {
        thread_pool_pause(i);
    }
}

void thread_pool_run(thread_pool *t, thread_pool_fn fn, void *context, int32_t n_tasks) {
    assert(n_tasks >= 0 && n_tasks <= MAX_TASKS);
    set_float_environment();
    if (t->n_workers == 1 || n_tasks <= 1) {
        for (int32_t task = 0; task < n_tasks; task++) {
            fn(context, task, 0);
        }
        return;
    }
    uint64_t published =
        ((thread_pool_run_of(atomic_load_explicit(&t->published, memory_order_relaxed)) + 1) << TASK_BITS) +
        (uint64_t)n_tasks;
    t->fn = fn;
    t->context = context;
    atomic_store(&t->published, published);
    wake_sleepers(t);
    for (int32_t share = 0; share < t->n_workers; share++) {
        n_tasks -= run_share(t, share, published, 0);
    }
    t->n_expected += (uint64_t)n_tasks; /* n_tasks is now the number that other workers ran */
    wait_until_done(t);
}

int32_t thread_pool_cpus(void) {
    cpu_mask allowed;
    topology all;
    double cpus = 1;
    if (cpu_mask_get(pthread_self(), &allowed)) {
        topology_read("/sys", &allowed, &all);
        cpus = all.n_cores;
    }
    cpus = cgroup_cpus("", cpus);
    int32_t whole = (int32_t)cpus;
    whole += (double)whole < cpus; /* a fraction of a processor counts as a thread */
    return whole > 1 ? whole : 1;
}

/* ---- a thread of low priority ---- */

#define LOW_NICE 10

typedef struct low_call {
    void (*fn)(void *context);
    void *context;
} low_call;

static void *run_low(void *arg) {
    const low_call *c = arg;
    const id_t self = (id_t)syscall(SYS_gettid);
    /* on failure the priority stays unchanged */
    (void)setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + LOW_NICE);
    c->fn(c->context);
    return NULL;
}

bool thread_run_low(void (*fn)(void *context), void *context) {
    low_call c = {fn, context};
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_low, &c) != 0) {
        return false;
    }
    pthread_join(thread, NULL);
    return true;
}
