#include "sched/sched.h"

#include <assert.h>
#include <math.h>

#include "base/size.h"
#include "sched/adapter_slots.h"

#define NEWEST 4 /* a victim is chosen among this many of the newest sequences */

typedef struct budget {
    int32_t rows, out, pages;
    double us;         /* time left for prefills */
    double program_us; /* time left for prefills with attention programs */
} budget;

typedef struct planner {
    const sched_limits *l;
    const sched_seq *running;
    int32_t n_running;
    budget left;
    bool has_prefill; /* a prefill is in the plan */
    bool has_first;   /* a running sequence has is_first */
    int32_t places;   /* places in the batch for waiting sequences */
    sched_plan *plan;
    adapter_slots slots;
} planner;

double sched_predict_us(const sched_cost *c, double n_rows, double n_pairs) {
    return c->step_us + n_rows * c->row_us + n_pairs * c->pair_us;
}

static bool is_decode(const sched_seq *s) {
    return s->n_known - s->n_computed == 1;
}

static bool has_aged(const sched_limits *l, const sched_seq *s) {
    return s->n_preempted >= l->max_preemptions;
}

/* Pairs of the next n_rows of s. */
static double sched_pairs_of(const sched_seq *s, double n_rows) {
    return n_rows * ((double)s->n_computed + (n_rows + 1.0) / 2.0);
}

/* The most rows of s that take at most `us`, at these costs per row and per pair. */
static int32_t rows_in(const sched_seq *s, double row_us, double pair_us, double us) {
    if (us <= 0.0) {
        return 0;
    }
    double one = row_us + pair_us * ((double)s->n_computed + 0.5), half = pair_us / 2.0;
    double n = half > 0.0  ? (sqrt(one * one + 4.0 * half * us) - one) / (2.0 * half)
               : one > 0.0 ? us / one
                           : 1e9;
    return n < 1e9 ? (int32_t)n : 1000000000;
}

/* The most rows of a prefill that keep the step within its time. */
static int32_t rows_in_time(const planner *p, const sched_seq *s) {
    const sched_cost *c = &p->l->cost;
    if (!s->has_program || p->left.program_us == INFINITY) {
        return rows_in(s, c->row_us, c->pair_us, p->left.us);
    }
    int32_t known = rows_in(s, 0.0, 1.0, s->program_pairs);
    return least_i32(known, rows_in(s, c->row_us, c->pair_us + s->program_pair_us, p->left.program_us));
}

/* Pages that s must reserve to have n_tokens in all. */
static int32_t pages_wanted(const sched_limits *l, const sched_seq *s, int32_t n_tokens) {
    int32_t pages = (int32_t)(((int64_t)n_tokens + l->page_tokens - 1) / l->page_tokens) * s->n_groups +
                    l->state_pages - s->n_pages;
    return pages > 0 ? pages : 0;
}

int32_t sched_pages_claimed(const sched_limits *l, const sched_seq *s, int32_t n_tokens) {
    assert(n_tokens >= 0);
    int32_t wanted = pages_wanted(l, s, n_tokens);
    if (l->most.n_caps == 0) {
        return wanted;
    }
    int64_t most = kv_most_pages(&l->most, n_tokens) - (s->n_pages - s->n_passed);
    return most < 0 ? 0 : most < wanted ? (int32_t)most : wanted;
}

/* Whether pages were promised to s, which protects it from preemption. */
static bool is_promised(const sched_limits *l, const sched_seq *s) {
    return has_aged(l, s) || s->is_first;
}

/* Pages promised to s that it has not taken yet. */
static int32_t pages_promised(const sched_limits *l, const sched_seq *s) {
    return has_aged(l, s) ? sched_pages_claimed(l, s, s->n_most) + s->n_behind
           : s->is_first  ? sched_pages_claimed(l, s, s->n_known)
                          : 0;
}

/* How many of the remaining rows s can use; 0: it gets none in this step. */
static int32_t rows_possible(const planner *p, const sched_seq *s) {
    int32_t n = least_i32(s->n_known - s->n_computed, least_i32(p->l->max_chunk, p->left.rows));
    if (p->l->whole_prefills && !s->wants_logits) {
        return n == s->n_known - s->n_computed && (s->no_logits || p->left.out > 0) ? n : 0;
    }
    if (!is_decode(s)) {
        int32_t in_time = rows_in_time(p, s);
        /* the first prefill gets at least one row */
        n = least_i32(n, in_time < 1 && !p->has_prefill ? 1 : in_time);
    }
    if (s->wants_logits) {
        return least_i32(n, p->left.out);
    }
    bool reaches_end = s->n_computed + n == s->n_known;
    return reaches_end && !s->no_logits && p->left.out == 0 ? n - 1 : n;
}

