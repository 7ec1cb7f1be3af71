#include "base/thread_pool.h"

#include <assert.h>
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/topology.h"

#define SPIN_US      50 /* an idle member spins for this long before it sleeps: longer than the gap between two ops of a step */
#define SPINS_A_LOOK 32 /* pauses between two looks at the clock */
#define MAX_MEMBERS  4096

/* A ticket holds all that a member must know to take a part of the right run, in one word: (run, n_parts, next). A member that is late
 * takes a ticket past the end, or a part of a newer run, whose fn and context it then reads: they cannot change while one of its parts is
 * not done. */
#define PART_BITS 24
#define PART_MASK (((uint64_t)1 << PART_BITS) - 1)
#define MAX_PARTS ((int32_t)PART_MASK - MAX_MEMBERS) /* every member may step past the end once */

typedef struct member {
    team *team;
    pthread_t thread;
    int32_t number;
} member;

struct team {
    _Alignas(MEM_ALIGN) _Atomic uint64_t ticket;
    _Alignas(MEM_ALIGN) _Atomic int32_t n_done; /* parts of this run that are done */
    _Alignas(MEM_ALIGN) team_fn fn;
    void *context;
    _Atomic int32_t n_sleeping;
    _Atomic bool closing;
    int32_t n_members;
    pthread_mutex_t mutex; /* sleeping only */
    pthread_cond_t wake;
    member *members; /* [n_members]; 0 is whoever calls team_run and has no thread here */
    int32_t first_cpu; /* member 0's processor; -1: members are not bound */
    bool has_entered;
    cpu_mask before; /* where the thread that has entered was allowed to run */
};

static inline uint64_t ticket_run(uint64_t ticket) {
    return ticket >> (2 * PART_BITS);
}

static inline void pause_cpu(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Takes parts until none are left. Returns the run of the last ticket seen. */
static uint64_t work(team *t, int32_t number) {
    for (;;) {
        uint64_t ticket = atomic_fetch_add_explicit(&t->ticket, 1, memory_order_acq_rel);
        int32_t part = (int32_t)(ticket & PART_MASK);
        if (part >= (int32_t)(ticket >> PART_BITS & PART_MASK)) {
            return ticket_run(ticket);
        }
        t->fn(t->context, part, number);
        atomic_fetch_add_explicit(&t->n_done, 1, memory_order_release);
    }
}

static bool has_news(const team *t, uint64_t seen_run) {
    return ticket_run(atomic_load(&t->ticket)) != seen_run || atomic_load(&t->closing);
}

static bool spin(const team *t, uint64_t seen_run) {
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

/* The sleeper counts itself, then looks; team_run publishes, then looks at the count: sequentially consistent, so one sees the other. */
static void sleep_until_news(team *t, uint64_t seen_run) {
    pthread_mutex_lock(&t->mutex);
    atomic_fetch_add(&t->n_sleeping, 1);
    while (!has_news(t, seen_run)) {
        pthread_cond_wait(&t->wake, &t->mutex);
    }
    atomic_fetch_sub(&t->n_sleeping, 1);
    pthread_mutex_unlock(&t->mutex);
}

static void wake_sleepers(team *t) {
    if (atomic_load(&t->n_sleeping) > 0) {
        pthread_mutex_lock(&t->mutex);
        pthread_cond_broadcast(&t->wake);
        pthread_mutex_unlock(&t->mutex);
    }
}

static void *member_main(void *argument) {
    const member *m = argument;
    uint64_t seen_run = 0;
    fesetenv(FE_DFL_ENV);
    while (!atomic_load(&m->team->closing)) {
        if (!spin(m->team, seen_run)) {
            sleep_until_news(m->team, seen_run);
        }
        seen_run = work(m->team, m->number);
    }
    return NULL;
}

/* Signals stay with the threads of the program. */
static quire_err start_member(member *m) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int e = pthread_create(&m->thread, NULL, member_main, m);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return e == 0 ? QUIRE_OK : QUIRE_NO_MEMORY;
}

quire_err team_open(int32_t n_threads, team **out) {
    int32_t n = n_threads == 0 ? team_cpus() : n_threads;
    if (n < 1 || n > MAX_MEMBERS) {
        return QUIRE_INVALID;
    }
    team *t = mem_new(1, sizeof *t);
    member *members = mem_new((size_t)n, sizeof *members);
    if (t == NULL || members == NULL) {
        mem_free(t);
        mem_free(members);
        return QUIRE_NO_MEMORY;
    }
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->wake, NULL);
    t->members = members;
    t->n_members = 1;
    t->first_cpu = -1;
    while (t->n_members < n) {
        member *m = &members[t->n_members];
        *m = (member){.team = t, .number = t->n_members};
        quire_err e = start_member(m);
        if (e != QUIRE_OK) {
            team_close(t);
            return e;
        }
        t->n_members++;
    }
    *out = t;
    return QUIRE_OK;
}

void team_close(team *t) {
    if (t == NULL) {
        return;
    }
    atomic_store(&t->closing, true);
    wake_sleepers(t);
    for (int32_t i = 1; i < t->n_members; i++) {
        pthread_join(t->members[i].thread, NULL);
    }
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->mutex);
    mem_free(t->members);
    mem_free(t);
}

int32_t team_size(const team *t) {
    return t->n_members;
}

static bool bind_thread(pthread_t thread, int32_t cpu) {
    cpu_mask one = {{0}};
    cpu_mask_add(&one, cpu);
    return cpu_mask_set(thread, &one);
}

bool team_bind(team *t, const int32_t *cpus) {
    for (int32_t i = 1; i < t->n_members; i++) {
        if (!bind_thread(t->members[i].thread, cpus[i])) {
            return false;
        }
    }
    t->first_cpu = cpus[0];
    return true;
}

bool team_enter(team *t) {
    t->has_entered = t->first_cpu >= 0 && cpu_mask_get(pthread_self(), &t->before) && bind_thread(pthread_self(), t->first_cpu);
    return t->has_entered || t->first_cpu < 0;
}

void team_leave(team *t) {
    if (t->has_entered) {
        (void)cpu_mask_set(pthread_self(), &t->before); /* refused only where those processors have gone meanwhile */
        t->has_entered = false;
    }
}

/* A member that holds the last parts may have lost its processor: then the caller gives its own away. */
static void wait_until_done(team *t, int32_t n_parts) {
    for (int32_t spins = 0; atomic_load_explicit(&t->n_done, memory_order_acquire) < n_parts; spins++) {
        if (spins < 10000) {
            pause_cpu();
        } else {
            sched_yield();
        }
    }
}

void team_run(team *t, team_fn fn, void *context, int32_t n_parts) {
    assert(n_parts <= MAX_PARTS);
    fesetenv(FE_DFL_ENV);
    if (t->n_members == 1 || n_parts <= 1) {
        for (int32_t part = 0; part < n_parts; part++) {
            fn(context, part, 0);
        }
        return;
    }
    uint64_t run = ticket_run(atomic_load_explicit(&t->ticket, memory_order_relaxed)) + 1;
    t->fn = fn;
    t->context = context;
    atomic_store_explicit(&t->n_done, 0, memory_order_relaxed);
    atomic_store(&t->ticket, run << (2 * PART_BITS) | (uint64_t)n_parts << PART_BITS);
    wake_sleepers(t);
    (void)work(t, 0);
    wait_until_done(t, n_parts);
}
