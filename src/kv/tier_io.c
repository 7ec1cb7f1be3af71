#include "kv/tier_io.h"

#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/mem.h"

#define N_THREADS 4 /* a disk serves several requests at once, and each thread waits for one */

typedef struct io_thread {
    kv_io *io;
    kv_io_queue jobs;
    wake wake;
    pthread_t id;
    bool runs;
} io_thread;

struct kv_io {
    kv_uring *uring; /* NULL: threads are used */
    kv_io_calls calls;
    kv_io_done done;
    atomic_bool stop;
    io_thread threads[N_THREADS];
    uint32_t next; /* index of the thread that gets the next job */
};

void kv_io_finish(const kv_io_done *done, const kv_job *job) {
    while (!ring_push(done->ring, job)) { /* never loops: the ring has a cell for every job */
    }
    if (done->reader != NULL) {
        wake_ring(done->reader);
    }
}

/* ---- queued jobs ---- */

quire_err kv_io_queue_open(size_t most, kv_io_queue *q) {
    TRY(ring_open(sizeof(kv_job), most, &q->reads));
    return ring_open(sizeof(kv_job), most, &q->writes);
}

void kv_io_queue_close(kv_io_queue *q) {
    ring_close(q->reads);
    ring_close(q->writes);
}

bool kv_io_queue_push(kv_io_queue *q, const kv_job *job) {
    bool is_write = job->kind == KV_JOB_FILE_WRITE || job->kind == KV_JOB_REDIS_WRITE;
    return ring_push(is_write ? q->writes : q->reads, job);
}

/* Pops the oldest read or, if there is none, the oldest write. One thread. */
static bool kv_io_queue_pop(kv_io_queue *q, kv_job *job) {
    return ring_pop(q->reads, job) || ring_pop(q->writes, job);
}

/* ---- threads ---- */

/* Transfers the whole part, in as many calls as needed. */
static quire_err transfer(const kv_io_calls *calls, const kv_io_part *part, bool is_write) {
    char *p = part->p;
    for (size_t n = 0; n < part->n;) {
        off_t at = (off_t)(part->offset + (int64_t)n);
        ssize_t k = is_write ? calls->pwrite(part->fd, p + n, part->n - n, at)
                             : calls->pread(part->fd, p + n, part->n - n, at);
        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k <= 0) {
            return QUIRE_IO; /* an error, or the end of the file */
        }
        n += (size_t)k;
    }
    return QUIRE_OK;
}

static void *io_main(void *arg) {
    io_thread *t = arg;
    kv_job job;
    for (;;) {
        /* loaded before the queue is read, so that jobs from before the stop are done */
        bool stops = atomic_load(&t->io->stop);
        while (kv_io_queue_pop(&t->jobs, &job)) {
            job.result = QUIRE_OK;
            for (int32_t i = 0; i < job.n_parts && job.result == QUIRE_OK; i++) {
                job.result = transfer(&t->io->calls, &job.parts[i], job.kind == KV_JOB_FILE_WRITE);
            }
            kv_io_finish(&t->io->done, &job);
        }
        if (stops) {
            return NULL;
        }
        wake_wait(&t->wake, -1);
    }
}

static quire_err open_thread(kv_io *io, size_t most, io_thread *t) {
    t->io = io;
    TRY(kv_io_queue_open(most, &t->jobs));
    TRY(wake_init(&t->wake));
    t->runs = pthread_create(&t->id, NULL, io_main, t) == 0;
    return t->runs ? QUIRE_OK : QUIRE_NO_MEMORY;
}

/* ---- both ways ---- */

static quire_err tier_io_open_way(kv_io *io, kv_io_way way, size_t most) {
    if (way != KV_IO_THREADS) {
        quire_err e = kv_uring_open(most, io->done, &io->uring);
        if (e == QUIRE_OK || way == KV_IO_URING) {
            return e;
        }
    }
    for (int i = 0; i < N_THREADS; i++) {
        TRY(open_thread(io, most, &io->threads[i]));
    }
    return QUIRE_OK;
}