static int32_t out_wanted(const sched_seq *s, int32_t n_rows) {
    if (s->wants_logits) {
        return n_rows;
    }
    return s->n_computed + n_rows == s->n_known && !s->no_logits ? 1 : 0;
}

/* Adds n_rows of s to the plan. The caller has checked that they fit. */
static void plan_add(planner *p, const sched_seq *s, int32_t index, int32_t n_rows) {
    sched_plan *plan = p->plan;
    int32_t out = out_wanted(s, n_rows), pages = pages_wanted(p->l, s, s->n_computed + n_rows);
    double pairs = sched_pairs_of(s, n_rows);
    plan->items[plan->n_items++] = (sched_item){.seq = index, .n_rows = n_rows, .n_out = out};
    plan->n_rows += n_rows;
    plan->n_out += out;
    plan->n_pages += pages;
    plan->n_pairs += pairs;
    plan->program_us += pairs * s->program_pair_us;
    p->left.rows -= n_rows;
    p->left.out -= out;
    if (!is_decode(s)) {
        double us = n_rows * p->l->cost.row_us + pairs * (p->l->cost.pair_us + s->program_pair_us);
        p->has_prefill = true;
        p->left.us -= us;
        p->left.program_us -= us;
    }
}

static bool sched_is_with(const sched_seq *a, const sched_seq *b) {
    return a == b || (a->group != 0 && a->group == b->group);
}

/* Whether i or a member of its group has rows in the plan. */
static bool group_is_planned(const planner *p, int32_t i) {
    bool planned = p->plan->decisions[i] == SCHED_PLANNED;
    for (int32_t k = 0; k < p->n_running && p->running[i].group != 0 && !planned; k++) {
        planned = p->plan->decisions[k] == SCHED_PLANNED && sched_is_with(&p->running[k], &p->running[i]);
    }
    return planned;
}

static void preempt_one(planner *p, int32_t i) {
    p->plan->decisions[i] = SCHED_PREEMPTED;
    p->plan->n_preempted++;
    p->left.pages += p->running[i].n_pages - p->running[i].n_shared;
}

/* Preempts i and its group; none of them may be planned. */
static void sched_preempt(planner *p, int32_t i) {
    for (int32_t k = 0; k < p->n_running && p->running[i].group != 0; k++) {
        if (k != i && p->plan->decisions[k] == SCHED_IDLE && sched_is_with(&p->running[k], &p->running[i])) {
            preempt_one(p, k);
        }
    }
    preempt_one(p, i);
}

/* The sequence to preempt so that running sequence i finds pages; -1: none. One with rows
 * in the plan is not chosen, since the step uses its pages. */
static int32_t sched_victim_for(const planner *p, int32_t i) {
    int32_t victim = -1, n_seen = 0;
    for (int32_t k = p->n_running - 1; k > i && n_seen < NEWEST; k--) {
        bool idle = p->plan->decisions[k] == SCHED_IDLE && !sched_is_with(&p->running[k], &p->running[i]) &&
                    !group_is_planned(p, k);
        if (!idle || is_promised(p->l, &p->running[k])) {
            continue;
        }
        n_seen++;
        victim = victim == -1 || p->running[k].n_computed < p->running[victim].n_computed ? k : victim;
    }
    return victim;
}

/* Whether i itself is preempted if it finds no pages: all later ones are preempted, it is
 * not the only one, and it was promised no pages. */
static bool gives_way(const planner *p, int32_t i) {
    for (int32_t k = i + 1; k < p->n_running; k++) {
        if (p->plan->decisions[k] != SCHED_PREEMPTED) {
            return false;
        }
    }
    return i > 0 && !is_promised(p->l, &p->running[i]) && !group_is_planned(p, i);
}

static void plan_running_one(planner *p, int32_t i) {
    const sched_seq *s = &p->running[i];
    int32_t n = s->sits_out ? 0 : rows_possible(p, s);
    if (n <= 0) {
        return;
    }
    bool promised = is_promised(p->l, s);
    int32_t pages = pages_wanted(p->l, s, s->n_computed + n);
    for (int32_t victim; !promised && pages > p->left.pages && (victim = sched_victim_for(p, i)) != -1;) {
        sched_preempt(p, victim);
    }
    if (!promised && pages > 0 && pages > p->left.pages) {
        if (gives_way(p, i)) {
            sched_preempt(p, i);
        }
        return;
    }
    plan_add(p, s, i, n);
    p->left.pages -= promised ? 0 : pages;
    p->plan->decisions[i] = SCHED_PLANNED;
}

typedef enum phase { PHASE_DECODE, PHASE_FIRST, PHASE_PREFILL } phase;

static phase phase_of(const sched_seq *s) {
    return is_decode(s) ? PHASE_DECODE : s->is_first ? PHASE_FIRST : PHASE_PREFILL;
}

