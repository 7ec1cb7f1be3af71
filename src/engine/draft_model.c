#include "engine/draft_model.h"

#include <string.h>

#include "base/mem.h"
#include "sample/logprobs.h"
#include "spec/rejection.h"
#include "engine/state.h"
#include "engine/verify.h"

#define TILE_ROWS 16

/* The model's state of one sequence. */
typedef struct seat {
    sequence *s;        /* NULL: free */
    int32_t n_computed; /* its tokens whose keys and values are in the tables */
    float mirostat_mu;  /* the sequence's, as its drafts would change it */
    int32_t last;       /* the node of its draft that gets the next child: the end of the first branch */
    kv_table *tables;   /* [n_groups] */
} seat;

typedef struct model_drafter {
    drafter head;
    draft_model_options o;
    kv_pool *pool;
    int32_t n_seats, max_rows;
    seat *seats;
    kv_table *tables;                  /* [n_seats][n_groups] */
    int32_t *tokens, *positions, *out_rows;
    kv_slot *slots[KV_MAX_GROUPS];
    batch_seq *batch_seqs;
    attn_item *work;
    seat **drafting;                   /* [n_seats] those whose next row gives a token */
    int32_t n_drafting, max_work;
    kv_copies copies;                  /* always empty: pages are not shared */
    float *distributions;              /* [n_seats][n_tokens][n_vocab] with rejection sampling, else NULL */
    batch rows;
} model_drafter;

/* ---- seats ---- */

static void leave_seat(model_drafter *d, seat *at) {
    for (int32_t g = 0; g < d->o.layout->n_groups; g++) {
        kv_table_clear(d->pool, &at->tables[g]);
    }
    at->s->draft.seat = 0;
    at->s = NULL;
    at->n_computed = 0;
}

/* Releases the state of some sequence that is not drafted for in this step; false when there is none. */
static bool leave_idle(model_drafter *d) {
    for (int32_t i = 0; i < d->n_seats; i++) {
        if (d->seats[i].s != NULL && d->seats[i].s->draft.wanted.nodes == 0) {
            leave_seat(d, &d->seats[i]);
            return true;
        }
    }
    return false;
}

/* s's seat, truncated to the tokens that are still valid. */
static seat *take_seat(model_drafter *d, sequence *s) {
    if (s->draft.seat == 0) {
        int32_t i = 0;
        while (d->seats[i].s != NULL) { /* only running sequences have seats, and there is one for each of these */
            i++;
        }
        d->seats[i].s = s;
        s->draft.seat = i + 1;
    }
    seat *at = &d->seats[s->draft.seat - 1];
    if (at->n_computed > s->draft.n_agreed) {
        at->n_computed = s->draft.n_agreed;
        for (int32_t g = 0; g < d->o.layout->n_groups; g++) {
            kv_table_truncate(d->pool, &at->tables[g], at->n_computed, d->o.layout->page_tokens);
        }
    }
    at->mirostat_mu = s->mirostat_mu;
    at->last = DRAFT_ROOT;
    s->draft.n_agreed = s->n_known;
    return at;
}

/* Reserves pages for n more tokens in every group, or in none. */
static bool reserve(model_drafter *d, seat *at, int32_t n) {
    const int32_t size = d->o.layout->page_tokens;
    for (int32_t g = 0; g < d->o.layout->n_groups; g++) {
        quire_err r = kv_table_append(d->pool, &at->tables[g], n, size, &d->copies);
        while (r == QUIRE_NO_ROOM && leave_idle(d)) {
            r = kv_table_append(d->pool, &at->tables[g], n, size, &d->copies);
        }
        if (r != QUIRE_OK) {
            while (g-- > 0) {
                kv_table_truncate(d->pool, &at->tables[g], at->n_computed, size);
            }
            return false;
        }
    }
    return true;
}

/* ---- forward passes ---- */

/* Adds a seat's next n rows to the batch; its pages are reserved. Logits are wanted behind the last row when that is the last known
 * token. */
static void add_rows(model_drafter *d, seat *at, int32_t n, int32_t n_tokens) {
    batch_seq *q = &d->batch_seqs[d->rows.n_seqs++];
    *q = (batch_seq){.row0 = d->rows.n_rows, .n_rows = n, .n_tokens = at->n_computed + n};
    for (int32_t i = 0; i < n; i++) {
        int32_t row = d->rows.n_rows++, p = at->n_computed + i;
        d->tokens[row] = at->s->tokens[p];
        d->positions[row] = p;
        for (int32_t g = 0; g < d->o.layout->n_groups; g++) {
            d->slots[g][row] = (kv_slot){kv_table_slot(&at->tables[g], p, d->o.layout->page_tokens)};
        }
    }
    for (int32_t g = 0; g < d->o.layout->n_groups; g++) {
        q->pages[g] = &at->tables[g].pages->v;
    }
    at->n_computed += n;
    if (at->n_computed == n_tokens) {
        d->out_rows[d->rows.n_out++] = d->rows.n_rows - 1;
        d->drafting[d->n_drafting++] = at;
    }
}

