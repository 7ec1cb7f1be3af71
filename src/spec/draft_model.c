/* Drafts by a second, smaller model with the same vocabulary. It samples with the
 * target's parameters and the noise of each position, so where both models agree they
 * sample the same token, even at temperatures over 0. Only the first level of a tree has
 * more than one token: the sampled one, and those that the model finds likeliest, at no
 * further cost.
 *
 * The draft model has a KV cache of its own. A sequence gets a kv_seq in it at its first
 * draft, with block tables for the longest sequence, and releases it when it ends or is
 * preempted. The next call truncates what was computed for rejected drafts. A recurrent
 * state cannot be truncated, so with such states the drafts of a call are computed on a
 * fork of the sequence, which is released when the call ends. Known tokens that the model
 * has not seen yet (a prompt at first) are computed in the call, as many rows as its
 * backend takes in a step; sequences that are then up to date get drafts. When pages run
 * out, it takes those of sequences without drafts in this step; if there are none, there
 * is no draft. If it shares a memory budget with the target, the target may take the
 * pages of any sequence, which gets drafts again once there is room for all of its
 * tokens. Invariant: the kv_seq's tables hold its n_computed tokens, of which the first
 * min(n_computed, n_agreed) are the sequence's own. */
#include <string.h>

#include "base/mem.h"
#include "kv/kv_seq.h"
#include "sample/constraint.h"
#include "sample/logprobs.h"
#include "spec/draft.h"
#include "spec/verify.h"

#define TILE_ROWS 16

/* The model's state of one sequence. */
typedef struct model_seq {
    draft_seq *s;      /* NULL: the entry is free */
    kv_seq kv;         /* the sequence in the draft model's cache */
    kv_seq fork;       /* with recurrent states: a fork of kv for the drafts of a call; else unused */
    float mirostat_mu; /* copy of the sequence's mirostat state, changed by its drafts */
    int32_t last;      /* last node of the first branch, which gets the next child */
} model_seq;

typedef struct model_drafter {
    drafter head;
    draft_options options;
    draft_target target;
    kv_cache cache; /* has no prefix index: nothing is reused */
    kv_mover mover; /* used only to discard pages */
    model_seq *seqs;
    const kv_table **tables;                /* [max_seqs * groups] scratch of `check` */
    int32_t *tokens, *positions, *out_rows; /* arrays of the batch */
    kv_slot *slots[KV_MAX_GROUPS];
    batch_seq *batch_seqs;
    attn_item *work;
    int32_t max_work;
    model_seq **drafting; /* [rows.n_out] sequence that each logits row is for */
    kv_copies copies;     /* copies of shared pages to make before the next pass */
    float *distributions; /* [n_seqs][n_tokens][n_vocab] for rejection sampling; else NULL */
    batch rows;
} model_drafter;

/* ---- sequences ---- */

static void drop_seq(model_drafter *d, model_seq *at) {
    kv_seq_release(&d->cache, &at->kv, at->s->tokens, KV_DROP);
    at->s->model_seq = 0;
    at->s = NULL;
}

/* Releases the cache of a sequence without drafts in this step. False: there is none. */
static bool leave_idle(model_drafter *d) {
    for (int32_t i = 0; i < d->target.max_seqs; i++) {
        if (d->seqs[i].s != NULL && d->seqs[i].s->wanted.nodes == 0) {
            drop_seq(d, &d->seqs[i]);
            return true;
        }
    }
    return false;
}

/* Releases the cache of the sequence with the fewest tokens, which is the fastest to
 * compute again. False: there is none. */
static bool leave_shortest(model_drafter *d) {
    model_seq *least = NULL;
    for (int32_t i = 0; i < d->target.max_seqs; i++) {
        model_seq *at = &d->seqs[i];
        if (at->s != NULL && (least == NULL || at->kv.n_computed < least->kv.n_computed)) {
            least = at;
        }
    }
    if (least != NULL) {
        drop_seq(d, least);
    }
    return least != NULL;
}

static bool draft_model_yield(void *context) {
    return leave_idle(context) || leave_shortest(context);
}

static bool keeps_states(const model_drafter *d) {
    return d->cache.n_state_pages > 0;
}

/* Returns the model's state of s, truncated to the tokens that are still valid; makes it
 * if needed. */
