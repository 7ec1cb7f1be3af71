/* Submission: checks a request, makes its sequences, and pushes them into the ring that
 * the engine thread reads. Also cancelling. Any thread. */
#include "engine/engine.h"

#include <assert.h>
#include <stddef.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/beam.h"
#include "engine/output.h"
#include "engine/row_pooling.h"
#include "engine/state.h"

static bool submit_is_pooled(const engine_request *r) {
    return r->pooling.kind != POOLING_NONE;
}

static quire_err submit_check_length(const engine *e, const engine_request *r, quire_error *err) {
    int32_t most = e->options.max_model_len, most_rows = e->sched.limits.max_rows;
    if (r->n_tokens < 1) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "prompt",
                             "the prompt is empty; it must have at least one token");
    }
    if (!submit_is_pooled(r) && r->n_tokens >= most) {
        return err_set_param(err, QUIRE_TOO_LARGE, "prompt",
                             "the prompt has %d tokens; with at least one token to generate that is over the "
                             "maximum of %d tokens",
                             (int)r->n_tokens, (int)most);
    }
    if (r->n_tokens > most) {
        return err_set_param(err, QUIRE_TOO_LARGE, "input",
                             "the input has %d tokens; at most %d are accepted", (int)r->n_tokens, (int)most);
    }
    if (e->desc->two_sided && r->n_tokens > most_rows) {
        return err_set_param(
            err, QUIRE_TOO_LARGE, "input",
            "the input has %d tokens; this model attends in both directions, so one step must compute them "
            "all, but a step has only %d rows: raise --max-num-batched-tokens",
            (int)r->n_tokens, (int)most_rows);
    }
    return QUIRE_OK;
}

/* Generation needs a model with a head and causal attention; any model can pool rows. */
static quire_err submit_check_kind(const engine *e, const engine_request *r, quire_error *err) {
    const pooling_params *p = &r->pooling;
    if (!submit_is_pooled(r)) {
        return desc_gives_tokens(e->desc)
                   ? QUIRE_OK
                   : err_set(err, QUIRE_UNSUPPORTED, -1, "this model gives embeddings, not text: it %s",
                             e->desc->no_head ? "has no head to compute logits"
                                              : "attends in both directions");
    }
    if (p->kind > POOLING_LAST || p->dimensions < 0 || p->dimensions > desc_pooled_width(e->desc)) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "dimensions",
                             "dimensions is %d; this model's rows have %d", (int)p->dimensions,
                             (int)desc_pooled_width(e->desc));
    }
    for (int32_t i = 0; r->types != NULL && i < r->n_tokens; i++) {
        int32_t n = e->desc->embed.n_token_types > 0 ? e->desc->embed.n_token_types : 1;
        if (r->types[i] < 0 || r->types[i] >= n) {
            return err_set_param(err, QUIRE_BAD_REQUEST, "token_type_ids",
                                 "token type is %d; this model has %d types, counted from 0",
                                 (int)r->types[i], (int)n);
        }
    }
    if (r->beams.width > 0 || r->fork_from != NULL || r->logits_out != NULL || r->prompt_logprobs_width > 0 ||
        r->logprobs_width > 0) {
        return err_set(err, QUIRE_INVALID, -1,
                       "a pooled request gets one row; it cannot have beams, branches or logits");
    }
    return QUIRE_OK;
}

static quire_err check_constraint(const engine *e, const engine_request *r, quire_error *err) {
    const constraint *c = r->constraint;
    if (c == NULL) {
        return QUIRE_OK;
    }
    if (submit_is_pooled(r) || c->n_vocab != e->desc->n_vocab ||
        c->state_bytes > CONSTRAINT_MAX_STATE_BYTES) {
        return err_set(
            err, QUIRE_INVALID, -1,
            "the constraint is for %d tokens with states of %zu bytes, but the model has %d tokens",
            (int)c->n_vocab, c->state_bytes, (int)e->desc->n_vocab);
    }
    if (r->beams.width > 0 && r->sampling.ignore_eos) {
        return err_set_param(
            err, QUIRE_BAD_REQUEST, "ignore_eos",
            "ignore_eos with beam search and structured output: a beam whose text is complete could not end");
    }
    return QUIRE_OK;
}