quire_err kv_io_open(kv_io_way way, size_t most, const kv_io_calls *calls, kv_io_done done, kv_io **out) {
    *out = NULL;
    kv_io *io = mem_new(1, sizeof *io);
    TRY(mem_check(io));
    io->calls = calls != NULL ? *calls : (kv_io_calls){pread, pwrite};
    io->done = done;
    atomic_init(&io->stop, false);
    quire_err e = tier_io_open_way(io, way, most);
    if (e != QUIRE_OK) {
        kv_io_close(io);
        return e;
    }
    *out = io;
    return QUIRE_OK;
}

void kv_io_close(kv_io *io) {
    if (io == NULL) {
        return;
    }
    atomic_store(&io->stop, true);
    for (int i = 0; i < N_THREADS; i++) {
        io_thread *t = &io->threads[i];
        if (t->runs) {
            wake_ring(&t->wake);
            pthread_join(t->id, NULL);
        }
        wake_deinit(&t->wake);
        kv_io_queue_close(&t->jobs);
    }
    kv_uring_close(io->uring);
    mem_free(io);
}

bool kv_io_submit(kv_io *io, const kv_job *job) {
    assert(io != NULL);
    if (io->uring != NULL) {
        return kv_uring_submit(io->uring, job);
    }
    io_thread *t = &io->threads[io->next++ % N_THREADS];
    if (!kv_io_queue_push(&t->jobs, job)) {
        return false;
    }
    wake_ring(&t->wake);
    return true;
}

/* File transfers with io_uring: one thread submits to the kernel and reaps completions,
 * so many transfers run at once. */

#define DEPTH 32 /* most transfers in the kernel at once */

/* A job in the kernel: its current part, and how many bytes of that are done. */
typedef struct uring_op {
    kv_job job;
    int32_t part;
    size_t n_done;
    int32_t next; /* next free op */
} uring_op;

struct kv_uring {
    struct io_uring ring;
    kv_io_queue jobs;
    wake wake;
    pthread_t thread;
    atomic_bool stop;
    kv_io_done done;
    bool has_ring, runs;
    bool polls; /* the kernel has a poll of `wake` */
    uring_op ops[DEPTH];
    int32_t free_op, n_ops;
};

/* Submits the rest of an op's current part. An entry is always free, because each op and
 * the poll use one at a time. */
static void submit_part(kv_uring *u, int32_t i) {
    uring_op *op = &u->ops[i];
    const kv_io_part *part = &op->job.parts[op->part];
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    char *p = (char *)part->p + op->n_done;
    unsigned n = (unsigned)(part->n - op->n_done < (1u << 30) ? part->n - op->n_done : 1u << 30);
    uint64_t at = (uint64_t)part->offset + op->n_done;
    if (op->job.kind == KV_JOB_FILE_WRITE) {
        io_uring_prep_write(sqe, part->fd, p, n, at);
    } else {
        io_uring_prep_read(sqe, part->fd, p, n, at);
    }
    io_uring_sqe_set_data(sqe, op);
}

static void end_op(kv_uring *u, int32_t i, quire_err result) {
    uring_op *op = &u->ops[i];
    op->job.result = result;
    kv_io_finish(&u->done, &op->job);
    op->next = u->free_op;
    u->free_op = i;
    u->n_ops--;
}

/* Handles a completion: res bytes of the op's current part, or a failure. */
static void advance_op(kv_uring *u, int32_t i, int res) {
    uring_op *op = &u->ops[i];
    if (res == -EINTR || res == -EAGAIN) {
        submit_part(u, i);
        return;
    }
    if (res <= 0) {
        end_op(u, i, QUIRE_IO);
        return;
    }
    op->n_done += (size_t)res;
    if (op->n_done == op->job.parts[op->part].n) {
        op->part++;
        op->n_done = 0;
    }
    if (op->part == op->job.n_parts) {
        end_op(u, i, QUIRE_OK);
    } else {
        submit_part(u, i);
    }
}