static void begin_pass(model_drafter *d) {
    d->rows.n_rows = d->rows.n_seqs = d->rows.n_out = 0;
    d->n_drafting = 0;
}

static void run_pass(model_drafter *d) {
    d->rows.n_work = batch_plan_work(d->batch_seqs, d->rows.n_seqs, TILE_ROWS, d->work, d->max_work);
    model_forward(d->o.m, &d->rows);
    d->o.b->ops->step_wait(d->o.b);
}

/* Tokens of its first branch that a seat has guessed. */
static int32_t n_guessed(const seat *at) {
    return at->last == DRAFT_ROOT ? 0 : at->s->draft.tree.depths[at->last];
}

/* Draws the seat's next guess from row i's distribution, with its own noise, and keeps the distribution; false when there is none. */
static bool draw(model_drafter *d, engine *e, seat *at, int32_t i, const sample_context *c, int32_t *token) {
    const float *probs;
    sequence *s = at->s;
    size_t n = (size_t)e->desc->n_vocab;
    float *own = d->distributions + (size_t)(s->draft.seat - 1) * (size_t)e->options.draft.n_tokens * n,
          *row = own + (size_t)n_guessed(at) * n;
    if (sampler_distribution(e->sampler, d->o.b->ops->logits(d->o.b, i), c, &probs) != QUIRE_OK) {
        return false;
    }
    memcpy(row, probs, n * sizeof *row);
    s->draft.distributions = own;
    *token = rejection_draw(row, (int32_t)n,
                            (double)sample_uniform((sample_key){s->sampling.seed, s->sample_index, (uint32_t)c->n_tokens}, SAMPLE_DRAFT));
    return true;
}

/* Adds the likeliest tokens as further children of the root, besides the sampled one. */
static void add_others(sequence *s, const token_logprob *likeliest, int32_t n) {
    draft_tree *t = &s->draft.tree;
    int32_t sampled = t->tokens[0];
    for (int32_t i = 0; i < n && t->n < s->draft.wanted.width && t->n < s->draft.wanted.nodes; i++) {
        if (likeliest[i].id != sampled) {
            draft_tree_add(t, DRAFT_ROOT, likeliest[i].id);
        }
    }
}

/* Samples the seat's next guess from row i's logits, as the target would; false when it is the last. The first one may get siblings. */
static bool sample_draft(model_drafter *d, engine *e, seat *at, int32_t i) {
    sequence *s = at->s;
    token_logprob likeliest[DRAFT_MAX_WIDTH];
    const draft_bounds *wanted = &s->draft.wanted;
    int32_t token, n = s->n_known + n_guessed(at), n_likeliest = at->last == DRAFT_ROOT && wanted->width > 1 ? wanted->width : 0;
    sample_context c = {.params = &s->sampling,
                        .tokens = s->tokens,
                        .n_tokens = n,
                        .n_prompt = s->n_prompt,
                        .eos = e->desc->eos,
                        .n_eos = e->desc->n_eos,
                        .noise = sample_noise_of((sample_key){s->sampling.seed, s->sample_index, (uint32_t)n}),
                        .mirostat_mu = &at->mirostat_mu};
    n_likeliest = n_likeliest < e->desc->n_vocab ? n_likeliest : e->desc->n_vocab;
    logprobs_top(d->o.b->ops->logits(d->o.b, i), e->desc->n_vocab, 0.0, n_likeliest, likeliest);
    if (verify_by_rejection(e, s) ? !draw(d, e, at, i, &c, &token)
                                  : sampler_sample(e->sampler, d->o.b->ops->logits(d->o.b, i), &c, &token) != QUIRE_OK) {
        return false;
    }
    s->tokens[n] = token;
    at->last = draft_tree_add(&s->draft.tree, at->last, token);
    add_others(s, likeliest, n_likeliest);
    return n_guessed(at) < wanted->depth && s->draft.tree.n < wanted->nodes && !sequence_ends_with(s, token, e->desc->eos, e->desc->n_eos);
}

/* The first pass: computes the known tokens of the sequences to draft for, as far as the rows of a step suffice. */
static void catch_up(model_drafter *d, sequence *const *seqs, int32_t n) {
    begin_pass(d);
    for (int32_t i = 0; i < n && d->rows.n_rows < d->max_rows; i++) {
        sequence *s = seqs[i];
        seat *at = s->n_known + s->draft.wanted.depth <= d->o.max_len ? take_seat(d, s) : NULL;
        int32_t missing = at ? s->n_known - at->n_computed : 0, room = d->max_rows - d->rows.n_rows;
        int32_t n_rows = missing < room ? missing : room;
        if (n_rows > 0 && reserve(d, at, n_rows)) {
            add_rows(d, at, n_rows, s->n_known);
        }
    }
    if (d->rows.n_rows > 0) {
        run_pass(d);
    }
}

/* Samples for those that the last pass gave logits, and fills the next batch with those that continue. */
static void sample_all(model_drafter *d, engine *e) {
    int32_t n = d->n_drafting;
    begin_pass(d);
    for (int32_t i = 0; i < n; i++) {
        seat *at = d->drafting[i]; /* entries before i are written, none from i on */
        if (sample_draft(d, e, at, i) && reserve(d, at, 1)) {
            add_rows(d, at, 1, at->s->n_known + n_guessed(at));
        }
    }
}

