#include "engine/swap.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/cache.h"
#include "engine/explain.h"
#include "sched/preempt_cost.h"

#define FRAME_NONE    (-1)
#define PROBED_FRAMES 16 /* copied at open, so that the first preemption has a measured cost */

/* Frames of host memory, each of which holds one page of one sequence; a sequence's frames are a list. */
struct swap {
    unsigned char *memory; /* [n_frames, page_bytes] */
    int32_t *next;         /* [n_frames] the next in a sequence's list, or in the free list */
    int32_t *page;         /* [n_frames] which of the sequence's pages it holds, page * n_groups + group */
    int32_t n_frames, n_free, free_frame;
    copy_cost out, in;
};

/* Measures the cost of copies. The pool is still empty: its first page may be overwritten. */
static void probe(engine *e) {
    swap *w = e->swap;
    int32_t n = w->n_frames < PROBED_FRAMES ? w->n_frames : PROBED_FRAMES;
    int64_t start_us = clock_us();
    for (int32_t f = 0; f < n; f++) {
        e->b->ops->kv_read_page(e->b, 0, w->memory + f * e->layout.page_bytes);
    }
    int64_t middle_us = clock_us();
    for (int32_t f = 0; f < n; f++) {
        e->b->ops->kv_write_page(e->b, 0, w->memory + f * e->layout.page_bytes);
    }
    copy_cost_note(&w->out, n, (double)(middle_us - start_us));
    copy_cost_note(&w->in, n, (double)(clock_us() - middle_us));
}

quire_err swap_open(engine *e, quire_error *err) {
    int64_t n = e->options.swap_bytes / e->layout.page_bytes;
    if (n <= 0) {
        return QUIRE_OK;
    }
    n = n < INT32_MAX ? n : INT32_MAX - 1;
    swap *w = e->swap = mem_new(1, sizeof *w);
    if (w) {
        w->memory = mem_new_huge((size_t)n, (size_t)e->layout.page_bytes);
        w->next = mem_new((size_t)n, sizeof *w->next);
        w->page = mem_new((size_t)n, sizeof *w->page);
    }
    if (!w || !w->memory || !w->next || !w->page) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "no memory for %lld bytes of swap space; lower --swap-space",
                       (long long)e->options.swap_bytes);
    }
    w->n_frames = w->n_free = (int32_t)n;
    w->free_frame = FRAME_NONE;
    for (int32_t f = w->n_frames - 1; f >= 0; f--) {
        w->next[f] = w->free_frame;
        w->free_frame = f;
    }
    probe(e);
    return QUIRE_OK;
}

void swap_close(engine *e) {
    if (e->swap) {
        mem_free(e->swap->memory);
        mem_free(e->swap->next);
        mem_free(e->swap->page);
        mem_free(e->swap);
        e->swap = NULL;
    }
}

/* Leading whole pages that others hold in every group. */
static int32_t shared_pages(const engine *e, const sequence *s) {
    int32_t n = 0;
    for (; n < s->task.kv.n_computed / e->layout.page_tokens; n++) {
        for (int32_t g = 0; g < s->task.kv.n_tables; g++) {
            if (kv_seq_holders(&e->kv, &s->task.kv, g, n) < 2) {
                return n;
            }
        }
    }
    return n;
}

/* Pages of s from page `from` of tokens on, in all groups. */
static int32_t count_pages(const sequence *s, int32_t from) {
    int32_t n = 0;
    for (int32_t g = 0; g < s->task.kv.n_tables; g++) {
        for (int32_t i = from; i < s->task.kv.tables[g].n_pages; i++) {
            n += s->task.kv.tables[g].pages[i].v != PAGE_NONE.v;
        }
    }
    return n;
}

/* Whether to swap s out. Not while its prompt's logits are collected, since then all of it is computed again. Its first `from` pages of
 * tokens, which other holders keep, cost nothing either way. */
static bool swap_pays(const engine *e, const sequence *s, int32_t from, int32_t n_pages) {
    const swap *w = e->swap;
    sched_cost cost = step_cost_fit(&e->sched.step_cost);
    preempt_case c = {.n_pages = n_pages,
                      .from = from * e->layout.page_tokens,
                      .to = s->task.kv.n_computed,
                      .max_rows =
                          e->sched.limits.max_rows < e->sched.limits.max_chunk ? e->sched.limits.max_rows : e->sched.limits.max_chunk};
    return n_pages > 0 && n_pages <= w->n_free && !task_wants_logits(&s->task) &&
           preempt_swaps(e->options.preempt, &c, &w->out, &w->in, &cost);
}