/* Plans the running sequences of a phase, except decodes with attention programs. */
static void plan_running(planner *p, phase now) {
    for (int32_t i = 0; i < p->n_running; i++) {
        bool takes_turns = now == PHASE_DECODE && p->running[i].has_program;
        if (p->plan->decisions[i] == SCHED_IDLE && phase_of(&p->running[i]) == now && !takes_turns) {
            plan_running_one(p, i);
        }
    }
}

/* The time that the step may take: the target, or twice the time of what is planned, if
 * longer. */
static double sched_step_us(const planner *p) {
    const sched_plan *plan = p->plan;
    return fmax(p->l->target_us,
                2.0 * (sched_predict_us(&p->l->cost, plan->n_rows, plan->n_pairs) + plan->program_us));
}

/* Plans decodes with attention programs from the one whose turn it is: as many as fit
 * into the step's time, and at least one. */
static void plan_program_decodes(planner *p) {
    int32_t n = 0, k = 0;
    for (int32_t i = 0; i < p->n_running; i++) {
        n += is_decode(&p->running[i]) && p->running[i].has_program;
    }
    double most_us = sched_step_us(p);
    for (int32_t i = 0, first = n > 0 ? (int32_t)(p->l->program_turn % (uint32_t)n) : 0; k < n + first;
         i = (i + 1) % p->n_running) {
        const sched_seq *s = &p->running[i];
        if (!is_decode(s) || !s->has_program || k++ < first || p->plan->decisions[i] != SCHED_IDLE) {
            continue;
        }
        double us = s->program_pair_us * sched_pairs_of(s, 1.0);
        double planned_us =
            sched_predict_us(&p->l->cost, p->plan->n_rows + 1, p->plan->n_pairs) + p->plan->program_us;
        if (p->l->target_us > 0.0 && p->plan->n_program_decodes > 0 && planned_us + us > most_us) {
            return;
        }
        plan_running_one(p, i);
        p->plan->n_program_decodes += p->plan->decisions[i] == SCHED_PLANNED;
    }
}

/* Gives the planned decodes rows for their drafts, in order. None if prompts may need all
 * rows. */
static void plan_drafts(planner *p, bool others_want_rows) {
    const sched_plan *plan = p->plan;
    int32_t room = others_want_rows ? p->l->whole_prefills ? 0 : p->left.rows / 2 : p->left.rows;
    for (int32_t i = 0; i < plan->n_items; i++) {
        sched_item *item = &plan->items[i];
        const sched_seq *s = &p->running[item->seq];
        int32_t n = least_i32(s->n_drafts, s->is_jump_forward ? room : least_i32(room, p->left.out));
        double one_us = s->program_pair_us * (double)s->n_known,
               fit = one_us > 0.0 ? p->left.program_us / one_us : (double)n;
        n = fit < n ? (int32_t)fmax(fit, 0.0) : n;
        item->n_drafts = n > 0 ? n : 0;
        room -= item->n_drafts;
        p->left.rows -= item->n_drafts;
        p->left.out -= s->is_jump_forward ? 0 : item->n_drafts;
        p->left.us -= item->n_drafts * (p->l->cost.row_us + one_us);
        p->left.program_us -= item->n_drafts * (p->l->cost.row_us + one_us);
    }
}

/* Pages for n drafts of s after its first n_tokens: for their tokens, and for a copy of
 * its states before each. */
static int32_t draft_pages(const sched_limits *l, const sched_seq *s, int32_t n_tokens, int32_t n) {
    return pages_wanted(l, s, n_tokens + n) - pages_wanted(l, s, n_tokens) + n * l->state_pages;
}

/* Cuts drafts down to the pages that nothing else needs; promised pages are kept for
 * their sequence. */
static void fit_drafts(planner *p) {
    sched_plan *plan = p->plan;
    for (int32_t i = 0; i < plan->n_items; i++) {
        sched_item *item = &plan->items[i];
        if (item->n_drafts == 0) {
            continue;
        }
        const sched_seq *s = &p->running[item->seq];
        int32_t n = s->n_computed + item->n_rows, left = has_aged(p->l, s) ? INT32_MAX : p->left.pages;
        while (item->n_drafts > 0 && draft_pages(p->l, s, n, item->n_drafts) > left) {
            item->n_drafts--;
        }
        int32_t more = draft_pages(p->l, s, n, item->n_drafts);
        double pairs = sched_pairs_of(s, item->n_rows + item->n_drafts) - sched_pairs_of(s, item->n_rows);
        plan->n_pairs += pairs;
        plan->program_us += pairs * s->program_pair_us;
        item->n_rows += item->n_drafts;
        p->left.pages -= has_aged(p->l, s) ? 0 : more;
        plan->n_rows += item->n_drafts;
        plan->n_out += s->is_jump_forward ? 0 : item->n_drafts;
        plan->n_pages += more;
    }
}

