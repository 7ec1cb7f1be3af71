/* Fills the batch of a step for the planned items: tokens, positions, slots, wanted rows
 * and the attention work list. The engine thread. */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "engine/row_pooling.h"
#include "engine/state.h"

#define TILE_ROWS 16 /* most query rows of one attention item */

/* ---- open and close ---- */

quire_err batch_open(engine *e) {
    assert(e != NULL);
    step_arrays *a = &e->step;
    size_t n_rows = (size_t)e->sched.limits.max_rows, n_seqs = (size_t)e->sched.limits.max_seqs,
           n_workers = (size_t)e->samples.n_workers;
    a->out0 = mem_new(n_seqs, sizeof *a->out0);
    a->uses = mem_new(n_seqs, sizeof *a->uses);
    a->tokens = mem_new(n_rows, sizeof *a->tokens);
    a->positions = mem_new(n_rows, sizeof *a->positions);
    a->types = mem_new(n_rows, sizeof *a->types);
    a->parents = mem_new(n_rows, sizeof *a->parents);
    a->faults = mem_new(n_rows, sizeof *a->faults);
    a->adapters = mem_new((size_t)e->options.max_adapters + 1, sizeof *a->adapters);
    a->row_adapters = mem_new(n_rows, sizeof *a->row_adapters);
    a->out_rows = mem_new((size_t)e->sched.limits.max_out, sizeof *a->out_rows);
    a->batch_seqs = mem_new(n_seqs, sizeof *a->batch_seqs);
    a->hidden = mem_new((size_t)e->desc->d_model * n_workers, sizeof *a->hidden);
    a->raw = mem_new((size_t)e->desc->n_vocab * n_workers, sizeof *a->raw);
    a->forked = mem_new((size_t)e->desc->n_vocab, sizeof *a->forked);
    a->states = mem_new(DRAFT_MAX * n_workers, CONSTRAINT_MAX_STATE_BYTES);
    a->lines = mem_new(n_seqs, sizeof *a->lines);
    a->line_rows = mem_new((size_t)e->sched.limits.max_out + 1, sizeof *a->line_rows);
    a->line_results = mem_new(n_rows, sizeof *a->line_results);
    a->tables = mem_new((n_seqs + (size_t)e->parks.max) * (size_t)e->layout.n_groups, sizeof(kv_table *));
    bool whole = a->out0 && a->uses && a->tokens && a->positions && a->types && a->parents && a->faults &&
                 a->out_rows && a->batch_seqs && a->tables && a->hidden && a->raw && a->forked && a->states &&
                 a->lines && a->line_rows && a->line_results && a->adapters && a->row_adapters;
    for (int32_t g = 0; g < e->kv.n_token_groups && whole; g++) {
        a->slots[g] = mem_new(n_rows, sizeof *a->slots[g]);
        a->rows.slots[g] = a->slots[g];
        whole = a->slots[g] != NULL;
    }
    if (!whole) {
        return QUIRE_NO_MEMORY;
    }
    a->rows.tokens = a->tokens;
    a->rows.positions = a->positions;
    a->rows.n_axes = 1;
    a->rows.seqs = a->batch_seqs;
    a->rows.out_rows = a->out_rows;
    const cascade_limits limits = {e->sched.limits.max_rows, e->sched.limits.max_seqs, TILE_ROWS,
                                   e->b->ops->n_workers != NULL ? e->b->ops->n_workers(e->b) : 1};
    TRY(cascade_open(&e->layout, &limits, &a->cascade));
    a->rows.work = a->cascade.items;
    return QUIRE_OK;
}

void batch_close(engine *e) {
    step_arrays *a = &e->step;
    void *blocks[] = {a->out0,      a->uses,         a->tokens,         a->positions,       a->parents,
                      a->out_rows,  a->batch_seqs,   (void *)a->tables, a->hidden,          a->raw,
                      a->forked,    a->types,        a->faults,         a->states,          a->lines,
                      a->line_rows, a->line_results, a->row_adapters,   (void *)a->adapters};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        mem_free(blocks[i]);
    }
    cascade_close(&a->cascade);
    for (int32_t g = 0; g < KV_MAX_GROUPS; g++) {
        mem_free(a->slots[g]);
    }
}

