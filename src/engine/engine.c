/* The engine's life cycle: open, the thread's loop, submission, cancelling. step.c has the steps. */
#include "engine/engine.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/audit_file.h"
#include "engine/beam.h"
#include "engine/cache.h"
#include "engine/batch_sample.h"
#include "engine/state.h"
#include "engine/swap.h"
#include "engine/tiering.h"
#include "engine/engine_view.h"

#define MAX_PREEMPTIONS 8 /* preemptions of one sequence */
#define MAX_TENANTS 1024 /* tenants with a service counter of their own */
#define SHORT_WAIT_US 1000 /* pause when there are sequences but none could be planned */

/* ---- the thread ---- */

/* Ends all sequences: the engine is closing. A parent that ends puts its first child among the waiting. */
static void cancel_all(engine *e) {
    sequence *s;
    while (e->n_running > 0) {
        s = e->running[--e->n_running];
        step_finish(e, s, FINISH_CANCELLED, QUIRE_CANCELLED);
        sequence_drop(s);
    }
    while (ring_pop(e->in, &s)) {
        step_finish(e, s, FINISH_CANCELLED, QUIRE_CANCELLED);
        sequence_drop(s);
    }
    while (e->n_waiting > 0) {
        s = e->waiting[--e->n_waiting];
        step_finish(e, s, FINISH_CANCELLED, QUIRE_CANCELLED);
        sequence_drop(s);
    }
    out_wake_readers(e);
}

static void *engine_main(void *arg) {
    engine *e = arg;
    const backend_ops *ops = e->b->ops;
    if (ops->enter != NULL) {
        ops->enter(e->b);
    }
    while (!atomic_load(&e->stop)) {
        mem_guard_enter();
        bool started = !atomic_load(&e->held) && step_submit(e);
        if (started) {
            step_collect(e);
        }
#ifdef QUIRE_DEBUG
        engine_audit(e);
#endif
        stats_publish(e); /* before the readers wake up: statistics that they read then include what they get */
        out_wake_readers(e);
        mem_guard_leave();
        engine_view_response(e);
        if (!started) {
            wake_wait(&e->in_wake, e->n_running + e->n_waiting > 0 ? SHORT_WAIT_US : -1);
        }
    }
    cancel_all(e);
    stats_publish(e);
    engine_view_response(e);
    if (ops->leave != NULL) {
        ops->leave(e->b);
    }
    return NULL;
}

/* ---- open and close ---- */

static quire_err open_tables(engine *e) {
    int32_t n = e->options.max_requests;
    e->entries = mem_new((size_t)n, sizeof *e->entries);
    e->free_entries = mem_new((size_t)n, sizeof *e->free_entries);
    /* beams are more than their requests */
    e->running = mem_new((size_t)(n > e->options.max_seqs ? n : e->options.max_seqs), sizeof(sequence *));
    e->waiting = mem_new((size_t)n, sizeof(sequence *));
    if (!e->entries || !e->free_entries || !e->running || !e->waiting) {
        return QUIRE_NO_MEMORY;
    }
    for (int32_t i = 0; i < n; i++) {
        e->entries[i].generation = 1; /* cancel starts at 0, which is no generation */
        atomic_init(&e->entries[i].cancel, 0);
        e->free_entries[i] = n - 1 - i;
    }
    e->n_free_entries = n;
    return QUIRE_OK;
}

static size_t power_of_two_from(int32_t n) {
    size_t p = 2;
    while (p < (size_t)n) {
        p *= 2;
    }
    return p;
}

static quire_err open_parts(engine *e, const kv_layout *layout, quire_error *err) {
    const engine_options *o = &e->options;
    e->layout = *layout;
    e->desc = model_description(e->m);
    e->limits = (sched_limits){.max_rows = o->max_batched_tokens,
                               .max_out = draft_max_out(&o->draft, o->max_seqs, o->max_batched_tokens),
                               .max_seqs = o->max_seqs,
                               .max_chunk = o->prefill_chunk > 0 && !o->no_chunked_prefill ? o->prefill_chunk : o->max_batched_tokens,
                               .whole_prefills = o->no_chunked_prefill,
                               .page_tokens = o->page_tokens,
                               .max_preemptions = MAX_PREEMPTIONS,
                               .target_us = (double)o->step_target_us};
    TRY(open_tables(e));
    TRY(ring_open(sizeof(sequence *), power_of_two_from(o->max_requests), &e->in));
    TRY(tiering_open(e, err));
    TRY(swap_open(e, err));
    TRY(cache_open(e));
    TRY(batch_sample_open(e));
    TRY(service_counters_open(&e->service, MAX_TENANTS));
    TRY(step_open(e));
    TRY(draft_open(e, err));
    TRY(audit_file_open(e, err));
    if (pthread_mutex_init(&e->lock, NULL) != 0) {
        return QUIRE_NO_MEMORY;
    }
    if (pthread_mutex_init(&e->readers_lock, NULL) != 0) {
        pthread_mutex_destroy(&e->lock);
        return QUIRE_NO_MEMORY;
    }
    e->locks_ready = true;
    stats_publish(e);
    if (pthread_create(&e->thread, NULL, engine_main, e) != 0) {
        return QUIRE_NO_MEMORY;
    }
    e->thread_ready = true;
    return QUIRE_OK;
}

