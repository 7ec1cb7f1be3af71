#include "engine/team.h"

#include <assert.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/cache.h"
#include "engine/engine_view.h"
#include "engine/output.h"
#include "engine/state.h"

#define SHORT_WAIT_US 1000 /* pause if there is work but no step could be planned */

/* An engine in the team. */
typedef struct team_seat {
    engine *e;     /* NULL: a free seat */
    bool has_work; /* in this round: it has sequences to run, to admit or to end */
    bool had_work; /* value of has_work in the previous round */
    bool is_tried; /* the engine was asked for a step in this round */
} team_seat;

struct engine_team {
    wake wake;
    atomic_int n_holders;
    atomic_bool stop;
    pthread_t thread;
    pthread_mutex_t lock;   /* guards the next five members, and each engine's `place` */
    pthread_cond_t changed; /* signalled when an engine got a seat, was refused, or left */
    engine *arrivals;       /* engines without a seat yet; a list linked by place.next */
    int32_t n_members;      /* engines that have joined and not left */
    bool has_thread;

    /* the thread's: */
    team_seat seats[ENGINE_TEAM_SEATS];
    int32_t n_seated, n_used; /* engines; seats from n_used on are free */
    double most_us;           /* the largest turn.served_us of any engine so far */
    /* the engine whose backend this thread has entered as a compute thread; NULL: none */
    backend *entered;
};

/* ---- one engine's turn ---- */

/* Runs one step of e, if one can be planned, and adds its time to e's account. */
static bool team_run_step(engine_team *t, engine *e) {
    const int64_t began_ns = clock_ns();
    mem_guard_enter();
    const bool started = step_submit(e);
    if (started) {
        step_collect(e);
    }
#ifdef QUIRE_DEBUG
    engine_audit(e);
#endif
    mem_guard_leave();
    if (started) {
        e->turn.step_us = (double)(clock_ns() - began_ns) * 1e-3;
        e->turn.served_us += e->turn.step_us;
        t->most_us = e->turn.served_us > t->most_us ? e->turn.served_us : t->most_us;
    }
    return started;
}

/* Publishes statistics before it wakes readers, so that they include what readers
 * read. */
static void team_publish(engine *e) {
    mem_guard_enter();
    stats_publish(e);
    out_wake_readers(e);
    mem_guard_leave();
    engine_view_response(e);
}

/* ---- the thread ---- */

/* Whether e has sequences, submitted ones included, or some to end. */
static bool team_has_work(const engine *e) {
    return e->sched.n_running + e->sched.n_waiting > 0 || !ring_is_empty(e->in) ||
           atomic_load(&e->n_cancels) != e->n_cancels_seen;
}

/* The earliest deadline of a sequence without a first token; 0: none. */
static int64_t team_first_deadline(const engine *e) {
    const scheduler *s = &e->sched;
    int64_t first = 0;
    for (int32_t i = 0; i < s->n_waiting + s->n_running; i++) {
        const sched_task *t = i < s->n_waiting ? s->waiting[i] : s->running[i - s->n_waiting];
        if (t->deadline_us > 0 && t->n_known == t->n_prompt && (first == 0 || t->deadline_us < first)) {
            first = t->deadline_us;
        }
    }
    return first;
}

/* The backend of another engine than e, to share compute threads with; NULL: none. */
static backend *team_other_backend(const engine_team *t, const engine *e) {
    backend *b = NULL;
    for (int32_t i = 0; i < t->n_used && b == NULL; i++) {
        b = t->seats[i].e != NULL && t->seats[i].e != e ? t->seats[i].e->b : NULL;
    }
    return b;
}

/* Seats the engines that are joining, if their pages fit. The lock is held. */
static void team_seat_arrivals(engine_team *t) {
    while (t->arrivals != NULL) {
        engine *e = t->arrivals;
        int32_t i = 0;
        while (t->seats[i].e != NULL) {
            i++;
        }
        t->arrivals = e->place.next;
        const quire_err refused = cache_join(e);
        if (refused == QUIRE_OK) {
            t->seats[i] = (team_seat){.e = e};
            t->n_used = i < t->n_used ? t->n_used : i + 1;
            e->turn = (turn_claim){.served_us = 0};
            t->n_seated++;
            stats_publish(e);
        } else {
            t->n_members--;
        }
        e->place = (team_place){.is_member = refused == QUIRE_OK, .refused = refused};
        pthread_cond_broadcast(&t->changed);
    }
}