/* ---- fill ---- */

int32_t batch_first_wanted(const sequence *s) {
    if (s->task.no_logits) {
        return s->task.n_known;
    }
    /* the rows before the last jump-forward token are not sampled from */
    int32_t sampled = s->task.n_known - 1 + s->draft.n_jump_forward;
    return task_wants_logits(&s->task) && s->task.logits_first < sampled ? s->task.logits_first : sampled;
}

/* Appends n rows for tokens[0..n), which are s's tokens from index p0 on: tokens,
 * positions, slots, and which logits are wanted. */
static void batch_fill_rows(engine *e, const sequence *s, const int32_t *tokens, int32_t p0, int32_t n) {
    step_arrays *a = &e->step;
    int32_t row0 = a->rows.n_rows, wanted = batch_first_wanted(s) - p0;
    a->rows.n_rows += n;
    for (int32_t i = 0; i < n; i++) {
        a->tokens[row0 + i] = tokens[i];
        a->positions[row0 + i] = p0 + i;
    }
    for (int32_t g = 0; g < e->kv.n_token_groups; g++) {
        kv_seq_slots(&e->kv, &s->task.kv, g, p0, n, a->slots[g] + row0);
    }
    for (int32_t i = wanted > 0 ? wanted : 0; i < n; i++) {
        a->out_rows[a->rows.n_out++] = row0 + i;
    }
}

static row_use use_of(const engine *e, const sequence *s, const sched_item *it) {
    if (s->pooling != NULL) {
        return ROW_POOLED;
    }
    if (s->no_tokens || s->task.kv.n_computed + it->n_rows - it->n_drafts < s->task.n_known) {
        return ROW_NONE;
    }
    if (s->beams != NULL) {
        return ROW_BEAM;
    }
    bool is_judged = it->n_drafts > 0 && s->draft.n_jump_forward == 0 &&
                     draft_by_rejection(&e->options.draft, &s->sampling);
    return is_judged || s->next_child != NULL || task_wants_logits(&s->task) ? ROW_ALONE : ROW_LINE;
}

/* Appends the rows of one item: its known tokens, then its drafts. Their slots are
 * adjacent, even where draft positions are not. */
static void fill_item(engine *e, int32_t item) {
    step_arrays *a = &e->step;
    const sequence *s = planned_at(e, item);
    const draft_tree *tree = &s->draft.tree;
    const sched_item *it = &e->sched.plan.items[item];
    int32_t row0 = a->rows.n_rows, n = it->n_rows, n_drafts = it->n_drafts, n_own = n - n_drafts;
    bool branches = false;
    a->out0[item] = a->rows.n_out;
    a->uses[item] = use_of(e, s, it);
    batch_fill_rows(e, s, s->task.tokens + s->task.kv.n_computed, s->task.kv.n_computed, n_own);
    if (n_drafts > 0) {
        batch_fill_rows(e, s, tree->tokens, s->task.n_known, n_drafts);
    }
    for (int32_t i = 0; i < n_drafts; i++) {
        a->parents[row0 + n_own + i] = n_own + tree->parents[i];
        branches = branches || tree->parents[i] != i - 1;
        a->positions[row0 + n_own + i] = s->task.n_known - 1 + tree->depths[i];
    }
    a->rows.wants_rows = a->rows.wants_rows || s->pooling != NULL;
    batch_seq *q = &a->batch_seqs[a->rows.n_seqs++];
    q->row0 = row0;
    q->n_rows = n;
    q->n_tokens = s->task.kv.n_computed + n;
    q->two_sided = e->desc->two_sided;
    q->parents = branches ? a->parents + row0 : NULL;
    q->mods = s->mods;
    q->b = s->mods_b;
    q->n_snapshots = s->task.kv.n_copies;
    q->snapshots = e->kv.state_copies.list + s->task.kv.copies0;
    for (int32_t g = 0; g < s->task.kv.n_tables; g++) {
        q->pages[g] = &s->task.kv.tables[g].pages->v;
    }
}