/* Sets the time that the decodes leave for prefills, with attention programs and
 * without. */
static void leave_time(planner *p) {
    const sched_limits *l = p->l;
    double decodes_us = sched_predict_us(&l->cost, p->plan->n_rows, p->plan->n_pairs) + p->plan->program_us;
    if (l->target_us > 0.0) {
        p->left.program_us = sched_step_us(p) - decodes_us;
        p->left.us = p->plan->n_items > 0 ? p->left.program_us : INFINITY;
    }
}

/* Whether sequence k runs after this plan: as a running one (nothing was preempted), or
 * because it is admitted. */
static bool will_run(const sched_plan *plan, int32_t k, int32_t n_running) {
    bool runs = k < n_running;
    for (int32_t i = plan->n_items - plan->n_admitted; i < plan->n_items && !runs; i++) {
        runs = plan->items[i].seq == k;
    }
    return runs;
}

/* Admits what fits of waiting[first..end). False if one found no room, so that later ones
 * are not admitted either. */
static bool plan_waiting(planner *p, const sched_seq *waiting, int32_t first, int32_t end) {
    const sched_limits *l = p->l;
    sched_plan *plan = p->plan;
    for (int32_t i = first; i < end && p->places > waiting[i].n_beside && plan->n_items < l->max_seqs; i++) {
        const sched_seq *s = &waiting[i];
        bool is_blocked = s->prefix_wait && will_run(plan, s->blocked_on, p->n_running);
        if (is_blocked || !adapter_slots_fit(&p->slots, s->adapter)) {
            continue;
        }
        int32_t n = rows_possible(p, s);
        int32_t whole = sched_pages_claimed(l, s, least_i32(s->n_known + 1, s->n_most)) + s->n_behind;
        int32_t claimed = has_aged(l, s) ? pages_promised(l, s) : whole;
        /* alone, it needs all pages for its known tokens and the next */
        bool alone = p->n_running + plan->n_admitted == 0;
        if (n <= 0 || (alone ? whole : claimed) > p->left.pages) {
            return false;
        }
        plan_add(p, s, p->n_running + i, n);
        p->left.pages -= claimed;
        p->places -= 1 + s->n_beside;
        adapter_slots_take(&p->slots, s->adapter);
        plan->n_admitted++;
    }
    return true;
}

static void reverse(sched_item *items, int32_t n) {
    for (int32_t i = 0; i < n / 2; i++) {
        sched_item item = items[i];
        items[i] = items[n - 1 - i];
        items[n - 1 - i] = item;
    }
}

/* Plans prefills: those with is_first before the others, and running before waiting.
 * Admitted sequences are the last items. */
static void plan_prompts(planner *p, const sched_seq *waiting, int32_t n_waiting) {
    sched_plan *plan = p->plan;
    int32_t n_first = 0;
    while (n_first < n_waiting && waiting[n_first].is_first) {
        n_first++;
    }
    if (p->has_first) {
        plan_running(p, PHASE_FIRST);
    }
    sched_item *from = plan->items + plan->n_items;
    bool goes_on = plan->n_preempted > 0 || plan_waiting(p, waiting, 0, n_first);
    int32_t n_early = plan->n_admitted;
    plan_running(p, PHASE_PREFILL);
    int32_t n = (int32_t)(plan->items + plan->n_items - from);
    reverse(from, n_early);
    reverse(from + n_early, n - n_early);
    reverse(from, n);
    if (goes_on && plan->n_preempted == 0) { /* if any was preempted, pages are short and none is admitted */
        (void)plan_waiting(p, waiting, n_first, n_waiting);
    }
}

void sched_make_plan(const sched_limits *l, const sched_seq *running, int32_t n_running,
                     const sched_seq *waiting, int32_t n_waiting, int32_t n_free, sched_plan *plan) {
    assert(n_running >= 0 && n_waiting >= 0);
    *plan = (sched_plan){.items = plan->items, .decisions = plan->decisions};
    planner p = {l,
                 running,
                 n_running,
                 {l->max_rows, l->max_out, n_free, INFINITY, INFINITY},
                 false,
                 false,
                 l->max_seqs - n_running,
                 plan,
                 {.most = l->max_adapters}};
    for (int32_t i = 0; i < n_running; i++) {
        plan->decisions[i] = SCHED_IDLE;
        p.places -= running[i].n_beside;
        p.has_first = p.has_first || running[i].is_first;
        adapter_slots_take(&p.slots, running[i].adapter);
        p.left.pages -= pages_promised(l, &running[i]);
    }
    plan_running(&p, PHASE_DECODE);
    plan_program_decodes(&p);
    leave_time(&p);
    plan_drafts(&p, plan->n_items < n_running || n_waiting > 0);
    plan_prompts(&p, waiting, n_waiting);
    fit_drafts(&p);
}