/* Starts new jobs while ops are free. */
static void take_jobs(kv_uring *u) {
    while (u->n_ops < DEPTH && kv_io_queue_pop(&u->jobs, &u->ops[u->free_op].job)) {
        int32_t i = u->free_op;
        u->free_op = u->ops[i].next;
        u->ops[i].part = 0;
        u->ops[i].n_done = 0;
        u->n_ops++;
        submit_part(u, i);
    }
}

static void watch_wake(kv_uring *u) {
    if (!u->polls) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
        io_uring_prep_poll_add(sqe, u->wake.fd, POLLIN);
        io_uring_sqe_set_data(sqe, u);
        u->polls = true;
    }
}

static void take_completions(kv_uring *u) {
    struct io_uring_cqe *cqe;
    while (io_uring_peek_cqe(&u->ring, &cqe) == 0) {
        void *of = io_uring_cqe_get_data(cqe);
        int res = cqe->res;
        io_uring_cqe_seen(&u->ring, cqe);
        if (of == u) {
            u->polls = false;
            wake_wait(&u->wake, 0);
        } else {
            advance_op(u, (int32_t)((uring_op *)of - u->ops), res);
        }
    }
}

static void *uring_main(void *arg) {
    kv_uring *u = arg;
    for (;;) {
        /* loaded before the queue is read, so that jobs from before the stop are done */
        bool stops = atomic_load(&u->stop);
        take_jobs(u);
        if (stops && u->n_ops == 0) {
            return NULL;
        }
        watch_wake(u);
        io_uring_submit_and_wait(&u->ring, 1);
        take_completions(u);
    }
}

static quire_err tier_uring_open_parts(kv_uring *u, size_t most) {
    if (io_uring_queue_init(2 * DEPTH, &u->ring, 0) != 0) {
        return QUIRE_UNSUPPORTED;
    }
    u->has_ring = true;
    struct io_uring_probe *probe = io_uring_get_probe_ring(&u->ring);
    bool can = probe != NULL && io_uring_opcode_supported(probe, IORING_OP_READ) &&
               io_uring_opcode_supported(probe, IORING_OP_WRITE) &&
               io_uring_opcode_supported(probe, IORING_OP_POLL_ADD);
    io_uring_free_probe(probe);
    if (!can) {
        return QUIRE_UNSUPPORTED;
    }
    TRY(kv_io_queue_open(most, &u->jobs));
    TRY(wake_init(&u->wake));
    for (int32_t i = 0; i < DEPTH; i++) {
        u->ops[i].next = i + 1;
    }
    u->runs = pthread_create(&u->thread, NULL, uring_main, u) == 0;
    return u->runs ? QUIRE_OK : QUIRE_NO_MEMORY;
}

quire_err kv_uring_open(size_t most, kv_io_done done, kv_uring **out) {
    *out = NULL;
    kv_uring *u = mem_new(1, sizeof *u);
    TRY(mem_check(u));
    u->done = done;
    atomic_init(&u->stop, false);
    quire_err e = tier_uring_open_parts(u, most);
    if (e != QUIRE_OK) {
        kv_uring_close(u);
        return e;
    }
    *out = u;
    return QUIRE_OK;
}

void kv_uring_close(kv_uring *u) {
    if (u == NULL) {
        return;
    }
    if (u->runs) {
        atomic_store(&u->stop, true);
        wake_ring(&u->wake);
        pthread_join(u->thread, NULL);
    }
    if (u->has_ring) {
        io_uring_queue_exit(&u->ring);
    }
    wake_deinit(&u->wake);
    kv_io_queue_close(&u->jobs);
    mem_free(u);
}

bool kv_uring_submit(kv_uring *u, const kv_job *job) {
    if (!kv_io_queue_push(&u->jobs, job)) {
        return false;
    }
    wake_ring(&u->wake);
    return true;
}