static model_seq *take_seq(model_drafter *d, draft_seq *s) {
    if (s->model_seq == 0) {
        int32_t i = 0;
        /* terminates: only running sequences have a state, and there is an entry for
         * each */
        while (d->seqs[i].s != NULL) {
            i++;
        }
        d->seqs[i].s = s;
        s->model_seq = i + 1;
    }
    model_seq *at = &d->seqs[s->model_seq - 1];
    if (at->kv.n_computed > s->n_agreed) {
        bool can = kv_seq_can_truncate(&d->cache, &at->kv, s->n_agreed);
        kv_seq_truncate(&d->cache, &at->kv, can ? s->n_agreed : 0);
    }
    at->mirostat_mu = *s->context->mirostat_mu;
    if (s->context->constraint != NULL) {
        memcpy(s->constraint_state, s->context->constraint_state, s->context->constraint->state_bytes);
    }
    at->last = DRAFT_ROOT;
    s->n_agreed = s->n_known;
    return at;
}

static bool draft_model_has(const model_drafter *d, int64_t n) {
    return n <= kv_cache_available(&d->cache);
}

/* Reserves pages for n more tokens in all groups, or in none (false). */
static bool draft_model_reserve(model_drafter *d, kv_seq *kv, int32_t n) {
    int64_t n_pages = kv_seq_needs(&d->cache, kv, n);
    while (!draft_model_has(d, n_pages)) {
        if (!leave_idle(d)) {
            return false;
        }
    }
    kv_cache_make_free(&d->cache, (int32_t)n_pages);
    return kv_seq_reserve(&d->cache, kv, n, &d->copies) == QUIRE_OK;
}

/* Returns the kv_seq that the drafts are written to: the fork with recurrent states, else
 * kv. */
static kv_seq *drafts_of(model_drafter *d, model_seq *at) {
    if (!keeps_states(d)) {
        return &at->kv;
    }
    if (at->fork.n_computed == 0) {
        kv_seq_fork(&d->cache, &at->kv, at->kv.n_computed, &at->fork);
    }
    return &at->fork;
}

/* Whether s may have a state. A new one needs room for all known tokens and their drafts,
 * else the target would reclaim its memory before the first draft. */
static bool draft_model_may_begin(model_drafter *d, const draft_seq *s) {
    int32_t n = s->n_known + s->wanted.depth;
    if (n > d->options.model.max_len) {
        return false;
    }
    bool has_begun = s->model_seq > 0 && d->seqs[s->model_seq - 1].kv.n_computed > 0;
    int64_t n_pages = kv_pages_for(n, d->cache.page_tokens) * d->cache.n_token_groups;
    if (keeps_states(d)) { /* room for the fork's own pages */
        n_pages += d->cache.n_token_groups + 2 * (int64_t)d->cache.n_state_pages;
    }
    while (d->cache.budget != NULL && !has_begun && !draft_model_has(d, n_pages)) {
        if (!leave_idle(d)) {
            return false;
        }
    }
    return true;
}

/* ---- forward passes ---- */

/* Adds to the batch the next n rows of a sequence or its fork, whose pages are reserved.
 * The last row gets logits if it is token n_tokens. */
static void draft_model_add_rows(model_drafter *d, model_seq *at, kv_seq *kv, int32_t n, int32_t n_tokens) {
    int32_t row0 = d->rows.n_rows, p0 = kv->n_computed;
    batch_seq *q = &d->batch_seqs[d->rows.n_seqs++];
    *q = (batch_seq){.row0 = row0, .n_rows = n, .n_tokens = p0 + n};
    memcpy(d->tokens + row0, at->s->tokens + p0, (size_t)n * sizeof *d->tokens);
    for (int32_t i = 0; i < n; i++) {
        d->positions[row0 + i] = p0 + i;
    }
    for (int32_t g = 0; g < kv->n_tables; g++) {
        if (g < d->cache.n_token_groups) {
            kv_seq_slots(&d->cache, kv, g, p0, n, d->slots[g] + row0);
        }
        q->pages[g] = &kv->tables[g].pages->v;
    }
    d->rows.n_rows += n;
    kv_seq_advance(kv, n);
    if (kv->n_computed == n_tokens) {
        d->drafting[d->rows.n_out] = at;
        d->out_rows[d->rows.n_out++] = d->rows.n_rows - 1;
    }
}

