/* A wake-up between threads: an eventfd that any thread may ring and one thread waits on.
 * Rings before the wait are not lost, and count as one. A zeroed wake is closed. */
#ifndef BASE_WAKE_H
#define BASE_WAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct wake {
    int fd;
    bool is_open;
} wake;

quire_err wake_init(wake *w);
void wake_deinit(wake *w);
/* Any thread. */
void wake_ring(const wake *w);
/* Waits until rung or timeout_us passed (-1: for ever), and clears it. True when rung.
 * One thread. */
bool wake_wait(const wake *w, int64_t timeout_us);

#endif