/* Records the cost of copying n pages since then. */
static void note_copies(engine *e, copy_cost *learns, int32_t n, int64_t since_us) {
    int64_t us = clock_us() - since_us;
    if (n > 0) {
        copy_cost_note(learns, n, (double)us);
    }
    e->stats.swapped_pages += n;
    e->stats.swap_us += us;
}

void swap_out(engine *e, sequence *s) {
    swap *w = e->swap;
    if (!w) {
        return;
    }
    swap_drop(e, s);
    int32_t from = s->task.kv.has_path ? shared_pages(e, s) : 0;
    int32_t n_pages = count_pages(s, from);
    if (!swap_pays(e, s, from, n_pages)) {
        return;
    }
    int64_t start_us = clock_us();
    for (int32_t g = 0; g < s->task.kv.n_tables; g++) {
        for (int32_t i = from; i < s->task.kv.tables[g].n_pages; i++) {
            page_id page = s->task.kv.tables[g].pages[i];
            if (page.v == PAGE_NONE.v) {
                continue;
            }
            int32_t f = w->free_frame;
            w->free_frame = w->next[f];
            w->n_free--;
            e->b->ops->kv_read_page(e->b, page.v, w->memory + f * e->layout.page_bytes);
            w->page[f] = i * s->task.kv.n_tables + g;
            w->next[f] = s->swap_frames - 1;
            s->swap_frames = f + 1;
        }
    }
    note_copies(e, &w->out, n_pages, start_us);
    explain_swapped(s, n_pages * e->layout.page_bytes);
    s->swap_from = from * e->layout.page_tokens;
    s->swap_tokens = s->task.kv.n_computed;
    e->stats.swapped_out++;
}

int32_t swap_peek(const engine *e, const sequence *s, int32_t n_cached) {
    bool is_whole = s->swap_frames > 0 && n_cached / e->layout.page_tokens * e->layout.page_tokens >= s->swap_from;
    return is_whole && s->swap_tokens > n_cached ? s->swap_tokens : n_cached;
}

void swap_drop(engine *e, sequence *s) {
    while (s->swap_frames > 0) {
        int32_t f = s->swap_frames - 1;
        s->swap_frames = e->swap->next[f] + 1;
        e->swap->next[f] = e->swap->free_frame;
        e->swap->free_frame = f;
        e->swap->n_free++;
    }
}

/* Reserves pages for s up to swap_tokens, in all groups or in none. */
static quire_err reserve(engine *e, sequence *s) {
    kv_copies none = {0}; /* its tokens end with a page: nothing is copied */
    int32_t n = s->swap_tokens - s->task.kv.n_computed;
    kv_cache_make_free(&e->kv, (int32_t)kv_seq_needs(&e->kv, &s->task.kv, n));
    return kv_seq_reserve(&e->kv, &s->task.kv, n, &none);
}

/* Copies the pages of s's frames in, from page `first` of tokens on. */
static void copy_in(engine *e, sequence *s, int32_t first) {
    swap *w = e->swap;
    int32_t n = 0;
    int64_t start_us = clock_us();
    for (int32_t f = s->swap_frames - 1; f != FRAME_NONE; f = w->next[f]) {
        int32_t i = w->page[f] / s->task.kv.n_tables, g = w->page[f] % s->task.kv.n_tables;
        if (i >= first) {
            e->b->ops->kv_write_page(e->b, s->task.kv.tables[g].pages[i].v, w->memory + f * e->layout.page_bytes);
            n++;
        }
    }
    note_copies(e, &w->in, n, start_us);
    explain_swapped(s, n * e->layout.page_bytes);
}

void swap_in(engine *e, sequence *s) {
    if (s->swap_frames == 0) {
        return;
    }
    if (swap_peek(e, s, s->task.kv.n_computed) > s->task.kv.n_computed) {
        scheduler_keep_whole_pages(&e->sched, &s->task);
        int32_t first = s->task.kv.n_computed / e->layout.page_tokens;
        if (reserve(e, s) == QUIRE_OK) {
            copy_in(e, s, first);
            kv_seq_advance(&s->task.kv, s->swap_tokens - s->task.kv.n_computed);
            kv_seq_forget(&e->kv, &s->task.kv); /* pages behind a window were not kept: they must not be published */
            e->stats.swapped_in++;
        }
    }
    swap_drop(e, s);
}
