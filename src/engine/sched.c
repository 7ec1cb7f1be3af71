#include "engine/sched.h"

typedef struct budget {
    int32_t rows, out, pages;
} budget;

static int32_t min_i32(int32_t a, int32_t b) {
    return a < b ? a : b;
}

/* Pages that n_rows more tokens of s take beyond what it holds. */
static int32_t pages_wanted(const sched_seq *s, int32_t n_rows, int32_t page_tokens) {
    int32_t pages = (s->n_computed + n_rows + page_tokens - 1) / page_tokens * s->n_groups - s->n_pages;
    return pages > 0 ? pages : 0;
}

/* Rows s can have of what is left; 0: none now. */
static int32_t rows_possible(const sched_limits *l, const sched_seq *s, const budget *left) {
    int32_t n = min_i32(s->n_known - s->n_computed, min_i32(l->max_chunk, left->rows));
    if (s->wants_logits) {
        return min_i32(n, left->out);
    }
    bool reaches_end = s->n_computed + n == s->n_known;
    return reaches_end && left->out == 0 ? n - 1 : n;
}

static int32_t out_wanted(const sched_seq *s, int32_t n_rows) {
    if (s->wants_logits) {
        return n_rows;
    }
    return s->n_computed + n_rows == s->n_known ? 1 : 0;
}

/* Adds n_rows of s to the plan; they are known to fit. */
static void plan_add(const sched_limits *l, const sched_seq *s, int32_t index, int32_t n_rows, budget *left, sched_plan *plan) {
    int32_t out = out_wanted(s, n_rows), pages = pages_wanted(s, n_rows, l->page_tokens);
    plan->items[plan->n_items++] = (sched_item){index, n_rows};
    plan->n_rows += n_rows;
    plan->n_out += out;
    plan->n_pages += pages;
    left->rows -= n_rows;
    left->out -= out;
    left->pages -= pages;
}

static bool is_decode(const sched_seq *s) {
    return s->n_known - s->n_computed == 1;
}

/* Plans the running sequences of one phase, oldest first, preempting from the newest end while pages lack. *n_kept sequences stay.
 * A victim that has rows in the plan already (a decode older in kind, not in age) is never taken: its pages are in use this step. */
static void plan_running(const sched_limits *l, const sched_seq *running, int32_t *n_kept, bool decodes, budget *left, sched_plan *plan,
                         int32_t *newest_planned) {
    for (int32_t i = 0; i < *n_kept; i++) {
        const sched_seq *s = &running[i];
        if (is_decode(s) != decodes) {
            continue;
        }
        int32_t n = rows_possible(l, s, left);
        while (n > 0 && pages_wanted(s, n, l->page_tokens) > left->pages && *n_kept - 1 > i && *n_kept - 1 > *newest_planned) {
            *n_kept -= 1;
            left->pages += running[*n_kept].n_pages;
            plan->n_preempted++;
        }
        if (n <= 0) {
            continue;
        }
        if (pages_wanted(s, n, l->page_tokens) > left->pages) {
            if (i == *n_kept - 1 && i > *newest_planned && i > 0) {
                *n_kept -= 1;
                left->pages += s->n_pages;
                plan->n_preempted++;
            }
            continue;
        }
        plan_add(l, s, i, n, left, plan);
        *newest_planned = i > *newest_planned ? i : *newest_planned;
    }
}

/* Whether sequence k runs from now on: it was running, and nobody was preempted, or it is admitted. */
static bool will_run(const sched_plan *plan, int32_t k, int32_t n_running) {
    bool runs = k < n_running;
    for (int32_t i = plan->n_items - plan->n_admitted; i < plan->n_items && !runs; i++) {
        runs = plan->items[i].seq == k;
    }
    return runs;
}

void sched_make_plan(const sched_limits *l, const sched_seq *running, int32_t n_running, const sched_seq *waiting, int32_t n_waiting,
                     int32_t n_free, sched_plan *plan) {
    sched_item *items = plan->items;
    *plan = (sched_plan){.items = items};
    budget left = {l->max_rows, l->max_out, n_free};
    int32_t n_kept = n_running, newest_planned = -1;
    plan_running(l, running, &n_kept, true, &left, plan, &newest_planned);
    plan_running(l, running, &n_kept, false, &left, plan, &newest_planned);
    if (plan->n_preempted > 0) {
        return; /* pages are short: nobody new comes in */
    }
    for (int32_t i = 0; i < n_waiting && n_running + plan->n_admitted < l->max_seqs && plan->n_items < l->max_seqs; i++) {
        const sched_seq *s = &waiting[i];
        if (s->held && will_run(plan, s->waits_for, n_running)) {
            continue;
        }
        int32_t n = rows_possible(l, s, &left);
        int32_t whole = pages_wanted(s, s->n_known - s->n_computed + 1, l->page_tokens);
        if (n <= 0 || whole > left.pages) {
            return;
        }
        plan_add(l, s, n_running + i, n, &left, plan);
        left.pages -= whole - pages_wanted(s, n, l->page_tokens); /* the rest of its prompt is spoken for */
        plan->n_admitted++;
    }
}