static void begin_pass(model_drafter *d) {
    d->rows.n_rows = d->rows.n_seqs = d->rows.n_out = 0;
}

static void run_pass(model_drafter *d) {
    backend *b = d->options.model.b;
    for (int32_t i = 0; i < d->copies.n; i++) {
        const kv_copy_pair pair = {d->copies.pairs[i].src.v, d->copies.pairs[i].dst.v};
        b->ops->kv_copy(b, &pair, 1);
    }
    d->copies.n = 0;
    d->rows.n_work = batch_plan_work(d->batch_seqs, d->rows.n_seqs, TILE_ROWS, d->work, d->max_work);
    model_forward(d->options.model.m, &d->rows);
    d->options.model.b->ops->step_wait(d->options.model.b);
}

/* Number of guessed tokens on the first branch. */
static int32_t n_guessed(const model_seq *at) {
    return at->last == DRAFT_ROOT ? 0 : at->s->tree.depths[at->last];
}

/* Samples the sequence's next guess. With rejection sampling, draws it from the row's
 * distribution with noise of its own, and stores the distribution. False: no token can be
 * sampled. */
static bool draft_model_draw(const model_drafter *d, const model_seq *at, sample_row *row) {
    draft_seq *s = at->s;
    size_t n = (size_t)d->target.desc->n_vocab;
    row->goal = draft_by_rejection(&d->options, s->context->params) ? SAMPLE_DISTRIBUTION : SAMPLE_TOKEN;
    sample_batch(d->target.samples, row, 1);
    if (row->goal == SAMPLE_DISTRIBUTION && row->result->error == QUIRE_OK) {
        float *own = d->distributions + (size_t)(s->model_seq - 1) * (size_t)d->options.n_tokens * n;
        s->distributions = own;
        own += (size_t)n_guessed(at) * n;
        memcpy(own, row->probs, n * sizeof *own);
        row->result->token = rejection_draw(
            own, (int32_t)n, (double)sample_uniform(sample_key_of(&row->context), SAMPLE_DRAFT));
        row->result->error = sample_accept(&row->context, row->result->token);
    }
    return row->result->error == QUIRE_OK && row->result->token >= 0;
}

/* Adds the likeliest tokens as siblings of the sampled first guess. */
static void add_others(draft_seq *s, const token_logprob *likeliest, int32_t n) {
    draft_tree *t = &s->tree;
    int32_t sampled = t->tokens[0];
    for (int32_t i = 0; i < n && t->n < s->wanted.width && t->n < s->wanted.nodes; i++) {
        if (likeliest[i].id != sampled) {
            draft_tree_add(t, DRAFT_ROOT, likeliest[i].id);
        }
    }
}

/* Samples the sequence's next guess from row i's logits, as the target would. The first
 * guess may get siblings. False: it was the last guess. */
static bool sample_draft(model_drafter *d, model_seq *at, int32_t i) {
    draft_seq *s = at->s;
    token_logprob likeliest[DRAFT_MAX_WIDTH];
    const draft_bounds *wanted = &s->wanted;
    const model_desc *desc = d->target.desc;
    int32_t n = s->n_known + n_guessed(at),
            n_likeliest = at->last == DRAFT_ROOT && wanted->width > 1 ? wanted->width : 0;
    sample_result result = NOT_SAMPLED;
    sample_row row = {.logits = d->options.model.b->ops->logits(d->options.model.b, i),
                      .context = *s->context,
                      .result = &result};
    row.context.n_tokens = n;
    row.context.mirostat_mu = &at->mirostat_mu;
    row.context.constraint_state = s->constraint_state;
    row.context.rule = NULL; /* the rule belongs to the target's state */
    n_likeliest = n_likeliest < desc->n_vocab ? n_likeliest : desc->n_vocab;
    logprobs_top(row.logits, desc->n_vocab, 0.0, n_likeliest, likeliest);
    if (!draft_model_draw(d, at, &row)) {
        return false;
    }
    s->tokens[n] = result.token;
    at->last = draft_tree_add(&s->tree, at->last, result.token);
    add_others(s, likeliest, n_likeliest);
    return n_guessed(at) < wanted->depth && s->tree.n < wanted->nodes &&
           end_token_kind(s->context->params, desc, result.token) == END_NONE;
}

/* Runs the first pass: computes known tokens that the model has not seen, as far as the
 * rows of a step suffice. */