quire_err engine_open(model *m, backend *b, const kv_layout *layout, const engine_options *o, engine **out, quire_error *err) {
    *out = NULL;
    engine *e = mem_new(1, sizeof *e);
    if (!e) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    e->in_wake.fd = -1;
    e->m = m;
    e->b = b;
    e->options = *o;
    atomic_init(&e->stop, false);
    atomic_init(&e->held, o->starts_paused);
    atomic_init(&e->n_cancels, 0);
    atomic_init(&e->views, NULL);
    quire_err r = wake_init(&e->in_wake);
    *err = (quire_error){0};
    r = r ? r : open_parts(e, layout, err);
    if (r != QUIRE_OK) {
        engine_close(e);
        return err->code != QUIRE_OK ? r : err_set(err, r, -1, "the engine could not start: %s", quire_err_text(r));
    }
    *out = e;
    return QUIRE_OK;
}

void engine_release(engine *e) {
    atomic_store(&e->held, false);
    wake_ring(&e->in_wake);
}

void engine_close(engine *e) {
    if (!e) {
        return;
    }
    if (e->thread_ready) {
        atomic_store(&e->stop, true);
        wake_ring(&e->in_wake);
        pthread_join(e->thread, NULL);
    }
    if (e->locks_ready) {
        pthread_mutex_destroy(&e->lock);
        pthread_mutex_destroy(&e->readers_lock);
    }
    audit_file_close(e);
    draft_close(e);
    step_close(e);
    service_counters_close(&e->service);
    batch_sample_close(e);
    tiering_close(e);
    swap_close(e);
    kv_cache_close(&e->kv);
    if (e->in_wake.fd >= 0) {
        wake_deinit(&e->in_wake);
    }
    ring_close(e->in);
    mem_free(e->entries);
    mem_free(e->free_entries);
    mem_free(e->running);
    mem_free(e->waiting);
    mem_free(e);
}

/* ---- submission ---- */

static quire_err check_request(const engine *e, const engine_request *r, quire_error *err) {
    if (r->n_tokens < 1) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "prompt", "the prompt is empty; it must have at least one token");
    }
    if (r->n_tokens >= e->options.max_model_len) {
        return err_set_param(err, QUIRE_TOO_LARGE, "prompt",
                             "the prompt has %d tokens; with at least one token to generate that is over the maximum of %d tokens",
                             (int)r->n_tokens, (int)e->options.max_model_len);
    }
    for (int32_t i = 0; i < r->sampling.n_stop_tokens; i++) {
        int32_t id = r->sampling.stop_tokens[i];
        if (id < 0 || id >= e->desc->n_vocab) {
            return err_set_param(err, QUIRE_BAD_REQUEST, "stop_token_ids", "stop token id %d is out of the vocabulary's range 0..%d",
                                 (int)id, (int)e->desc->n_vocab - 1);
        }
    }
    for (int32_t i = 0; i < r->n_tokens; i++) {
        if (r->tokens[i] < 0 || r->tokens[i] >= e->desc->n_vocab) {
            return err_set_param(err, QUIRE_BAD_REQUEST, "prompt", "token id %d is out of the vocabulary's range 0..%d", (int)r->tokens[i],
                                 (int)e->desc->n_vocab - 1);
        }
    }
    return QUIRE_OK;
}

static quire_err check_branch(const engine_request *r, int32_t n, int32_t n_prompt, int32_t n_max, quire_error *err) {
    if (r->fork_from == NULL && n_prompt == r->n_tokens) {
        return QUIRE_OK;
    }
    bool fits = n_prompt >= 1 && n_prompt <= r->fork_position && r->fork_position <= r->n_tokens && r->fork_from != NULL;
    if (!fits || (n > 1 && r->fork_replaces) || r->logits_out != NULL || r->prompt_logprobs_width > 0) {
        return err_set(err, QUIRE_INVALID, -1, "a branch at token %d of %d, with a prompt of %d", (int)r->fork_position, (int)r->n_tokens,
                       (int)n_prompt);
    }
    if (r->beams.width > 0 || r->fork_from->beams != NULL) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "a beam search has no branches: its tokens are known at its end only");
    }
    if (r->n_tokens >= n_max) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "max_tokens", "%d of at most %d tokens stand already; none is left to generate",
                             (int)(r->n_tokens - n_prompt), (int)(n_max - n_prompt));
    }
    return QUIRE_OK;
}

/* Takes entries in the table for the first n of a group, which have readers, and pushes its parent into the in-ring; false when too few
 * entries are free. */