/* Unseats the engines that are leaving. The lock is held. */
static void team_let_go(engine_team *t) {
    for (int32_t i = 0; i < t->n_used; i++) {
        engine *e = t->seats[i].e;
        if (e == NULL || !e->place.leaves) {
            continue;
        }
        intake_cancel_all(e);
        team_publish(e);
        cache_leave(e);
        if (t->n_seated == 1 && t->entered != NULL) {
            t->entered->ops->leave(t->entered);
            t->entered = NULL;
        }
        t->entered = t->entered == e->b ? team_other_backend(t, e) : t->entered;
        t->seats[i] = (team_seat){.e = NULL};
        t->n_seated--;
        t->n_members--;
        e->place = (team_place){.next = NULL};
        pthread_cond_broadcast(&t->changed);
    }
    while (t->n_used > 0 && t->seats[t->n_used - 1].e == NULL) {
        t->n_used--;
    }
}

/* Makes this thread a compute thread of an engine's backend, if there is an engine. */
static void team_enter(engine_team *t) {
    for (int32_t i = 0; i < t->n_used && t->entered == NULL; i++) {
        const engine *e = t->seats[i].e;
        if (e != NULL && e->b->ops->enter != NULL) {
            t->entered = e->b;
            t->entered->ops->enter(t->entered);
        }
    }
}

/* Finds which engines have work in this round, and makes those claim their floors. */
static void team_look(engine_team *t) {
    turn_claim busy[ENGINE_TEAM_SEATS];
    int32_t n_busy = 0;
    for (int32_t i = 0; i < t->n_used; i++) {
        const team_seat *s = &t->seats[i];
        if (s->e != NULL && s->has_work && team_has_work(s->e)) {
            busy[n_busy++] = s->e->turn;
        }
    }
    for (int32_t i = 0; i < t->n_used; i++) {
        team_seat *s = &t->seats[i];
        if (s->e == NULL) {
            continue;
        }
        s->had_work = s->has_work;
        s->is_tried = false;
        s->has_work = team_has_work(s->e) && !atomic_load(&s->e->paused);
        cache_claim(s->e, s->has_work);
        s->e->turn.deadline_us = s->has_work && t->n_seated > 1 ? team_first_deadline(s->e) : 0;
        if (s->has_work && !s->had_work) {
            s->e->turn.served_us = turn_resume(s->e->turn.served_us, busy, n_busy, t->most_us);
        }
    }
}

/* The seat whose engine is tried next in this round; NULL if all were tried. */
static team_seat *team_next(engine_team *t) {
    turn_claim claims[ENGINE_TEAM_SEATS];
    team_seat *of[ENGINE_TEAM_SEATS];
    int32_t n = 0;
    for (int32_t i = 0; i < t->n_used; i++) {
        team_seat *s = &t->seats[i];
        if (s->e != NULL && s->has_work && !s->is_tried) {
            claims[n] = s->e->turn;
            of[n++] = s;
        }
    }
    return n == 0 ? NULL : of[n == 1 ? 0 : turn_choose(claims, n, clock_us())];
}

/* Raises the accounts of the engines that were tried before and could plan no step to
 * served_us, the account of the engine that runs now. */
static void team_pass_over(engine_team *t, double served_us) {
    for (int32_t i = 0; i < t->n_used; i++) {
        team_seat *s = &t->seats[i];
        if (s->e != NULL && s->is_tried) {
            s->e->turn.served_us = turn_pass(s->e->turn.served_us, served_us);
        }
    }
}

/* Runs a step of the first engine, in the order of turns, that can plan one. False if
 * none can. */
static bool team_step(engine_team *t) {
    bool started = false;
    for (team_seat *s = team_next(t); s != NULL && !started; s = started ? s : team_next(t)) {
        const double served_us = s->e->turn.served_us; /* the account before the step */
        s->is_tried = true;
        started = team_run_step(t, s->e);
        if (started) {
            team_pass_over(t, served_us);
        }
    }
    return started;
}

/* Lets engines without work poll what runs outside of steps, such as transfers to tiers:
 * when the wake was rung, and once after their work has ended. An engine that thereby
 * gets work waits for its turn. */
