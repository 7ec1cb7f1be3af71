/* File transfers through io_uring: one thread submits to the kernel and takes
 * completions, so many transfers are under way at once. */
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "kv/tier_io.h"

#define DEPTH 32 /* most transfers in the kernel at once */

/* A job in the kernel: its present part, and how much of it is done. */
typedef struct uring_op {
    kv_job job;
    int32_t part;
    size_t n_done;
    int32_t next; /* the next free one */
} uring_op;

struct kv_uring {
    struct io_uring ring;
    kv_io_queue jobs;
    wake wake;
    pthread_t thread;
    atomic_bool stop;
    kv_io_done done;
    bool has_ring, runs;
    bool polls; /* a poll of `wake` is in the kernel */
    uring_op ops[DEPTH];
    int32_t free_op, n_ops;
};

/* Submits the rest of the op's part. There is always an entry: each op and the poll use
 * one at a time. */
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

/* Completes res bytes of an op's part, or its failure. */
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

/* Starts new jobs, as many as there are ops for. */
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
        /* read before the queue: jobs submitted before the stop are still done */
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
