/* The arrays of a step's batch, allocated at open, so that a step allocates nothing. */
#include "base/mem.h"
#include "engine/state.h"

#define TILE_ROWS 16 /* most query rows of one attention item */

quire_err step_open(engine *e) {
    step_arrays *a = &e->step;
    size_t n_rows = (size_t)e->sched.limits.max_rows, n_seqs = (size_t)e->sched.limits.max_seqs;
    a->out0 = mem_new(n_seqs, sizeof *a->out0);
    a->plain = mem_new(n_seqs, sizeof *a->plain);
    a->tokens = mem_new(n_rows, sizeof *a->tokens);
    a->positions = mem_new(n_rows, sizeof *a->positions);
    a->parents = mem_new(n_rows, sizeof *a->parents);
    a->out_rows = mem_new((size_t)e->sched.limits.max_out, sizeof *a->out_rows);
    a->batch_seqs = mem_new(n_seqs, sizeof *a->batch_seqs);
    a->hidden = mem_new((size_t)e->desc->d_model, sizeof *a->hidden);
    a->raw = mem_new((size_t)e->desc->n_vocab, sizeof *a->raw);
    a->forked = mem_new((size_t)e->desc->n_vocab, sizeof *a->forked);
    a->tables = mem_new(n_seqs * (size_t)e->layout.n_groups, sizeof(kv_table *));
    a->copy_pairs = mem_new((size_t)e->sched.copies.cap, sizeof *a->copy_pairs);
    bool whole = a->out0 && a->plain && a->tokens && a->positions && a->parents && a->out_rows && a->batch_seqs && a->copy_pairs &&
                 a->tables && a->hidden && a->raw && a->forked;
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

void step_close(engine *e) {
    step_arrays *a = &e->step;
    void *blocks[] = {a->out0,       a->plain,      a->tokens,         a->positions, a->parents, a->out_rows,
                      a->batch_seqs, a->copy_pairs, (void *)a->tables, a->hidden,    a->raw,     a->forked};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        mem_free(blocks[i]);
    }
    cascade_close(&a->cascade);
    for (int32_t g = 0; g < KV_MAX_GROUPS; g++) {
        mem_free(a->slots[g]);
    }
}
