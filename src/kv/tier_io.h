/* Asynchronous reads and writes of a tier's file: with io_uring if the kernel allows it,
 * else with a few threads that call pread and pwrite. The engine thread submits jobs, and
 * a done ring returns each of them once, in any order. Reads go before writes, because
 * requests wait for them.
 *
 * Owner: the engine thread. A job's memory belongs to the transfer until the job is
 * returned. */
#ifndef KV_TIER_IO_H
#define KV_TIER_IO_H

#include <sys/types.h>

#include "base/ring.h"

/* One extent of a file, and the memory to copy from or to. */
typedef struct kv_io_part {
    int fd;
    void *p;
    size_t n;
    int64_t offset;
} kv_io_part;

typedef enum kv_job_kind {
    KV_JOB_FILE_READ,
    KV_JOB_FILE_WRITE,
    KV_JOB_REDIS_READ,
    KV_JOB_REDIS_WRITE
} kv_job_kind;

/* One transfer of a frame. kind, frame and slot are data of the submitter, and come back
 * unchanged. */
typedef struct kv_job {
    kv_job_kind kind;
    int32_t frame, slot;
    kv_io_part parts[2]; /* for a file: transferred in order */
    int32_t n_parts;
    /* QUIRE_OK, QUIRE_NOT_FOUND, QUIRE_BAD_FILE (a wrong or damaged record), QUIRE_IO */
    quire_err result;
} kv_job;

/* The destination of finished jobs. */
typedef struct kv_io_done {
    ring *ring;         /* ring of kv_job, with cells for all jobs: never full */
    const wake *reader; /* woken after each push; NULL: none */
} kv_io_done;

/* Returns a finished job through the ring. Any thread. */
void kv_io_finish(const kv_io_done *done, const kv_job *job);

typedef struct kv_io kv_io;

typedef enum kv_io_way { KV_IO_AUTO, KV_IO_URING, KV_IO_THREADS } kv_io_way;

/* System calls, replaceable so that tests can make them fail. They behave as pread and
 * pwrite. */
typedef struct kv_io_calls {
    ssize_t (*pread)(int fd, void *p, size_t n, off_t offset);
    ssize_t (*pwrite)(int fd, const void *p, size_t n, off_t offset);
} kv_io_calls;

/* Opens a queue of at most `most` jobs, a power of two. KV_IO_AUTO uses io_uring if it
 * opens. calls: used only by threads; NULL: those of the system. QUIRE_UNSUPPORTED:
 * KV_IO_URING does not open. */
quire_err kv_io_open(kv_io_way way, size_t most, const kv_io_calls *calls, kv_io_done done, kv_io **out);
/* Waits for every submitted job, then closes. */
void kv_io_close(kv_io *io);
/* Submits a job. False: the queue is full. */
bool kv_io_submit(kv_io *io, const kv_job *job);

/* A queue of reads and a queue of writes. */
typedef struct kv_io_queue {
    ring *reads, *writes;
} kv_io_queue;

/* Opens two queues of `most` jobs each, a power of two. Close *q also after an error. */
quire_err kv_io_queue_open(size_t most, kv_io_queue *q);
void kv_io_queue_close(kv_io_queue *q);
/* Adds a job to the queue of its kind. False: the queue is full. */
bool kv_io_queue_push(kv_io_queue *q, const kv_job *job);

/* ---- the two ways, for tier_io.c ---- */
typedef struct kv_uring kv_uring;
quire_err kv_uring_open(size_t most, kv_io_done done, kv_uring **out);
void kv_uring_close(kv_uring *u);
bool kv_uring_submit(kv_uring *u, const kv_job *job);

#endif
