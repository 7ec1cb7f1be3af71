/* ppoll(), which waits with microseconds, is outside POSIX.1-2008. */
#define _GNU_SOURCE

#include "base/wake.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

quire_err wake_init(wake *w) {
    w->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    w->is_open = w->fd >= 0;
    return w->is_open ? QUIRE_OK : QUIRE_IO;
}

void wake_deinit(wake *w) {
    if (w->is_open) {
        close(w->fd);
        w->is_open = false;
    }
}

void wake_ring(const wake *w) {
    uint64_t one = 1;
    /* fails only when the count is full: then it is rung already */
    ssize_t n = write(w->fd, &one, sizeof one);
    (void)n;
}

bool wake_wait(const wake *w, int64_t timeout_us) {
    int64_t deadline = timeout_us > 0 ? clock_us() + timeout_us : 0;
    for (;;) {
        uint64_t count;
        if (read(w->fd, &count, sizeof count) == (ssize_t)sizeof count) {
            return true;
        }
        int64_t left = timeout_us > 0 ? deadline - clock_us() : 0;
        if (timeout_us >= 0 && left <= 0) {
            return false;
        }
        struct timespec t = {.tv_sec = (time_t)(left / 1000000), .tv_nsec = (long)(left % 1000000) * 1000};
        struct pollfd p = {.fd = w->fd, .events = POLLIN};
        /* a signal ends the wait, and the loop waits again */
        (void)ppoll(&p, 1, timeout_us < 0 ? NULL : &t, NULL);
    }
}
