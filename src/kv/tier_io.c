#include "kv/tier_io.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/mem.h"

#define N_THREADS 4 /* a disk works on several requests at once; each thread waits for one */

typedef struct io_thread {
    kv_io *io;
    kv_io_queue jobs;
    wake wake;
    pthread_t id;
    bool runs;
} io_thread;

struct kv_io {
    kv_uring *uring; /* NULL: threads */
    kv_io_calls calls;
    kv_io_done done;
    atomic_bool stop;
    io_thread threads[N_THREADS];
    uint32_t next; /* thread that gets the next job */
};

void kv_io_finish(const kv_io_done *done, const kv_job *job) {
    while (!ring_push(done->ring, job)) { /* not reached: the ring has a cell for every job */
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

bool kv_io_queue_pop(kv_io_queue *q, kv_job *job) {
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
        /* read before the queue: jobs submitted before the stop are still done */
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