quire_err engine_constraint_state(const engine *e, const engine_request *r, void *state, quire_error *err) {
    const sample_context c = {.params = &r->sampling,
                              .eos = e->desc->eos,
                              .n_eos = e->desc->n_eos,
                              .constraint = r->constraint,
                              .constraint_state = state};
    r->constraint->ops->init(r->constraint, state);
    for (int32_t i = r->n_prompt > 0 ? r->n_prompt : r->n_tokens; i < r->n_tokens; i++) {
        quire_err accepted = sample_accept(&c, r->tokens[i]);
        if (accepted == QUIRE_INVALID) {
            return err_set(err, QUIRE_BAD_REQUEST, -1,
                           "token %d at position %d breaks the grammar or schema that the response must obey",
                           (int)r->tokens[i], (int)i);
        }
        if (accepted != QUIRE_OK) {
            const char *why = constraint_why(r->constraint);
            return err_set(err, accepted, -1, "the response's rule is too large at position %d: %s", (int)i,
                           why != NULL ? why : "it exceeds its budget");
        }
    }
    return QUIRE_OK;
}

/* Checks scored ids: logprobs_width must include them; beam search has none. */
static quire_err submit_check_scored(const engine *e, const engine_request *r, quire_error *err) {
    int32_t n = sampling_n_scored(&r->sampling), least = 1 + n;
    bool fits = (r->logprobs_width == 0 || r->logprobs_width >= least) &&
                (r->prompt_logprobs_width == 0 || r->prompt_logprobs_width >= least);
    for (int32_t i = 0; i < n; i++) {
        fits = fits && r->sampling.lists->scored[i] >= 0 && r->sampling.lists->scored[i] < e->desc->n_vocab;
    }
    return n == 0 || (fits && r->beams.width == 0)
               ? QUIRE_OK
               : err_set(err, QUIRE_INVALID, -1,
                         "log-probabilities of %d given ids, of beams or beyond the vocabulary", (int)n);
}

static quire_err submit_check_request(const engine *e, const engine_request *r, quire_error *err) {
    TRY(submit_check_kind(e, r, err));
    TRY(submit_check_length(e, r, err));
    TRY(check_constraint(e, r, err));
    TRY(submit_check_scored(e, r, err));
    if (r->logprobs_width - 1 > e->desc->n_vocab || r->prompt_logprobs_width - 1 > e->desc->n_vocab) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "logprobs",
                             "log-probabilities of more tokens than the vocabulary's %d",
                             (int)e->desc->n_vocab);
    }
    for (int32_t i = 0; i < r->sampling.n_stop_tokens; i++) {
        int32_t id = r->sampling.stop_tokens[i];
        if (id < 0 || id >= e->desc->n_vocab) {
            return err_set_param(err, QUIRE_BAD_REQUEST, "stop_token_ids",
                                 "stop token id %d is out of the vocabulary's range 0..%d", (int)id,
                                 (int)e->desc->n_vocab - 1);
        }
    }
    if (r->prediction != NULL && (submit_is_pooled(r) || r->beams.width > 0)) {
        return err_set_param(
            err, QUIRE_BAD_REQUEST, "prediction",
            "a prediction drafts sampled tokens; beam searches and pooled requests sample none");
    }
    for (int32_t i = 0; r->prediction != NULL && i < r->prediction->n; i++) {
        int32_t id = r->prediction->ids[i];
        if (id < 0 || id >= e->desc->n_vocab) {
            return err_set_param(err, QUIRE_BAD_REQUEST, "prediction",
                                 "token id %d of the prediction is out of the vocabulary's range 0..%d",
                                 (int)id, (int)e->desc->n_vocab - 1);
        }
    }
    for (int32_t i = 0; i < r->n_tokens; i++) {
        if (r->tokens[i] < 0 || r->tokens[i] >= e->desc->n_vocab) {
            return err_set_param(err, QUIRE_BAD_REQUEST, "prompt",
                                 "token id %d is out of the vocabulary's range 0..%d", (int)r->tokens[i],
                                 (int)e->desc->n_vocab - 1);
        }
    }
    return QUIRE_OK;
}