static void catch_up(model_drafter *d, draft_seq *const *seqs, int32_t n) {
    begin_pass(d);
    for (int32_t i = 0; i < n && d->rows.n_rows < d->target.max_rows; i++) {
        draft_seq *s = seqs[i];
        model_seq *at = draft_model_may_begin(d, s) ? take_seq(d, s) : NULL;
        int32_t missing = at ? s->n_known - at->kv.n_computed : 0, room = d->target.max_rows - d->rows.n_rows;
        int32_t n_rows = missing < room ? missing : room;
        if (n_rows > 0 && draft_model_reserve(d, &at->kv, n_rows)) {
            draft_model_add_rows(d, at, &at->kv, n_rows, s->n_known);
        }
    }
    if (d->rows.n_rows > 0) {
        run_pass(d);
    }
}

/* Samples from the logits of the last pass, and fills the next batch with the sequences
 * that continue. */
static void sample_all(model_drafter *d) {
    int32_t n = d->rows.n_out;
    begin_pass(d);
    for (int32_t i = 0; i < n; i++) {
        model_seq *at = d->drafting[i]; /* the next batch has overwritten only entries before i */
        if (sample_draft(d, at, i) && draft_model_reserve(d, drafts_of(d, at), 1)) {
            draft_model_add_rows(d, at, drafts_of(d, at), 1, at->s->n_known + n_guessed(at));
        }
    }
}

static void draft_model_propose(drafter *head, draft_seq *const *seqs, int32_t n) {
    model_drafter *d = (model_drafter *)head;
    catch_up(d, seqs, n);
    for (sample_all(d); d->rows.n_rows > 0; sample_all(d)) {
        run_pass(d);
    }
    for (int32_t i = 0; i < n; i++) {
        draft_tree_sort(&seqs[i]->tree);
        if (keeps_states(d) && seqs[i]->model_seq > 0) {
            kv_seq_release(&d->cache, &d->seqs[seqs[i]->model_seq - 1].fork, seqs[i]->tokens, KV_DROP);
        }
    }
}

static void draft_model_forget(drafter *head, draft_seq *s, bool over) {
    model_drafter *d = (model_drafter *)head;
    (void)over;
    if (s->model_seq > 0) {
        drop_seq(d, &d->seqs[s->model_seq - 1]);
    }
}

static quire_err draft_model_check(const drafter *head, quire_error *err) {
    const model_drafter *d = (const model_drafter *)head;
    int32_t n = 0;
    for (int32_t i = 0; i < d->target.max_seqs; i++) {
        TRY(kv_seq_check(&d->cache, &d->seqs[i].kv, err));
        n += kv_seq_list_tables(&d->seqs[i].kv, d->tables + n);
    }
    return kv_cache_check(&d->cache, d->tables, n, err);
}

static kv_cache *draft_model_cache(drafter *head) {
    return &((model_drafter *)head)->cache;
}

/* ---- open and close ---- */

static bool draft_model_discard(void *b, page_id first, int32_t n) {
    const backend_ops *ops = ((backend *)b)->ops;
    return ops->kv_discard != NULL && ops->kv_discard(b, first.v, n);
}

static void model_drafter_close(drafter *head) {
    model_drafter *d = (model_drafter *)head;
    for (int32_t i = 0; d->seqs && i < d->target.max_seqs; i++) {
        if (d->seqs[i].s != NULL) {
            kv_seq_release(&d->cache, &d->seqs[i].kv, d->seqs[i].s->tokens, KV_DROP);
        }
        kv_seq_deinit(&d->seqs[i].kv);
        kv_seq_deinit(&d->seqs[i].fork);
    }
    kv_cache_close(&d->cache);
    for (int32_t g = 0; g < KV_MAX_GROUPS; g++) {
        mem_free(d->slots[g]);
    }
    void *blocks[] = {d->seqs, d->tokens,           d->positions,     d->out_rows,       d->batch_seqs,
                      d->work, (void *)d->drafting, d->distributions, (void *)d->tables, d->copies.pairs,
                      d};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        mem_free(blocks[i]);
    }
}

