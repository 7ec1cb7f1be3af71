#include "lab/bench/dry_run.h"

#include "base/mem.h"
#include "core/kv_layout.h"

static quire_err check_request(const dry_run *d, int32_t n_pages, int32_t i, quire_error *err) {
    const dry_request *r = &d->seqs[i].request;
    if (r->n_prompt < 1 || r->n_output < 1 || (int64_t)r->n_prompt + r->n_output > INT32_MAX) {
        return err_set(err, QUIRE_INVALID, -1, "request %d: a prompt of %d tokens and an answer of %d",
                       (int)i + 1, (int)r->n_prompt, (int)r->n_output);
    }
    int64_t needs = kv_pages_for((int64_t)r->n_prompt + r->n_output, d->limits.page_tokens);
    if (needs > n_pages) {
        return err_set(err, QUIRE_INVALID, -1, "request %d needs %lld pages, the pool has %d", (int)i + 1,
                       (long long)needs, (int)n_pages);
    }
    return i == 0 || r->arrival >= d->seqs[i - 1].request.arrival
               ? QUIRE_OK
               : err_set(err, QUIRE_INVALID, -1, "request %d comes before the one before it", (int)i + 1);
}

static quire_err open_arrays(dry_run *d) {
    size_t n = (size_t)d->n;
    d->seqs = mem_new(n, sizeof *d->seqs);
    d->running = mem_new(n, sizeof *d->running);
    d->waiting = mem_new(n, sizeof *d->waiting);
    d->running_view = mem_new(n, sizeof *d->running_view);
    d->waiting_view = mem_new(n, sizeof *d->waiting_view);
    d->plan.items = mem_new((size_t)d->limits.max_seqs, sizeof *d->plan.items);
    d->plan.decisions = mem_new(n, sizeof *d->plan.decisions);
    return d->seqs && d->running && d->waiting && d->running_view && d->waiting_view && d->plan.items &&
                   d->plan.decisions
               ? QUIRE_OK
               : QUIRE_NO_MEMORY;
}

static quire_err open_parts(dry_run *d, int32_t n_pages, const dry_request *requests, quire_error *err) {
    quire_err e = open_arrays(d);
    kv_cache_options o = {
        .n_pages = n_pages, .page_tokens = d->limits.page_tokens, .n_groups = 1, .no_index = true};
    e = e == QUIRE_OK ? kv_cache_open(&o, &d->cache) : e;
    for (int32_t i = 0; e == QUIRE_OK && i < d->n; i++) {
        e = kv_seq_init(&d->seqs[i].kv, 1, 0);
    }
    if (e != QUIRE_OK) {
        return err_set(err, e, -1, "%d requests and %d pages: %s", (int)d->n, (int)n_pages,
                       quire_err_text(e));
    }
    for (int32_t i = 0; i < d->n; i++) {
        d->seqs[i].request = requests[i];
        TRY(check_request(d, n_pages, i, err));
    }
    return QUIRE_OK;
}

quire_err dry_run_open(const sched_limits *limits, int32_t n_pages, const dry_request *requests, int32_t n,
                       dry_run *out, quire_error *err) {
    *out = (dry_run){.limits = *limits, .n = n};
    quire_err e = open_parts(out, n_pages, requests, err);
    if (e != QUIRE_OK) {
        dry_run_close(out);
    }
    return e;
}

void dry_run_close(dry_run *d) {
    for (int32_t i = 0; d->seqs != NULL && i < d->n; i++) {
        kv_seq_release(&d->cache, &d->seqs[i].kv, NULL, KV_DROP);
        kv_seq_deinit(&d->seqs[i].kv);
    }
    kv_cache_close(&d->cache);
    mem_free(d->seqs);
    mem_free(d->running);
    mem_free(d->waiting);
    mem_free(d->running_view);
    mem_free(d->waiting_view);
    mem_free(d->plan.items);
    mem_free(d->plan.decisions);
    *d = (dry_run){0};
}

static void insert(int32_t *list, int32_t *n, int32_t value) {
    int32_t at = (*n)++;
    for (; at > 0 && list[at - 1] > value; at--) {
        list[at] = list[at - 1];
    }
    list[at] = value;
}

static void remove_from(int32_t *list, int32_t *n, int32_t value) {
    int32_t kept = 0;
    for (int32_t i = 0; i < *n; i++) {
        if (list[i] != value) {
            list[kept++] = list[i];
        }
    }
    *n = kept;
}

static void arrive(dry_run *d) {
    for (int32_t i = 0; i < d->n; i++) {
        dry_seq *s = &d->seqs[i];
        s->n_rows = 0;
        s->work = DRY_NOTHING;
        s->was_preempted = false;
        if (s->state == DRY_AWAY && s->request.arrival <= d->step) {
            s->state = DRY_WAITING;
            s->n_known = s->request.n_prompt;
            insert(d->waiting, &d->n_waiting, i);
        }
    }
}

static sched_seq view_of(const dry_seq *s) {
    return (sched_seq){.n_known = s->n_known,
                       .n_computed = s->kv.n_computed,
                       .n_pages = kv_seq_pages(&s->kv),
                       .n_groups = 1,
                       .n_most = s->request.n_prompt + s->request.n_output,
                       .n_preempted = s->n_preempted};
}