static void propose(drafter *head, engine *e, sequence *const *seqs, int32_t n) {
    model_drafter *d = (model_drafter *)head;
    catch_up(d, seqs, n);
    for (sample_all(d, e); d->rows.n_rows > 0; sample_all(d, e)) {
        run_pass(d);
    }
    for (int32_t i = 0; i < n; i++) {
        draft_tree_sort(&seqs[i]->draft.tree);
    }
}

static void forget(drafter *head, sequence *s, bool over) {
    model_drafter *d = (model_drafter *)head;
    (void)over;
    if (s->draft.seat > 0) {
        leave_seat(d, &d->seats[s->draft.seat - 1]);
    }
}

/* ---- open and close ---- */

static void model_drafter_close(drafter *head) {
    model_drafter *d = (model_drafter *)head;
    if (d->seats && d->tables) {
        for (int32_t i = 0; i < d->n_seats * d->o.layout->n_groups; i++) {
            kv_table_deinit(d->pool, &d->tables[i]);
        }
    }
    kv_pool_close(d->pool);
    for (int32_t g = 0; g < KV_MAX_GROUPS; g++) {
        mem_free(d->slots[g]);
    }
    void *blocks[] = {d->seats,      d->tables, d->tokens,           d->positions,     d->out_rows,
                      d->batch_seqs, d->work,   (void *)d->drafting, d->distributions, d};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        mem_free(blocks[i]);
    }
}

static quire_err open_seats(model_drafter *d) {
    const kv_layout *l = d->o.layout;
    d->tables = mem_new((size_t)d->n_seats * (size_t)l->n_groups, sizeof *d->tables);
    d->seats = mem_new((size_t)d->n_seats, sizeof *d->seats);
    if (!d->seats || !d->tables) {
        return QUIRE_NO_MEMORY;
    }
    for (int32_t i = 0; i < d->n_seats; i++) {
        d->seats[i].tables = d->tables + (size_t)i * (size_t)l->n_groups;
        for (int32_t g = 0; g < l->n_groups; g++) {
            TRY(kv_table_init(&d->seats[i].tables[g], (int32_t)kv_pages_for(d->o.max_len, l->page_tokens)));
        }
    }
    return kv_pool_open(d->o.n_pages, &d->pool);
}

static quire_err open_arrays(model_drafter *d) {
    size_t n_rows = (size_t)d->max_rows, n_seqs = (size_t)d->n_seats;
    d->tokens = mem_new(n_rows, sizeof *d->tokens);
    d->positions = mem_new(n_rows, sizeof *d->positions);
    d->out_rows = mem_new(n_seqs, sizeof *d->out_rows);
    d->batch_seqs = mem_new(n_seqs, sizeof *d->batch_seqs);
    d->drafting = mem_new(n_seqs, sizeof(seat *));
    d->max_work = d->max_rows + d->n_seats;
    d->work = mem_new((size_t)d->max_work, sizeof *d->work);
    for (int32_t g = 0; g < d->o.layout->n_groups; g++) {
        d->rows.slots[g] = d->slots[g] = mem_new(n_rows, sizeof *d->slots[g]);
        if (!d->slots[g]) {
            return QUIRE_NO_MEMORY;
        }
    }
    d->rows.tokens = d->tokens;
    d->rows.positions = d->positions;
    d->rows.n_axes = 1;
    d->rows.seqs = d->batch_seqs;
    d->rows.out_rows = d->out_rows;
    d->rows.work = d->work;
    return d->tokens && d->positions && d->out_rows && d->batch_seqs && d->drafting && d->work ? QUIRE_OK : QUIRE_NO_MEMORY;
}

quire_err draft_model_open(engine *e, drafter **out, quire_error *err) {
    static const draft_ops ops = {.propose = propose, .forget = forget, .close = model_drafter_close};
    const draft_model_options *o = &e->options.draft.model;
    const model_desc *desc = model_description(o->m);
    if (desc->n_vocab != e->desc->n_vocab) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "the draft model has %d tokens in its vocabulary, the model %d; they must be the same",
                       (int)desc->n_vocab, (int)e->desc->n_vocab);
    }
    model_drafter *d = mem_new(1, sizeof *d);
    if (!d) {
        return QUIRE_NO_MEMORY;
    }
    d->head.ops = &ops;
    d->o = *o;
    d->n_seats = e->limits.max_seqs;
    d->max_rows = e->limits.max_rows;
    quire_err r = open_seats(d);
    r = r ? r : open_arrays(d);
    if (r == QUIRE_OK && e->options.draft.rule == DRAFT_RULE_STANDARD) {
        d->distributions =
            mem_new((size_t)d->n_seats * (size_t)e->options.draft.n_tokens, (size_t)desc->n_vocab * sizeof *d->distributions);
        r = d->distributions ? QUIRE_OK : QUIRE_NO_MEMORY;
    }
    if (r != QUIRE_OK) {
        model_drafter_close(&d->head);
        return r;
    }
    *out = &d->head;
    return QUIRE_OK;
}
