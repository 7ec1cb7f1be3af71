#include "lab/sim/serving_beyond.h"

#include "base/rng.h"

/* ---- swap space: kv counts its frames, and here is nothing to move ---- */

static kv_fence read_nothing(void *context, page_id page, void *host) {
    (void)context;
    (void)page;
    (void)host;
    return 0;
}

static kv_fence write_nothing(void *context, page_id page, const void *host) {
    (void)context;
    (void)page;
    (void)host;
    return 0;
}

static bool is_done(void *context, kv_fence fence) {
    (void)context;
    (void)fence;
    return true;
}

const kv_mover *serving_mover(void) {
    static const kv_mover nothing = {
        .page_bytes = 1, .read = read_nothing, .write = write_nothing, .done = is_done};
    return &nothing;
}

/* No more frames than all requests together have pages. */
quire_err serving_open_swap(serving *s) {
    int64_t n = s->o->swap_tokens / s->page_tokens;
    int64_t most =
        (s->t->n_prompt_tokens + s->t->n_output_tokens) / s->page_tokens + 2 * (int64_t)s->t->n_requests;
    return n > 0 ? kv_cache_add_swap(&s->kv, n < most ? n : most) : QUIRE_OK;
}

/* Whether to swap n_pages out, which hold the tokens of t from `from` on. */
static bool swap_pays(const serving *s, const sched_task *t, int32_t from, int32_t n_pages) {
    const sched_limits *l = &s->sched.limits;
    sched_cost cost = step_cost_fit(&s->sched.step_cost);
    copy_cost copy = {.us = s->o->cost->swap_us * s->page_tokens, .pages = 1};
    preempt_case c = {.n_pages = n_pages,
                      .from = from,
                      .to = t->kv.n_computed,
                      .max_rows = l->max_rows < l->max_chunk ? l->max_rows : l->max_chunk};
    return n_pages > 0 && preempt_swaps(s->o->preempt, &c, &copy, &copy, &cost);
}

/* Before t releases its pages. */
static bool swap_out(void *context, sched_task *t) {
    serving *s = context;
    int32_t from;
    if (s->kv.swap.n_frames == 0) {
        return false;
    }
    kv_seq_swap_drop(&s->kv, &t->kv);
    int32_t n_pages = kv_seq_swap_pages(&s->kv, &t->kv, &from);
    if (swap_pays(s, t, from, n_pages)) {
        s->swapped += (int64_t)kv_seq_swap_out(&s->kv, &t->kv, from).n_pages * s->page_tokens;
    }
    return false;
}

/* After t was admitted. */
static void swap_in(void *context, sched_task *t) {
    serving *s = context;
    if (t->kv.swap_frames != 0) {
        kv_swapped did = kv_seq_swap_in(&s->kv, &t->kv);
        scheduler_count_reuse(&s->sched, t, did.n_found);
        s->swapped += (int64_t)did.n_pages * s->page_tokens;
    }
}

/* ---- guesses ---- */

/* As many as are wanted, and as the answer has left behind the token that the step gives
 * anyway. */
static void describe(void *context, const sched_task *t, sched_seq *d) {
    const serving *s = context;
    int32_t n_left = t->n_max - t->n_known - 1, n = s->o->n_drafts;
    d->n_drafts = t->state != TASK_DECODE ? 0 : n < n_left ? n : n_left;
}

int32_t serving_accepted(const serving_options *o, uint64_t request, int32_t n_known, int32_t n) {
    const uint32_t key[2] = {(uint32_t)request, (uint32_t)(request >> 32)};
    int32_t accepted = 0;
    for (; accepted < n; accepted++) {
        uint32_t words[4];
        const uint32_t counter[4] = {(uint32_t)n_known, (uint32_t)accepted, 0, 0};
        rng_philox(counter, key, words);
        if (!((double)rng_uniform(words[0]) < o->acceptance[accepted])) {
            break;
        }
    }
    return accepted;
}

const sched_hooks SERVING_PAGES = {.describe = describe, .preempt = swap_out, .admitted = swap_in};
