#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/turn.h"
#include "stream/text_pool.h"
#include "stream/text_pool_impl.h"
#include "test.h"

#define LONG_US 60000 /* of processor time: many slices */

/* What jobs note as they run. */
typedef struct scene {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int32_t n_running, most_running, n_over;
    int32_t n_large, most_large; /* jobs that hold much */
} scene;

typedef struct task {
    text_job job; /* first member: a job* is a task* */
    scene *scene;
    int64_t work_us;  /* of processor time */
    int64_t limit_us; /* 0: none */
    size_t holds;     /* bytes that it takes once it has worked a little */
    bool is_rude;     /* it never gives way */
    int nice;         /* of its thread, in the end */
    atomic_bool off;
    quire_err result;
    int32_t place; /* how many were over before */
} task;

static void note(scene *s, int32_t change) {
    pthread_mutex_lock(&s->lock);
    s->n_running += change;
    s->most_running = s->n_running > s->most_running ? s->n_running : s->most_running;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void note_large(scene *s, int32_t change) {
    pthread_mutex_lock(&s->lock);
    s->n_large += change;
    s->most_large = s->n_large > s->most_large ? s->n_large : s->most_large;
    pthread_mutex_unlock(&s->lock);
}

/* Works for as long as the task says, and polls. */
static quire_err work(task *t) {
    int64_t began = clock_thread_us();
    turn_limit(t->limit_us);
    if (t->holds > 0) {
        TRY(turn_hold(t->holds));
        note_large(t->scene, 1);
    }
    while (clock_thread_us() - began < t->work_us) {
        TRY(t->is_rude ? QUIRE_OK : turn_poll(TURN_WORK));
    }
    t->nice = getpriority(PRIO_PROCESS, 0);
    return QUIRE_OK;
}

static void run(text_job *job) {
    task *t = (task *)job;
    note(t->scene, 1);
    t->result = work(t);
    if (t->holds > TEXT_SMALL_BYTES && t->result == QUIRE_OK) {
        note_large(t->scene, -1);
    }
    note(t->scene, -1);
    pthread_mutex_lock(&t->scene->lock);
    t->place = t->scene->n_over++;
    pthread_cond_broadcast(&t->scene->changed);
    pthread_mutex_unlock(&t->scene->lock);
}

static void begin(scene *s) {
    *s = (scene){0};
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
}

static void end(scene *s) {
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
}

static task task_of(scene *s, const char *tenant, int64_t work_us) {
    task t = {.scene = s, .work_us = work_us};
    t.job =
        (text_job){.run = run, .tenant = text_tenant(tenant), .n_bytes = (size_t)work_us * TEXT_BYTES_A_US};
    return t;
}

/* Waits until so many jobs run, in the middle or not. */
static void wait_running(scene *s, int32_t n) {
    pthread_mutex_lock(&s->lock);
    while (s->n_running < n) {
        pthread_cond_wait(&s->changed, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
}

static void wait_over(scene *s, int32_t n) {
    pthread_mutex_lock(&s->lock);
    while (s->n_over < n) {
        pthread_cond_wait(&s->changed, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
}

TEST(a_short_job_of_another_tenant_is_over_before_long_ones_that_run) {
    for (int32_t n_running = 1; n_running <= 2; n_running++) {
        scene s;
        text_pool *p;
        task hog[6], small;
        begin(&s);
        assert_int_equal(text_pool_open(n_running, TEXT_POOL_THREADS, &p), QUIRE_OK);
        for (int i = 0; i < 6; i++) {
            hog[i] = task_of(&s, "hog", LONG_US);
            text_pool_add(p, &hog[i].job);
        }
        wait_running(&s, n_running);
        small = task_of(&s, "small", 200);
        text_pool_add(p, &small.job);
        wait_over(&s, 7);
        text_pool_close(p);
        assert_int_equal(small.place, 0);
        assert_int_equal(s.n_over, 7);
        end(&s);
    }
}

/* So a slice that is longer than it should be, or a thread that the system has stopped,
 * holds up no quick job. */
TEST(a_quick_job_runs_beside_a_slow_one_that_does_not_give_way) {
    scene s;
    text_pool *p;
    begin(&s);
    assert_int_equal(text_pool_open(1, TEXT_POOL_THREADS, &p), QUIRE_OK);
    task slow = task_of(&s, "a", 5 * LONG_US), quick = task_of(&s, "b", 200);
    slow.is_rude = true;
    text_pool_add(p, &slow.job);
    wait_running(&s, 1);
    text_pool_add(p, &quick.job);
    wait_over(&s, 2);
    text_pool_close(p);
    assert_int_equal(quick.place, 0);
    end(&s);
}

/* Long texts, and jobs that have turned out to take long. A quick job queued behind them
 * gets a thread of the usual priority. */
TEST(slow_jobs_have_threads_of_low_priority) {
    int usual = getpriority(PRIO_PROCESS, 0), low = usual + TEXT_SLOW_NICE > 19 ? 19 : usual + TEXT_SLOW_NICE;
    scene s;
    text_pool *p;
    begin(&s);
    assert_int_equal(text_pool_open(1, TEXT_POOL_THREADS, &p), QUIRE_OK);
    for (int32_t i = 0; i < 3; i++) {
        task known = task_of(&s, "a", LONG_US), turns = task_of(&s, "a", LONG_US),
             quick = task_of(&s, "a", 200);
        turns.job.n_bytes = 1;
        text_pool_add(p, &known.job);
        text_pool_add(p, &turns.job);
        wait_over(&s, 3 * i + 2);
        text_pool_add(p, &quick.job);
        wait_over(&s, 3 * i + 3);
        assert_int_equal(known.nice, low);
        assert_int_equal(turns.nice, low);
        assert_int_equal(quick.nice, usual);
    }
    text_pool_close(p);
    end(&s);
}

TEST(of_one_tenant_the_job_with_least_left_is_over_first) {
    scene s;
    text_pool *p;
    task jobs[3];
    begin(&s);
    assert_int_equal(text_pool_open(1, TEXT_POOL_THREADS, &p), QUIRE_OK);
    jobs[0] = task_of(&s, "a", 3 * LONG_US);
    text_pool_add(p, &jobs[0].job);
    wait_running(&s, 1);
    jobs[1] = task_of(&s, "a", 2 * LONG_US);
    jobs[2] = task_of(&s, "a", LONG_US / 2);
    text_pool_add(p, &jobs[1].job);
    text_pool_add(p, &jobs[2].job);
    wait_over(&s, 3);
    text_pool_close(p);
    assert_int_equal(jobs[2].place, 0);
    assert_true(jobs[0].place > 0 && jobs[1].place > 0);
    end(&s);
}

/* A tenant with many jobs gets no more than one with a single job of the same length:
 * that one is over before most of the others. */
TEST(tenants_take_turns_however_many_jobs_they_have) {
    scene s;
    text_pool *p;
    task many[8], one;
    begin(&s);
    assert_int_equal(text_pool_open(1, TEXT_POOL_THREADS, &p), QUIRE_OK);
    for (int i = 0; i < 8; i++) {
        many[i] = task_of(&s, "many", LONG_US / 2);
        text_pool_add(p, &many[i].job);
    }
    wait_running(&s, 1);
    one = task_of(&s, "one", LONG_US / 2);
    text_pool_add(p, &one.job);
    wait_over(&s, 9);
    text_pool_close(p);
    assert_true(one.place <= 2);
    end(&s);
}

TEST(a_cancelled_job_is_given_up_at_its_next_slice) {
    scene s;
    text_pool *p;
    begin(&s);
    assert_int_equal(text_pool_open(1, TEXT_POOL_THREADS, &p), QUIRE_OK);
    task t = task_of(&s, "a", INT64_MAX);
    t.job.n_bytes = 1;
    t.job.is_off = &t.off;
    text_pool_add(p, &t.job);
    wait_running(&s, 1);
    atomic_store(&t.off, true);
    wait_over(&s, 1);
    assert_int_equal(t.result, QUIRE_CANCELLED);
    text_pool_close(p);
    end(&s);
}

TEST(a_job_past_its_limit_of_processor_time_is_too_large) {
    scene s;
    text_pool *p;
    begin(&s);
    assert_int_equal(text_pool_open(2, TEXT_POOL_THREADS, &p), QUIRE_OK);
    task t = task_of(&s, "a", INT64_MAX), other = task_of(&s, "b", LONG_US);
    t.limit_us = 5000;
    text_pool_add(p, &t.job);
    text_pool_add(p, &other.job);
    wait_over(&s, 2);
    assert_int_equal(t.result, QUIRE_TOO_LARGE);
    assert_int_equal(other.result, QUIRE_OK);
    text_pool_close(p);
    end(&s);
}

/* More jobs in the middle than threads: each tenant's second job would preempt its first.
 * All are run, none is lost. */
TEST(more_jobs_than_threads_are_all_run) {
    enum { N = 3 * TEXT_POOL_THREADS };
    static task jobs[N];
    scene s;
    text_pool *p;
    begin(&s);
    assert_int_equal(text_pool_open(2, TEXT_POOL_THREADS, &p), QUIRE_OK);
    for (int i = 0; i < N; i++) {
        char tenant[16];
        snprintf(tenant, sizeof tenant, "tenant %d", i % (N / 2));
        jobs[i] = task_of(&s, tenant, i < N / 2 ? 4000 : 1500);
        text_pool_add(p, &jobs[i].job);
    }
    text_pool_close(p); /* which runs what waits */
    assert_int_equal(s.n_over, N);
    for (int i = 0; i < N; i++) {
        assert_int_equal(jobs[i].result, QUIRE_OK);
    }
    end(&s);
}

/* Five tenants' jobs want a quarter of a gigabyte each: one has it at a time, and those
 * that want little go on meanwhile. */
TEST(one_job_at_a_time_holds_much_and_small_ones_do_not_wait) {
    scene s;
    text_pool *p;
    task large[5], small;
    begin(&s);
    assert_int_equal(text_pool_open(2, TEXT_POOL_THREADS, &p), QUIRE_OK);
    for (int i = 0; i < 5; i++) {
        char tenant[16];
        snprintf(tenant, sizeof tenant, "tenant %d", i);
        large[i] = task_of(&s, tenant, LONG_US);
        large[i].job.n_bytes = 1;
        large[i].holds = (size_t)256 << 20;
        text_pool_add(p, &large[i].job);
    }
    wait_running(&s, 2);
    small = task_of(&s, "small", 200);
    small.holds = TEXT_SMALL_BYTES;
    text_pool_add(p, &small.job);
    wait_over(&s, 6);
    text_pool_close(p);
    assert_int_equal(small.place, 0);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(large[i].result, QUIRE_OK);
    }
    assert_in_range(s.most_large, 1, 2); /* the small one counts too */
    end(&s);
}

TEST(who_waits_to_hold_much_and_is_cancelled_ends) {
    scene s;
    text_pool *p;
    begin(&s);
    assert_int_equal(text_pool_open(2, TEXT_POOL_THREADS, &p), QUIRE_OK);
    task holder = task_of(&s, "a", 20 * LONG_US), other = task_of(&s, "b", LONG_US),
         small = task_of(&s, "c", 200);
    holder.holds = other.holds = TEXT_SMALL_BYTES + 1;
    holder.job.n_bytes = other.job.n_bytes = 1;
    holder.job.is_off = &holder.off;
    other.job.is_off = &other.off;
    text_pool_add(p, &holder.job);
    wait_running(&s, 1);
    text_pool_add(p, &other.job);
    wait_running(&s, 2);
    atomic_store(&other.off, true);
    text_pool_add(p, &small.job); /* at whose beginning or end the pool looks again */
    wait_over(&s, 2);
    assert_int_equal(other.result, QUIRE_CANCELLED);
    atomic_store(&holder.off, true);
    wait_over(&s, 3);
    text_pool_close(p);
    end(&s);
}

/* Texts whose bytes are counted: of three that need over half of what there is one runs
 * at a time. */
TEST(long_texts_begin_where_their_bytes_fit) {
    scene s;
    text_pool *p;
    task longs[3], small;
    begin(&s);
    assert_int_equal(text_pool_open(4, TEXT_POOL_THREADS, &p), QUIRE_OK);
    for (int i = 0; i < 3; i++) {
        longs[i] = task_of(&s, i == 0 ? "a" : i == 1 ? "b" : "c", LONG_US);
        longs[i].job.n_bytes = (TEXT_LONG_BYTES / 2 + 1) / TEXT_HELD_A_BYTE + 1;
        text_pool_add(p, &longs[i].job);
    }
    wait_running(&s, 1);
    small = task_of(&s, "small", 200);
    text_pool_add(p, &small.job);
    wait_over(&s, 4);
    text_pool_close(p);
    assert_int_equal(small.place, 0);
    assert_in_range(s.most_running, 1, 2);
    end(&s);
}

/* A tenant's endless jobs, each of which goes before those that have run already, so that
 * all would begin and none end. */
TEST(a_tenant_has_a_part_of_the_threads_in_the_middle) {
    enum { N = 24, THREADS = 16, PART = THREADS / TEXT_TENANT_PART };
    scene s;
    text_pool *p;
    task hog[N], small;
    begin(&s);
    assert_int_equal(text_pool_open(1, THREADS, &p), QUIRE_OK);
    for (int i = 0; i < N; i++) {
        hog[i] = task_of(&s, "hog", INT64_MAX);
        hog[i].job.n_bytes = 1;
        hog[i].job.is_off = &hog[i].off;
        text_pool_add(p, &hog[i].job);
    }
    wait_running(&s, PART);
    for (int i = 0; i < 2 * N; i++) {
        small = task_of(&s, "small", 200);
        text_pool_add(p, &small.job);
        wait_over(&s, i + 1);
    }
    for (int i = 0; i < N; i++) {
        atomic_store(&hog[i].off, true);
    }
    wait_over(&s, 3 * N);
    text_pool_close(p);
    assert_true(s.most_running <= PART + 1);
    end(&s);
}

/* ---- who goes on, by counted work: a pool of one processor and no threads, in which a
 * slice is TEXT_SLICE_US exactly ---- */

static text_pool *counted_pool(void) {
    text_pool *p = calloc(1, sizeof *p);
    p->last = &p->first;
    p->n_places = p->n_workers = p->max_workers = p->most_workers = TEXT_POOL_THREADS;
    p->max_running = 1;
    for (int32_t i = 0; i < TEXT_POOL_THREADS; i++) {
        p->workers[i] = (worker){.pool = p, .state = WORKER_IDLE};
    }
    return p;
}

typedef struct counted_job {
    text_job job;
    int64_t work_us, began_at, ended_at; /* ended_at: what the pool had worked; 0: it is not over */
} counted_job;

static void add_counted(text_pool *p, counted_job *j, const char *tenant, int64_t work_us) {
    *j = (counted_job){.work_us = work_us, .began_at = -1};
    j->job = (text_job){.tenant = text_tenant(tenant), .n_bytes = (size_t)work_us * TEXT_BYTES_A_US};
    text_enter(p, &j->job);
}

static worker *idle_worker(text_pool *p) {
    for (int32_t i = 0; i < TEXT_POOL_THREADS; i++) {
        if (p->workers[i].state == WORKER_IDLE) {
            return &p->workers[i];
        }
    }
    return NULL;
}

/* Runs a slice of the job whose turn it is, which is returned. */
static counted_job *run_slice(text_pool *p, bool slow) {
    candidate c = text_next(p, slow);
    assert_false(text_is_nobody(&c));
    worker *w = c.worker != NULL ? c.worker : idle_worker(p);
    if (c.job != NULL) {
        w->is_slow = slow;
        text_begin(w, &c);
    }
    counted_job *j = (counted_job *)w->job;
    j->began_at = j->began_at < 0 ? p->worked_us : j->began_at;
    int64_t left = j->work_us - w->turn.used_us;
    text_charge(w, left < TEXT_SLICE_US ? left : TEXT_SLICE_US);
    w->state = WORKER_WAITS;
    if (w->turn.used_us == j->work_us) {
        p->text_bytes -= w->text_bytes;
        text_leave(w);
        w->state = WORKER_IDLE;
        j->ended_at = p->worked_us;
    }
    return j;
}

/* The 150 KB and 3 MB of a client that sends the one without pause from twelve
 * connections, and then the other. */
TEST(a_long_job_is_passed_by_no_more_work_than_its_own) {
    enum { N = 12, SHORT = 15000, LONG = 300000 };
    for (int32_t lies = 0; lies < 2; lies++) { /* some take longer than their length tells, or less long */
        text_pool *p = counted_pool();
        counted_job shorts[N], longest;
        for (int i = 0; i < N; i++) {
            add_counted(p, &shorts[i], "a", SHORT);
        }
        for (int i = 0; i < 100; i++) {
            counted_job *j = run_slice(p, true);
            if (j->ended_at > 0) {
                add_counted(p, j, "a", SHORT);
            }
        }
        int64_t from = p->worked_us;
        add_counted(p, &longest, "a", LONG);
        longest.work_us = lies ? LONG * 2 : LONG;
        while (longest.ended_at == 0) {
            counted_job *j = run_slice(p, true);
            if (j != &longest && j->ended_at > 0) {
                add_counted(p, j, "a", SHORT);
                j->work_us = lies ? SHORT * 3 / 2 : SHORT;
            }
            assert_true(p->worked_us < from + 20 * LONG);
        }
        assert_in_range(longest.began_at - from, LONG / 2, LONG + N * (lies ? SHORT * 3 / 2 : SHORT));
        if (!lies) {
            assert_in_range(longest.ended_at - from, LONG, 2 * LONG + N * SHORT);
        }
        free(p);
    }
}

/* Tenants that send one job each, of less than a slice, so that some are there all the
 * time. */
TEST(tenants_that_come_and_go_do_not_keep_out_one_that_stays) {
    enum { N = 6 };
    text_pool *p = counted_pool();
    counted_job comers[N], stays;
    char tenant[24];
    int n_come = 0;
    add_counted(p, &stays, "stays", 4000);
    (void)run_slice(p, false); /* it has used more than those that come */
    for (; n_come < N; n_come++) {
        snprintf(tenant, sizeof tenant, "tenant %d", n_come);
        add_counted(p, &comers[n_come], tenant, 500);
    }
    int64_t from = p->worked_us;
    while (stays.ended_at == 0) {
        counted_job *j = run_slice(p, false);
        if (j != &stays) {
            snprintf(tenant, sizeof tenant, "tenant %d", n_come++);
            add_counted(p, j, tenant, 500);
        }
        assert_true(p->worked_us < from + 1000000);
    }
    assert_true(stays.ended_at - from <= 4000 * (N + 2)); /* its share is one of N + 1 */
    free(p);
}

TEST(what_a_job_uses_counts_for_all_jobs_of_its_tenant) {
    text_pool *p = counted_pool();
    counted_job a[3], b[2];
    for (int i = 0; i < 3; i++) {
        add_counted(p, &a[i], "a", 10000);
    }
    for (int i = 0; i < 2; i++) {
        add_counted(p, &b[i], "b", 10000);
    }
    for (int i = 0; i < 3; i++) { /* two of a's and one of b's are in the middle */
        candidate c = {.job = i < 2 ? &p->first : &p->first->next};
        p->workers[i].is_slow = true;
        text_begin(&p->workers[i], &c);
        p->workers[i].state = WORKER_WAITS;
    }
    text_charge(&p->workers[0], 3000);
    assert_int_equal(p->workers[0].tenant_used_us, 3000);
    assert_int_equal(p->workers[1].tenant_used_us, 3000);
    assert_int_equal(a[2].job.tenant_used_us, 3000);
    assert_int_equal(p->workers[2].tenant_used_us, 0);
    assert_int_equal(b[1].job.tenant_used_us, 0);
    for (int i = 0; i < 3; i++) { /* so b has its three slices before a's other jobs */
        assert_ptr_equal(run_slice(p, true), &b[0]);
    }
    free(p);
}

TEST(outside_the_pool_a_poll_does_nothing) {
    turn_limit(1);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(turn_poll(TURN_WORK), QUIRE_OK);
    }
}

TEST_MAIN(NULL, NULL)
