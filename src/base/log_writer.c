#include "base/log_writer.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define MAX_LINES   1024    /* that wait */
#define STOP_US     1000000 /* for a slow reader, at log_stop */
#define READY_MS    100     /* between looks whether log_stop was called */
#define PIECE_BYTES 4096    /* so much a pipe takes in at once when poll calls it ready (PIPE_BUF on Linux) */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    strbuf lines[MAX_LINES]; /* a ring: n of them wait, from `first` on */
    size_t first, n;
    int64_t n_lost; /* not returned yet */
    bool is_running;
    pthread_t thread;
    _Atomic int64_t stop_at_us; /* when log_stop ends; 0: it was not called */
} writer = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Writes in one call, unless a pipe is nearly full. Blocks. */
static void write_now(const char *p, size_t n) {
    for (size_t done = 0; done < n;) {
        ssize_t w = write(STDERR_FILENO, p + done, n - done);
        if (w <= 0) {
            return;
        }
        done += (size_t)w;
    }
}

/* Waits until stderr takes a piece; false when log_stop waits no longer. */
static bool wait_until_ready(void) {
    for (;;) {
        struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
        int64_t stop_at_us = atomic_load(&writer.stop_at_us);
        bool is_over = stop_at_us > 0 && clock_us() >= stop_at_us;
        if (poll(&p, 1, is_over ? 0 : READY_MS) > 0) {
            return true; /* even if it has no reader: write reports that */
        }
        if (is_over) {
            return false;
        }
    }
}

static void write_when_ready(const char *p, size_t n) {
    for (size_t done = 0; done < n;) {
        size_t piece = n - done < PIECE_BYTES ? n - done : PIECE_BYTES;
        if (!wait_until_ready()) {
            return;
        }
        write_now(p + done, piece);
        done += piece;
    }
}

/* ---- the thread ---- */

/* Takes the next line, and waits for it; false at the end. */
static bool log_writer_take(strbuf *line) {
    pthread_mutex_lock(&writer.lock);
    while (writer.n == 0 && writer.is_running) {
        pthread_cond_wait(&writer.changed, &writer.lock);
    }
    bool got = writer.n > 0;
    if (got) {
        *line = writer.lines[writer.first];
        writer.first = (writer.first + 1) % MAX_LINES;
        writer.n--;
    }
    pthread_mutex_unlock(&writer.lock);
    return got;
}

static void *log_writer_run(void *arg) {
    (void)arg;
    for (strbuf line; log_writer_take(&line); strbuf_deinit(&line)) {
        write_when_ready(line.p, line.n);
    }
    return NULL;
}

quire_err log_start(void) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_mutex_lock(&writer.lock); /* the thread waits for it */
    atomic_store(&writer.stop_at_us, 0);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the threads that wait for them */
    bool failed = pthread_create(&writer.thread, NULL, log_writer_run, NULL) != 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    writer.is_running = !failed;
    pthread_mutex_unlock(&writer.lock);
    return failed ? QUIRE_NO_MEMORY : QUIRE_OK;
}

void log_stop(void) {
    pthread_mutex_lock(&writer.lock);
    bool was_running = writer.is_running;
    writer.is_running = false;
    atomic_store(&writer.stop_at_us, clock_us() + STOP_US);
    pthread_cond_signal(&writer.changed);
    pthread_mutex_unlock(&writer.lock);
    if (was_running) {
        pthread_join(writer.thread, NULL);
    }
}

/* ---- any thread ---- */

/* Queues a line; false where none are queued. */
static bool put_in_queue(strbuf *line, int64_t n_reported, int64_t *n_lost) {
    pthread_mutex_lock(&writer.lock);
    bool is_running = writer.is_running, is_lost = line->n == 0 || (is_running && writer.n == MAX_LINES);
    if (is_lost) {
        writer.n_lost += n_reported > 0 ? n_reported : 1;
    } else {
        *n_lost = writer.n_lost;
        writer.n_lost = 0;
    }
    if (is_running && !is_lost) {
        writer.lines[(writer.first + writer.n++) % MAX_LINES] = *line;
        *line = (strbuf){0};
        pthread_cond_signal(&writer.changed);
    }
    pthread_mutex_unlock(&writer.lock);
    return is_running;
}

int64_t log_writer_put(strbuf *line, int64_t n_reported) {
    int64_t n_lost = 0;
    if (!put_in_queue(line, n_reported, &n_lost)) {
        write_now(line->p, line->n);
    }
    strbuf_deinit(line);
    return n_lost;
}