static bool enter(engine *e, sequence *parent, int32_t n, request_id *ids) {
    pthread_mutex_lock(&e->lock);
    bool has_places = e->n_free_entries >= n;
    int32_t k = 0;
    for (sequence *s = parent; has_places && s != NULL; s = s->next_child, k++) {
        if (k < n) {
            uint32_t i = (uint32_t)e->free_entries[--e->n_free_entries];
            ids[k] = (request_id){i, e->entries[i].generation};
            e->entries[i].sequence = s;
        }
        s->id = ids[k < n ? k : 0];
        s->arrival = e->n_arrivals++;
        s->submitted_us = clock_us();
        s->deadline_us = s->deadline_us > 0 ? s->submitted_us + s->deadline_us : 0;
        if (k < n) {
            out_enter(s);
        }
    }
    if (has_places) {
        if (parent->beams != NULL) {
            beam_unchain(parent);
        }
        ring_push(e->in, &parent); /* has room: as many cells as entries */
    }
    pthread_mutex_unlock(&e->lock);
    return has_places;
}

/* Frees sequences that were never submitted. */
static void drop_group(sequence *s) {
    for (sequence *next; s != NULL; s = next) {
        next = s->next_child;
        sequence_drop(s);
        sequence_drop(s);
    }
}

/* Makes the sequences of a group, chained: one for each user, or for each beam. On failure the ones made so far. */
static quire_err make_group(const engine *e, const engine_request *r, int32_t n, int32_t n_max, void *const *users, sequence **parent) {
    for (int32_t k = (r->beams.width > 0 ? r->beams.width : n) - 1; k >= 0; k--) {
        sequence *s;
        engine_request own = *r;
        if (r->beams.width > 0) { /* the first computes the prompt for all */
            own.logits_out = k == 0 ? r->logits_out : NULL;
            own.prompt_logprobs_width = k < n ? r->prompt_logprobs_width : 0;
            own.explain = r->explain && k < n;
        }
        TRY(sequence_new(&own, n_max, e->layout.n_groups, e->options.page_tokens, &s));
        s->sample_index = r->sample_index + (uint32_t)k;
        s->user = k < n ? users[k] : NULL;
        s->next_child = *parent;
        *parent = s;
    }
    return QUIRE_OK;
}

quire_err engine_submit_samples(engine *e, const engine_request *r, int32_t n, void *const *users, request_id *ids, quire_error *err) {
    TRY(check_request(e, r, err));
    bool by_beams = r->beams.width > 0;
    if (n < 1 || (n > 1 && !by_beams && (r->logits_out || r->prompt_logprobs_width > 0))) {
        return err_set(err, QUIRE_INVALID, -1, "%d samples with logits of their prompt", (int)n);
    }
    int32_t n_prompt = r->n_prompt > 0 ? r->n_prompt : r->n_tokens;
    int32_t room = e->options.max_model_len - n_prompt, wanted = r->sampling.max_tokens;
    int32_t n_max = n_prompt + (wanted < 0 || wanted > room ? room : wanted);
    TRY(check_branch(r, n, n_prompt, n_max, err));
    if (by_beams) {
        TRY(beam_check(e, r, n, &n_max, err));
    }
    sequence *parent = NULL;
    quire_err made = make_group(e, r, n, n_max, users, &parent);
    if (made == QUIRE_OK && by_beams) {
        made = beam_open(e, r, n, parent);
    }
    if (made != QUIRE_OK) {
        drop_group(parent);
        return err_set(err, made, -1, "out of memory for a request of %d tokens", (int)n_max);
    }
    if (r->fork_from) {
        atomic_fetch_add(&r->fork_from->holders, 1);
        parent->fork_from = r->fork_from;
    }
    if (!enter(e, parent, n, ids)) {
        drop_group(parent);
        return err_set(err, QUIRE_BUSY, -1, "%d requests are waiting or running, the most this server takes; try again later",
                       (int)e->options.max_requests);
    }
    mem_free(r->tokens);
    wake_ring(&e->in_wake);
    return QUIRE_OK;
}

quire_err engine_submit(engine *e, const engine_request *r, request_id *id, quire_error *err) {
    return engine_submit_samples(e, r, 1, &r->user, id, err);
}

quire_err engine_fork_acquire(engine *e, request_id id, engine_fork **out) {
    pthread_mutex_lock(&e->lock);
    sequence *s = e->entries[id.index].generation == id.generation ? e->entries[id.index].sequence : NULL;
    if (s) {
        atomic_fetch_add(&s->holders, 1);
    }
    pthread_mutex_unlock(&e->lock);
    *out = s;
    return s ? QUIRE_OK : QUIRE_NOT_FOUND;
}

void engine_fork_release(engine_fork *fork_from) {
    if (fork_from) {
        sequence_drop(fork_from);
    }
}

void engine_cancel(engine *e, request_id id) {
    pthread_mutex_lock(&e->lock);
    engine_entry *entry = &e->entries[id.index];
    if (entry->generation == id.generation) { /* else its request is over, and another may use the entry */
        atomic_store(&entry->cancel, id.generation);
    }
    pthread_mutex_unlock(&e->lock);
    atomic_fetch_add(&e->n_cancels, 1); /* after the store to cancel: a thread that reads the number reads that too */
    wake_ring(&e->in_wake);
}