static quire_err check_branch(const engine_request *r, int32_t n, int32_t n_prompt, int32_t n_max,
                              quire_error *err) {
    if (r->fork_from == NULL && n_prompt == r->n_tokens) {
        return QUIRE_OK;
    }
    bool fits = n_prompt >= 1 && n_prompt <= r->fork_position && r->fork_position <= r->n_tokens &&
                r->fork_from != NULL;
    if (!fits || (n > 1 && r->fork_replaces) || r->logits_out != NULL || r->prompt_logprobs_width > 0) {
        return err_set(err, QUIRE_INVALID, -1, "cannot branch at token %d of %d, with a prompt of %d",
                       (int)r->fork_position, (int)r->n_tokens, (int)n_prompt);
    }
    if (r->beams.width > 0 || r->fork_from->beams != NULL) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "a beam search cannot be branched: its tokens are known only at its end");
    }
    if (r->n_tokens >= n_max && !r->no_tokens) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "max_tokens",
                             "the answer already has %d of at most %d tokens; none is left to generate",
                             (int)(r->n_tokens - n_prompt), (int)(n_max - n_prompt));
    }
    return QUIRE_OK;
}

/* Checks parks and no_tokens: parks go with samples only; no_tokens requires a single
 * sample without wanted rows. */
static quire_err submit_check_park(const engine *e, const engine_request *r, int32_t n, quire_error *err) {
    bool is_plain = r->beams.width == 0 && !submit_is_pooled(r);
    for (int32_t i = 0; r->parks != NULL && i < n; i++) {
        is_plain = is_plain && (r->parks[i] == NULL || engine_park_engine(r->parks[i]) == e);
    }
    bool wants = n > 1 || r->logits_out != NULL || r->prompt_logprobs_width > 0 || r->logprobs_width > 0;
    return (r->parks == NULL || is_plain) && (!r->no_tokens || (is_plain && !wants))
               ? QUIRE_OK
               : err_set(err, QUIRE_INVALID, -1,
                         "beam searches, pooled requests and requests of another engine cannot park; a "
                         "request without tokens must have one sample and no logits");
}

/* The most tokens of a sequence of r, prompt included. */
static int32_t submit_most_tokens(const engine *e, const engine_request *r, int32_t n_prompt) {
    int32_t room = e->options.max_model_len - n_prompt, wanted = r->sampling.max_tokens;
    if (submit_is_pooled(r) || r->no_tokens) {
        return r->n_tokens;
    }
    return n_prompt + (wanted < 0 || wanted > room ? room : wanted);
}

/* Takes table entries for the first n sequences of a group, which have readers, and
 * pushes the parent to the in-ring. False: too few entries are free. */