static quire_err draft_model_open_seqs(model_drafter *d) {
    const kv_layout *l = d->options.model.layout;
    kv_cache_options o = kv_cache_options_of(l, d->options.model.n_pages);
    o.no_index = true;
    d->mover = (kv_mover){
        .context = d->options.model.b, .page_bytes = l->page_bytes, .discard = draft_model_discard};
    o.mover = &d->mover;
    o.budget = d->options.model.budget;
    o.page_bytes = l->page_bytes;
    o.yield = draft_model_yield;
    o.yield_context = d;
    TRY(kv_cache_open(&o, &d->cache));
    int32_t cap_pages = (int32_t)kv_pages_for(d->options.model.max_len, l->page_tokens);
    cap_pages = cap_pages > d->cache.n_state_pages ? cap_pages : d->cache.n_state_pages;
    d->seqs = mem_new((size_t)d->target.max_seqs, sizeof *d->seqs);
    TRY(mem_check(d->seqs));
    d->tables = mem_new((size_t)d->target.max_seqs * (size_t)l->n_groups, sizeof(const kv_table *));
    TRY(mem_check(d->tables));
    for (int32_t i = 0; i < d->target.max_seqs; i++) {
        TRY(kv_seq_init(&d->seqs[i].kv, l->n_groups, cap_pages));
        if (keeps_states(d)) {
            TRY(kv_seq_init(&d->seqs[i].fork, l->n_groups, cap_pages));
        }
    }
    if (keeps_states(d)) { /* room for each fork's last page and its recurrent state */
        d->copies.cap = d->target.max_seqs * (d->cache.n_token_groups + d->cache.n_state_pages);
        d->copies.pairs = mem_new((size_t)d->copies.cap, sizeof *d->copies.pairs);
        TRY(mem_check(d->copies.pairs));
    }
    return QUIRE_OK;
}

static quire_err draft_model_open_arrays(model_drafter *d) {
    size_t n_rows = (size_t)d->target.max_rows, n_seqs = (size_t)d->target.max_seqs;
    d->tokens = mem_new(n_rows, sizeof *d->tokens);
    d->positions = mem_new(n_rows, sizeof *d->positions);
    d->out_rows = mem_new(n_seqs, sizeof *d->out_rows);
    d->batch_seqs = mem_new(n_seqs, sizeof *d->batch_seqs);
    d->drafting = mem_new(n_seqs, sizeof(model_seq *));
    d->max_work = d->target.max_rows + d->target.max_seqs;
    d->work = mem_new((size_t)d->max_work, sizeof *d->work);
    for (int32_t g = 0; g < d->cache.n_token_groups; g++) {
        d->rows.slots[g] = d->slots[g] = mem_new(n_rows, sizeof *d->slots[g]);
        TRY(mem_check(d->slots[g]));
    }
    d->rows.tokens = d->tokens;
    d->rows.positions = d->positions;
    d->rows.n_axes = 1;
    d->rows.seqs = d->batch_seqs;
    d->rows.out_rows = d->out_rows;
    d->rows.work = d->work;
    return d->tokens && d->positions && d->out_rows && d->batch_seqs && d->drafting && d->work
               ? QUIRE_OK
               : QUIRE_NO_MEMORY;
}

quire_err draft_model_open(const draft_options *o, const draft_target *t, drafter **out, quire_error *err) {
    static const draft_ops ops = {.propose = draft_model_propose,
                                  .forget = draft_model_forget,
                                  .check = draft_model_check,
                                  .cache = draft_model_cache,
                                  .close = model_drafter_close};
    int32_t n_vocab = model_description(o->model.m)->n_vocab;
    if (n_vocab != t->desc->n_vocab) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "the draft model has %d tokens in its vocabulary, the model %d; they must be the same",
                       (int)n_vocab, (int)t->desc->n_vocab);
    }
    model_drafter *d = mem_new(1, sizeof *d);
    TRY(mem_check(d));
    d->head.ops = &ops;
    d->options = *o;
    d->target = *t;
    quire_err r = draft_model_open_seqs(d);
    TRY_DONE(r, draft_model_open_arrays(d));
    if (o->rule == DRAFT_RULE_STANDARD) {
        d->distributions =
            mem_new((size_t)t->max_seqs * (size_t)o->n_tokens, (size_t)n_vocab * sizeof *d->distributions);
        r = d->distributions ? QUIRE_OK : QUIRE_NO_MEMORY;
    }
done:
    if (r != QUIRE_OK) {
        model_drafter_close(&d->head);
        return r;
    }
    *out = &d->head;
    return QUIRE_OK;
}
