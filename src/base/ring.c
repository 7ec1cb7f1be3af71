#define _GNU_SOURCE
#include "base/ring.h"

#include <assert.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"

#define PREFETCHED_AHEAD 4 /* number of cells to prefetch ahead; they are in the consumer's cache */

/* Each cell carries a turn. Position p may be written when its cell's turn is 2 p, and
 * read when it is 2 p + 1; the reader then sets 2 (p + capacity), the turn of the next
 * write. The turn's release and acquire order the copies of the entry. */
typedef struct cell {
    _Atomic size_t turn;
} cell; /* entry_bytes follow */

struct ring {
    size_t entry_bytes, cell_bytes, mask;
    char *cells;
    _Alignas(MEM_ALIGN) _Atomic size_t tail; /* next position to write */
    _Alignas(MEM_ALIGN) _Atomic size_t head; /* next position to read */
};

static cell *cell_at(const ring *r, size_t position) {
    return (cell *)(void *)(r->cells + (position & r->mask) * r->cell_bytes);
}

static void *cell_entry(cell *c) {
    return c + 1;
}

quire_err ring_open(size_t entry_bytes, size_t capacity, ring **out) {
    if (entry_bytes == 0 || capacity == 0 || (capacity & (capacity - 1)) != 0) {
        return QUIRE_INVALID;
    }
    size_t cell_bytes;
    if (!size_add(entry_bytes, sizeof(cell) + MEM_ALIGN - 1, &cell_bytes)) {
        return QUIRE_TOO_LARGE;
    }
    /* whole cache lines, so that two producers never write to the same one */
    cell_bytes &= ~(size_t)(MEM_ALIGN - 1);
    ring *r = mem_new(1, sizeof *r);
    char *cells = mem_new(capacity, cell_bytes);
    if (r == NULL || cells == NULL) {
        mem_free(r);
        mem_free(cells);
        return QUIRE_NO_MEMORY;
    }
    r->entry_bytes = entry_bytes;
    r->cell_bytes = cell_bytes;
    r->mask = capacity - 1;
    r->cells = cells;
    for (size_t i = 0; i < capacity; i++) {
        atomic_init(&cell_at(r, i)->turn, 2 * i);
    }
    *out = r;
    return QUIRE_OK;
}

void ring_close(ring *r) {
    if (r != NULL) {
        mem_free(r->cells);
        mem_free(r);
    }
}

bool ring_push(ring *r, const void *entry) {
    size_t position = atomic_load_explicit(&r->tail, memory_order_relaxed);
    for (;;) {
        cell *c = cell_at(r, position);
        size_t turn = atomic_load_explicit(&c->turn, memory_order_acquire);
        if (turn == 2 * position) {
            if (atomic_compare_exchange_weak_explicit(&r->tail, &position, position + 1, memory_order_relaxed,
                                                      memory_order_relaxed)) {
                __builtin_prefetch(cell_at(r, position + PREFETCHED_AHEAD), 1);
                memcpy(cell_entry(c), entry, r->entry_bytes);
                atomic_store_explicit(&c->turn, 2 * position + 1, memory_order_release);
                return true;
            }
        } else if ((ptrdiff_t)(turn - 2 * position) < 0) { /* still holds the entry of the previous lap */
            return false;
        } else { /* another producer has taken the position */
            position = atomic_load_explicit(&r->tail, memory_order_relaxed);
        }
    }
}

bool ring_pop(ring *r, void *entry) {
    size_t position = atomic_load_explicit(&r->head, memory_order_relaxed);
    cell *c = cell_at(r, position);
    if (atomic_load_explicit(&c->turn, memory_order_acquire) != 2 * position + 1) {
        return false;
    }
    memcpy(entry, cell_entry(c), r->entry_bytes);
    atomic_store_explicit(&r->head, position + 1, memory_order_relaxed);
    atomic_store_explicit(&c->turn, 2 * (position + r->mask + 1), memory_order_release);
    return true;
}

bool ring_is_empty(const ring *r) {
    const size_t position = atomic_load_explicit(&r->head, memory_order_relaxed);
    return atomic_load_explicit(&cell_at(r, position)->turn, memory_order_acquire) != 2 * position + 1;
}

/* ---- a wake-up between threads ---- */

quire_err wake_init(wake *w) {
    assert(w != NULL);
    w->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    w->is_open = w->fd >= 0;
    return w->is_open ? QUIRE_OK : QUIRE_IO;
}

void wake_deinit(wake *w) {
    assert(w != NULL);
    if (w->is_open) {
        close(w->fd);
        w->is_open = false;
    }
}

void wake_ring(const wake *w) {
    assert(w != NULL);
    uint64_t one = 1;
    /* fails only if the counter is full, that is, the wake is already rung */
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
        /* a signal interrupted the wait: wait again */
        (void)ppoll(&p, 1, timeout_us < 0 ? NULL : &t, NULL);
    }
}