static bool submit_enter(engine *e, sequence *parent, const engine_request *r, int32_t n, request_id *ids) {
    pthread_mutex_lock(&e->lock);
    bool has_places = out_take_places(r->out, n, r->has_waited);
    /* the same time for all samples, so that they are admitted together */
    const int64_t now_us = clock_us();
    int32_t k = 0;
    for (sequence *s = parent; has_places && s != NULL; s = s->next_child, k++) {
        if (k < n) {
            uint32_t i = (uint32_t)e->free_entries[--e->n_free_entries];
            ids[k] = (request_id){i, e->entries[i].generation};
            e->entries[i].sequence = s;
        }
        s->id = ids[k < n ? k : 0];
        s->task.arrival = e->n_arrivals++;
        s->task.submitted_us = now_us;
        s->task.deadline_us = s->task.deadline_us > 0 ? now_us + s->task.deadline_us : 0;
        if (k < n) {
            out_enter(s);
        }
    }
    if (has_places) {
        if (parent->beams != NULL) {
            beam_unchain(parent);
        }
        ring_push(e->in, &parent); /* can't fail: the ring has as many cells as the table has entries */
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

/* Makes the sequences of a group, chained: one for each user or beam. On failure *parent
 * has those made so far. */
static quire_err make_group(const engine *e, const engine_request *r, int32_t n, int32_t n_max,
                            const void *constraint_state, void *const *users, sequence **parent) {
    for (int32_t k = (r->beams.width > 0 ? r->beams.width : n) - 1; k >= 0; k--) {
        sequence *s;
        engine_request own = *r;
        own.sample_index = r->sample_index + (uint32_t)k;
        own.shows_progress = r->shows_progress && k == 0;
        if (r->beams.width > 0) { /* the first beam computes the prompt for all */
            own.logits_out = k == 0 ? r->logits_out : NULL;
            own.prompt_logprobs_width = k < n ? r->prompt_logprobs_width : 0;
            own.explain = r->explain && k < n;
        }
        int32_t n_pages = (int32_t)kv_pages_for(n_max, e->options.page_tokens),
                n_states = e->kv.n_state_pages;
        TRY(sequence_new(&own, constraint_state, e->desc, n_max, e->layout.n_groups,
                         n_pages > n_states ? n_pages : n_states, &s));
        if (r->constraint != NULL) { /* computes the mask for its first step */
            quire_err prepared = sample_prepare(&s->context);
            s->rule_error = prepared;
        }
        s->user = k < n ? users[k] : NULL;
        s->park = r->parks != NULL ? engine_park_hold(r->parks[k]) : NULL;
        s->next_child = *parent;
        *parent = s;
        if (submit_is_pooled(r)) {
            TRY(row_pooling_open(r, e->m, s));
        }
    }
    return QUIRE_OK;
}

quire_err engine_submit_samples(engine *e, const engine_request *r, int32_t n, void *const *users,
                                request_id *ids, quire_error *err) {
    assert(n >= 1);
    TRY(submit_check_request(e, r, err));
    bool by_beams = r->beams.width > 0;
    if (n < 1 ||
        (n > 1 && !by_beams && (r->logits_out || r->prompt_logprobs_width > 0 || submit_is_pooled(r)))) {
        return err_set(err, QUIRE_INVALID, -1,
                       "%d samples; a request for prompt logits or a pooled row must have one", (int)n);
    }
    TRY(submit_check_park(e, r, n, err));
    int32_t n_prompt = r->n_prompt > 0 ? r->n_prompt : r->n_tokens;
    int32_t n_max = submit_most_tokens(e, r, n_prompt);
    TRY(check_branch(r, n, n_prompt, n_max, err));
    if (by_beams) {
        TRY(beam_check(e, r, n, &n_max, err));
    }
    sequence *parent = NULL;
    _Alignas(max_align_t) uint8_t state[CONSTRAINT_MAX_STATE_BYTES];
    const void *known = r->constraint_state != NULL ? r->constraint_state : state;
    if (r->constraint != NULL && known == state) {
        TRY(engine_constraint_state(e, r, state, err));
    }
    quire_err made = make_group(e, r, n, n_max, known, users, &parent);
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
    if (!submit_enter(e, parent, r, n, ids)) {
        drop_group(parent);
        return err_set(err, QUIRE_BUSY, -1,
                       "%d requests are waiting or running, the most this server takes; try again later",
                       (int)e->options.max_requests);
    }
    mem_free(r->tokens);
    wake_ring(e->in_wake);
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
    /* with another generation the request is over, and the entry may be in use again */
    if (entry->generation == id.generation) {
        atomic_store(&entry->cancel, id.generation);
    }
    pthread_mutex_unlock(&e->lock);
    /* must follow the store to cancel: whoever sees the count sees the store too */
    atomic_fetch_add(&e->n_cancels, 1);
    wake_ring(e->in_wake);
}