static void team_poll_idle(engine_team *t, bool is_woken) {
    for (int32_t i = 0; i < t->n_used; i++) {
        team_seat *s = &t->seats[i];
        if (s->e != NULL && !s->has_work && (is_woken || s->had_work) && !atomic_load(&s->e->paused) &&
            !team_has_work(s->e)) {
            (void)team_run_step(t, s->e);
        }
    }
}

/* Runs one round: one step, or none. Returns for how many microseconds the thread may
 * then wait for the wake; -1: until it rings. */
static int64_t team_round(engine_team *t, bool is_woken) {
    bool some_work = false;
    for (int32_t i = 0; i < t->n_used; i++) {
        engine *e = t->seats[i].e;
        if (e != NULL && atomic_exchange(&e->drops_cache, false)) {
            cache_drop(e);
        }
        if (e != NULL && atomic_load(&e->drops) != NULL) {
            cache_drop_tenants(e);
        }
    }
    team_look(t);
    const bool started = team_step(t);
    team_poll_idle(t, is_woken);
    for (int32_t i = 0; i < t->n_used; i++) {
        const team_seat *s = &t->seats[i];
        if (s->e != NULL && (s->is_tried || is_woken || s->had_work || cache_has_moved(s->e))) {
            team_publish(s->e);
            some_work = some_work || s->e->sched.n_running + s->e->sched.n_waiting > 0;
        } else if (s->e != NULL) {
            engine_view_response(s->e);
        }
    }
    return started ? 0 : some_work ? SHORT_WAIT_US : -1;
}

static void *team_main(void *arg) {
    engine_team *t = arg;
    bool is_woken = true;
    while (!atomic_load(&t->stop)) {
        pthread_mutex_lock(&t->lock);
        team_seat_arrivals(t);
        team_let_go(t);
        pthread_mutex_unlock(&t->lock);
        team_enter(t);
        const int64_t wait_us = team_round(t, is_woken);
        /* with one engine there is no need: each step takes in new requests */
        is_woken = (wait_us != 0 || t->n_seated > 1) && wake_wait(&t->wake, wait_us);
    }
    return NULL;
}

/* ---- the team ---- */

quire_err engine_team_open(engine_team **out) {
    engine_team *t = mem_new(1, sizeof *t);
    *out = NULL;
    TRY(mem_check(t));
    atomic_init(&t->n_holders, 1);
    atomic_init(&t->stop, false);
    quire_err r = wake_init(&t->wake);
    if (r != QUIRE_OK) {
        mem_free(t);
        return r;
    }
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    *out = t;
    return QUIRE_OK;
}

engine_team *engine_team_hold(engine_team *t) {
    atomic_fetch_add(&t->n_holders, 1);
    return t;
}

void engine_team_drop(engine_team *t) {
    if (t == NULL || atomic_fetch_sub(&t->n_holders, 1) > 1) {
        return;
    }
    assert(t->n_members == 0);
    if (t->has_thread) {
        atomic_store(&t->stop, true);
        wake_ring(&t->wake);
        pthread_join(t->thread, NULL);
    }
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    wake_deinit(&t->wake);
    mem_free(t);
}

const wake *engine_team_wake(const engine_team *t) {
    return &t->wake;
}

/* Waits until e has a seat. Called with the lock, which is released during the wait. */
static quire_err team_add(engine_team *t, engine *e) {
    if (t->n_members == ENGINE_TEAM_SEATS) {
        return QUIRE_TOO_LARGE;
    }
    if (!t->has_thread && pthread_create(&t->thread, NULL, team_main, t) != 0) {
        return QUIRE_NO_MEMORY;
    }
    t->has_thread = true;
    t->n_members++;
    e->place = (team_place){.is_member = true, .is_arriving = true, .next = t->arrivals};
    t->arrivals = e;
    wake_ring(&t->wake);
    while (e->place.is_arriving) {
        pthread_cond_wait(&t->changed, &t->lock);
    }
    return e->place.refused;
}

quire_err engine_team_join(engine_team *t, engine *e) {
    pthread_mutex_lock(&t->lock);
    const quire_err r = team_add(t, e);
    pthread_mutex_unlock(&t->lock);
    return r;
}

void engine_team_leave(engine_team *t, engine *e) {
    assert(e != NULL);
    pthread_mutex_lock(&t->lock);
    e->place.leaves = e->place.is_member;
    wake_ring(&t->wake);
    while (e->place.is_member) {
        pthread_cond_wait(&t->changed, &t->lock);
    }
    pthread_mutex_unlock(&t->lock);
}