/* Fills the types of pooled rows if any sequence of the batch has types. */
static void fill_types(engine *e) {
    step_arrays *a = &e->step;
    a->rows.types = NULL;
    for (int32_t i = 0; i < a->rows.n_seqs && a->rows.wants_rows; i++) {
        const row_pooling *p = planned_at(e, i)->pooling;
        const batch_seq *q = &a->batch_seqs[i];
        if (p == NULL || p->types == NULL) {
            continue;
        }
        if (a->rows.types == NULL) {
            memset(a->types, 0, (size_t)a->rows.n_rows * sizeof *a->types);
            a->rows.types = a->types;
        }
        memcpy(a->types + q->row0, p->types + q->n_tokens - q->n_rows, (size_t)q->n_rows * sizeof *a->types);
    }
}

/* The adapter's index in the batch's list; adds it if it is missing. */
static int16_t number_of_adapter(const engine *e, step_arrays *a, const struct adapter *weights) {
    int32_t i = 0;
    while (i < a->rows.n_adapters && a->adapters[i] != weights) {
        i++;
    }
    if (i == a->rows.n_adapters) {
        assert(i < e->options.max_adapters);
        (void)e;
        a->adapters[a->rows.n_adapters++] = weights;
    }
    return (int16_t)i;
}

/* Sets the adapter of each row. If no row has one, the batch is the same as that of an
 * engine without adapters. */
static void fill_adapters(engine *e) {
    step_arrays *a = &e->step;
    a->rows.adapters = NULL;
    a->rows.row_adapters = NULL;
    a->rows.n_adapters = 0;
    for (int32_t i = 0; i < a->rows.n_seqs && e->options.max_adapters > 0; i++) {
        const sequence *s = planned_at(e, i);
        const batch_seq *q = &a->batch_seqs[i];
        /* positions ascend, except among the drafts, which are last */
        int32_t row = q->row0, end = q->row0 + q->n_rows;
        while (s->adapter != NULL && row < end && a->positions[row] < s->adapter_from) {
            row++;
        }
        if (s->adapter == NULL || row == end) {
            continue;
        }
        if (a->rows.row_adapters == NULL) {
            memset(a->row_adapters, -1, (size_t)a->rows.n_rows * sizeof *a->row_adapters);
            a->rows.row_adapters = a->row_adapters;
            a->rows.adapters = a->adapters;
        }
        int16_t number = number_of_adapter(e, a, s->adapter->weights);
        for (; row < end; row++) {
            a->row_adapters[row] = number;
        }
    }
}

/* Clears the rows' faults, if an attention program of the batch can fault. */
static void clear_faults(step_arrays *a) {
    a->rows.faults = NULL;
    for (int32_t i = 0; i < a->rows.n_seqs && a->rows.faults == NULL; i++) {
        const attn_mods *mods = a->batch_seqs[i].mods;
        bool may_fault =
            mods != NULL && ((mods->mask != NULL && mods->mask->may_fault) || mods->score != NULL);
        a->rows.faults = may_fault ? a->faults : NULL;
    }
    for (int32_t i = 0; i < a->rows.n_rows && a->rows.faults != NULL; i++) {
        atomic_store(&a->faults[i], 0);
    }
}

void batch_fill(engine *e) {
    step_arrays *a = &e->step;
    a->rows.n_rows = a->rows.n_seqs = a->rows.n_out = 0;
    a->rows.wants_rows = false;
    for (int32_t i = 0; i < e->sched.plan.n_items; i++) {
        fill_item(e, i);
    }
    fill_types(e);
    fill_adapters(e);
    clear_faults(a);
    if (e->options.no_cascade) {
        a->rows.n_work = batch_plan_work(a->batch_seqs, a->rows.n_seqs, a->cascade.limits.tile_rows,
                                         a->cascade.items, a->cascade.max_items);
    } else {
        cascade_plan(&a->cascade, &a->rows);
    }
}
