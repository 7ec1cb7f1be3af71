#include "kv/kv_swap.h"

#include <assert.h>

#include "base/clock.h"
#include "base/mem.h"

quire_err kv_swap_open(int64_t bytes, const kv_mover *mover, kv_swap *w) {
    assert(mover != NULL);
    int64_t n = bytes / mover->page_bytes;
    n = n < INT32_MAX ? n : INT32_MAX - 1;
    *w = (kv_swap){.mover = mover};
    if (n <= 0) {
        return QUIRE_OK;
    }
    w->memory = mem_new_huge((size_t)n, (size_t)mover->page_bytes);
    w->next = mem_new((size_t)n + 1, sizeof *w->next);
    w->tags = mem_new((size_t)n + 1, sizeof *w->tags);
    if (w->memory == NULL || w->next == NULL || w->tags == NULL) {
        kv_swap_close(w);
        return QUIRE_NO_MEMORY;
    }
    w->n_frames = w->n_free = (int32_t)n;
    for (int32_t f = w->n_frames; f > 0; f--) {
        w->next[f] = w->free_frame;
        w->free_frame = f;
    }
    return QUIRE_OK;
}

void kv_swap_close(kv_swap *w) {
    assert(w != NULL);
    if (w->n_frames > 0) {
        kv_mover_wait(w->mover, w->last);
    }
    mem_free(w->memory);
    mem_free(w->next);
    mem_free(w->tags);
    *w = (kv_swap){0};
}

static unsigned char *memory_of(const kv_swap *w, int32_t frame) {
    return w->memory + (frame - 1) * w->mover->page_bytes;
}

int32_t kv_swap_probe(kv_swap *w, int32_t n, int64_t *read_us, int64_t *write_us) {
    const kv_mover *m = w->mover;
    n = w->n_frames < n ? w->n_frames : n;
    int64_t start_us = clock_us();
    for (int32_t f = 1; f <= n; f++) {
        w->last = m->read(m->context, (page_id){0}, memory_of(w, f));
    }
    kv_mover_wait(m, w->last);
    int64_t middle_us = clock_us();
    for (int32_t f = 1; f <= n; f++) {
        kv_swap_in(w, f, (page_id){0});
    }
    kv_mover_wait(m, w->last);
    *read_us = middle_us - start_us;
    *write_us = clock_us() - middle_us;
    return n;
}

void kv_swap_out(kv_swap *w, page_id page, int32_t tag, int32_t *first) {
    int32_t f = w->free_frame;
    w->free_frame = w->next[f];
    w->n_free--;
    w->last = w->mover->read(w->mover->context, page, memory_of(w, f));
    w->tags[f] = tag;
    w->next[f] = *first;
    *first = f;
}

void kv_swap_in(kv_swap *w, int32_t frame, page_id page) {
    w->last = w->mover->write(w->mover->context, page, memory_of(w, frame));
}

void kv_swap_drop(kv_swap *w, int32_t *first) {
    assert(first != NULL);
    while (*first != 0) {
        int32_t f = *first;
        *first = w->next[f];
        w->next[f] = w->free_frame;
        w->free_frame = f;
        w->n_free++;
    }
}

quire_err kv_swap_check(const kv_swap *w, quire_error *err) {
    assert(w != NULL);
    int32_t n = 0;
    for (int32_t f = w->free_frame; f != 0 && n <= w->n_free; f = w->next[f]) {
        n++;
    }
    return n == w->n_free
               ? QUIRE_OK
               : err_set(err, QUIRE_INTERNAL, -1, "swap: %d frames are counted as free", (int)w->n_free);
}