static void preempt(dry_run *d, int32_t i) {
    dry_seq *s = &d->seqs[i];
    kv_seq_release(&d->cache, &s->kv, NULL, KV_DROP);
    s->state = DRY_WAITING;
    s->was_preempted = true;
    s->n_preempted++;
    insert(d->waiting, &d->n_waiting, i);
}

/* The plan's items name sequences by their place in the lists that it was given:
 * translated before these change. */
static void name_items(dry_run *d) {
    for (int32_t i = 0; i < d->plan.n_items; i++) {
        int32_t *k = &d->plan.items[i].seq;
        *k = *k < d->n_running ? d->running[*k] : d->waiting[*k - d->n_running];
    }
}

static void plan(dry_run *d) {
    for (int32_t i = 0; i < d->n_running; i++) {
        d->running_view[i] = view_of(&d->seqs[d->running[i]]);
    }
    for (int32_t i = 0; i < d->n_waiting; i++) {
        d->waiting_view[i] = view_of(&d->seqs[d->waiting[i]]);
    }
    sched_make_plan(&d->limits, d->running_view, d->n_running, d->waiting_view, d->n_waiting,
                    kv_pool_counts(d->cache.pool).n_free, &d->plan);
    name_items(d);
    int32_t kept = 0;
    for (int32_t i = 0, n = d->n_running; i < n; i++) {
        if (d->plan.decisions[i] == SCHED_PREEMPTED) {
            preempt(d, d->running[i]);
        } else {
            d->running[kept++] = d->running[i];
        }
    }
    d->n_running = kept;
    for (int32_t i = d->plan.n_items - d->plan.n_admitted; i < d->plan.n_items; i++) {
        int32_t k = d->plan.items[i].seq;
        d->seqs[k].state = DRY_RUNNING;
        remove_from(d->waiting, &d->n_waiting, k);
        insert(d->running, &d->n_running, k);
    }
}

/* Pages for the item's rows, and what the forward pass and the sampler would have
 * done. */
static quire_err run_item(dry_run *d, const sched_item *item) {
    dry_seq *s = &d->seqs[item->seq];
    kv_copies none = {0};
    TRY(kv_seq_reserve(&d->cache, &s->kv, item->n_rows, &none));
    s->n_rows = item->n_rows;
    bool decodes =
        s->kv.n_computed > 0 && s->n_known > s->request.n_prompt && s->n_known - s->kv.n_computed == 1;
    s->work = decodes ? DRY_DECODE : s->n_preempted > 0 ? DRY_AGAIN : DRY_PREFILL;
    kv_seq_advance(&s->kv, item->n_rows);
    s->started = s->started == 0 ? d->step : s->started;
    if (s->kv.n_computed == s->n_known) {
        s->n_known++;
        s->first = s->first == 0 ? d->step : s->first;
    }
    return QUIRE_OK;
}

static void end_finished(dry_run *d) {
    for (int32_t i = 0; i < d->plan.n_items; i++) {
        int32_t k = d->plan.items[i].seq;
        dry_seq *s = &d->seqs[k];
        if (s->n_known == s->request.n_prompt + s->request.n_output) {
            s->state = DRY_DONE;
            s->ended = d->step;
            kv_seq_release(&d->cache, &s->kv, NULL, KV_DROP);
            remove_from(d->running, &d->n_running, k);
            d->n_done++;
        }
    }
}

bool dry_run_step(dry_run *d, quire_err *e) {
    *e = QUIRE_OK;
    if (d->n_done == d->n) {
        return false;
    }
    arrive(d);
    bool idle = d->n_running + d->n_waiting == 0;
    d->step++;
    plan(d);
    if (d->plan.n_items == 0 && !idle && d->plan.n_preempted == 0) {
        *e = QUIRE_INTERNAL;
    }
    for (int32_t i = 0; *e == QUIRE_OK && i < d->plan.n_items; i++) {
        *e = run_item(d, &d->plan.items[i]);
    }
    end_finished(d);
    return true;
}

quire_err dry_run_finish(dry_run *d) {
    quire_err e = QUIRE_OK;
    while (e == QUIRE_OK && dry_run_step(d, &e)) {
    }
    return e;
}

quire_err dry_run_check(const dry_run *d, quire_error *err) {
    const kv_table **tables = mem_new((size_t)d->n, sizeof *tables);
    if (tables == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for the check");
    }
    quire_err e = QUIRE_OK;
    for (int32_t i = 0; i < d->n; i++) {
        const dry_seq *s = &d->seqs[i];
        tables[i] = s->kv.tables;
        if (tables[i]->n_tokens != (s->state == DRY_RUNNING ? s->kv.n_computed : 0)) {
            e = err_set(err, QUIRE_INTERNAL, -1, "request %d has computed %d tokens, its table holds %d",
                        (int)i + 1, (int)s->kv.n_computed, (int)tables[i]->n_tokens);
        }
    }
    e = e == QUIRE_OK ? kv_cache_check(&d->cache, tables, d->n, err) : e;
    mem_free(tables);
    return e;
}
