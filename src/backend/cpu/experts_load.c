/* Loads mixtures of experts: checks the routing and the shapes of the loaded weights, and
 * allocates the scratch of their ops. */
#include "backend/cpu/experts.h"

#include "backend/cpu/linear_ops.h"
#include "base/size.h"
#include <assert.h>

#define LINE_FLOATS 16 /* floats per cache line; workers do not share one */
/* floats of a worker's sums, which fit its L2 cache; more if LINEAR_TILE_COLUMNS of all
 * rows need it */
#define SUMS_FLOATS 65536

/* Made on first use; NULL: out of memory. */
static cpu_experts_state *experts_load_state_of(cpu_backend *b) {
    if (b->experts_state == NULL) {
        b->experts_state = cpu_own(b, 1, sizeof *b->experts_state);
    }
    return b->experts_state;
}

static quire_err check_groups(const routing *r, quire_error *err) {
    if (r->n_groups < 0 || r->n_groups > r->n_experts ||
        (r->n_groups > 0 && r->n_experts % r->n_groups != 0)) {
        return err_set(err, QUIRE_INVALID, -1, "%d experts cannot be divided evenly into %d groups",
                       r->n_experts, r->n_groups);
    }
    if (r->n_groups <= 1) {
        return QUIRE_OK;
    }
    if (r->n_groups_used < 1 || r->n_groups_used > r->n_groups ||
        (int64_t)r->n_groups_used * (r->n_experts / r->n_groups) < r->n_used) {
        return err_set(err, QUIRE_INVALID, -1,
                       "%d of %d groups of experts cannot be used for %d of %d experts a row",
                       r->n_groups_used, r->n_groups, r->n_used, r->n_experts);
    }
    return QUIRE_OK;
}

static quire_err check_routing(const routing *r, quire_error *err) {
    if (r->n_experts < 1 || r->n_experts > ROUTE_MAX_EXPERTS) {
        return err_set(err, QUIRE_INVALID, -1, "a mixture of %d experts; it must have 1 to %d", r->n_experts,
                       ROUTE_MAX_EXPERTS);
    }
    if (r->n_used < 1 || r->n_used > r->n_experts || r->n_used > ROUTE_MAX_USED) {
        return err_set(err, QUIRE_INVALID, -1,
                       "%d of %d experts a row; it must be at least 1, and at most all of them and %d",
                       r->n_used, r->n_experts, ROUTE_MAX_USED);
    }
    if (r->score == ROUTE_SPARSE_MIXER && (r->n_used != 2 || r->n_groups > 1 || r->bias != NULL)) {
        return err_set(
            err, QUIRE_UNSUPPORTED, -1,
            "sparse-mixer routing takes 2 experts a row, without groups and bias; this model wants %d",
            r->n_used);
    }
    if (r->n_identity < 0 || r->n_identity >= r->n_experts) {
        return err_set(err, QUIRE_INVALID, -1,
                       "%d of %d experts have no weights; at least one must have some", r->n_identity,
                       r->n_experts);
    }
    return check_groups(r, err);
}

/* Copies the pointers and checks that all weights have the shape of expert 0's. */
static quire_err take_weights(cpu_backend *b, linear *const *from, const char *what, int32_t n_out,
                              int32_t n_in, const linear ***out, int32_t n, quire_error *err) {
    *out = cpu_own(b, (size_t)n, sizeof **out);
    if (*out == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "a mixture of %d experts: out of memory", n);
    }
    for (int32_t i = 0; i < n; i++) {
        const pack_layout *l = &from[i]->layout;
        if (l->n_out != n_out || l->n_in != n_in) {
            return err_set(err, QUIRE_BAD_FILE, -1,
                           "expert %d: its %s weights are %d x %d; those of expert 0 ask for %d x %d", i,
                           what, l->n_out, l->n_in, n_out, n_in);
        }
        (*out)[i] = from[i];
    }
    return QUIRE_OK;
}

size_t cpu_experts_hidden_bytes(const experts *w) {
    bool all_groups = !w->rereads[ROWS_F32] && !w->needs_whole;
    return linear_row_bytes(all_groups ? ROWS_GROUPS : ROWS_F32, w->d_hidden);
}

static void note_formats(experts *w) {
    for (int32_t i = 0; i < w->n_weighed; i++) {
        w->reads[w->up[i]->format] = true;
        if (w->gate != NULL) {
            w->reads[w->gate[i]->format] = true;
        }
        w->rereads[w->down[i]->format] = true;
        w->has_orders =
            w->has_orders || w->up[i]->order != NULL || (w->gate != NULL && w->gate[i]->order != NULL);
        w->needs_whole = w->needs_whole || experts_need_whole(w->down[i]);
    }
}

static int32_t larger(int32_t a, int32_t b) {
    return a > b ? a : b;
}

static void note_sizes(const experts *w, cpu_experts_state *s) {
    size_t hidden_bytes = cpu_experts_hidden_bytes(w);
    s->hidden_width = larger(s->hidden_width, w->d_hidden);
    s->n_experts = larger(s->n_experts, w->n_experts);
    s->n_used = larger(s->n_used, w->n_used);
    s->row_width =
        larger(s->row_width, linear_pad(larger(larger(w->d_in, w->d_out), w->d_hidden), LINE_FLOATS));
    for (int f = 0; f < N_ROW_FORMATS; f++) {
        s->width[f] = w->reads[f] ? larger(s->width[f], w->d_in) : s->width[f];
    }
    s->keeps_inputs = s->keeps_inputs || w->n_weighed < w->n_experts;
    s->result_width = w->result_norm != NULL ? larger(s->result_width, w->d_out) : s->result_width;
    s->up_width = w->has_orders ? larger(s->up_width, w->d_in) : s->up_width;
    s->hidden_bytes = hidden_bytes > s->hidden_bytes ? hidden_bytes : s->hidden_bytes;
}

quire_err cpu_experts_load(backend *base, const experts_weights *from, experts **out, quire_error *err) {
    assert(from != NULL);
    cpu_backend *b = (cpu_backend *)base;
    const routing *r = from->routing;
    TRY(check_routing(r, err));
    cpu_experts_state *s = experts_load_state_of(b);
    experts *w = cpu_own(b, 1, sizeof *w);
    if (s == NULL || w == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "a mixture of %d experts: out of memory", r->n_experts);
    }
    const pack_layout *up = &from->up[0]->layout;
    *w = (experts){.n_experts = r->n_experts,
                   .n_used = r->n_used,
                   .n_weighed = r->n_experts - r->n_identity,
                   .d_in = up->n_in,
                   .d_hidden = up->n_out,
                   .d_out = from->down[0]->layout.n_out,
                   .result_norm = from->result_norm};
    if (from->gate != NULL) {
        TRY(take_weights(b, from->gate, "gate", w->d_hidden, w->d_in, &w->gate, w->n_weighed, err));
    }
    TRY(take_weights(b, from->up, "up", w->d_hidden, w->d_in, &w->up, w->n_weighed, err));
    TRY(take_weights(b, from->down, "down", w->d_out, w->d_hidden, &w->down, w->n_weighed, err));
    if (r->n_identity > 0 && w->d_in != w->d_out) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "some experts return rows of %d elements and others of %d; the widths must be equal",
                       w->d_in, w->d_out);
    }
    if (r->n_identity > 0 && w->result_norm != NULL) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "a norm of the results of experts that give their row");
    }
    note_formats(w);
    note_sizes(w, s);
    s->scales_inputs = s->scales_inputs || r->scale_inputs;
    *out = w;
    return QUIRE_OK;
}

/* Allocates n * size bytes of scratch, counted in step_bytes. */
static void *scratch(cpu_backend *b, size_t n, size_t size) {
    void *p = cpu_own(b, n, size);
    b->step_bytes += p != NULL ? (int64_t)(n * size) : 0;
    return p;
}

quire_err cpu_experts_step_open(cpu_backend *b) {
    assert(b != NULL);
    cpu_experts_state *s = b->experts_state;
    if (s == NULL) {
        return QUIRE_OK;
    }
    size_t n_rows = (size_t)b->limits.max_rows, n, workers = (size_t)thread_pool_size(b->thread_pool);
    if (!size_mul(n_rows, (size_t)s->n_used, &n) || n > INT32_MAX) {
        return QUIRE_TOO_LARGE;
    }
    s->chosen = scratch(b, n, sizeof *s->chosen);
    s->weights = scratch(b, n, sizeof *s->weights);
    s->places = scratch(b, n, sizeof *s->places);
    s->sources = scratch(b, n, sizeof *s->sources);
    s->first = scratch(b, (size_t)s->n_experts + 1, sizeof *s->first);
    s->active = scratch(b, (size_t)s->n_experts, sizeof *s->active);
    const size_t as_floats = linear_row_bytes(ROWS_F32, s->hidden_width);
    const bool has_adapters = b->limits.max_adapters > 0;
    s->hidden = scratch(b, n, has_adapters && as_floats > s->hidden_bytes ? as_floats : s->hidden_bytes);
    size_t widest = n_rows * EXPERTS_SUM_BLOCKS * PACK_LANES, least = n_rows * LINEAR_TILE_COLUMNS;
    s->sums_width = widest < SUMS_FLOATS ? widest : least > SUMS_FLOATS ? least : SUMS_FLOATS;
    s->sums = scratch(b, workers, s->sums_width * sizeof *s->sums);
    s->rows = scratch(b, workers, (size_t)s->row_width * sizeof *s->rows);
    bool is_there = s->chosen != NULL && s->weights != NULL && s->places != NULL && s->sources != NULL &&
                    s->first != NULL && s->active != NULL && s->hidden != NULL && s->sums != NULL &&
                    s->rows != NULL;
    if (has_adapters) {
        s->place_rows = scratch(b, n, sizeof *s->place_rows);
        is_there = is_there && s->place_rows != NULL;
    }
    if (s->keeps_inputs) {
        s->inputs = scratch(b, n_rows, (size_t)s->row_width * sizeof *s->inputs);
        is_there = is_there && s->inputs != NULL;
    }
    if (s->result_width > 0) {
        s->results = scratch(b, n, (size_t)s->result_width * sizeof *s->results);
        is_there = is_there && s->results != NULL;
    }
    if (s->up_width > 0) {
        s->gathered_up = scratch(b, n, linear_row_bytes(ROWS_F32, s->up_width));
        is_there = is_there && s->gathered_up != NULL;
    }
    for (int f = 0; f < N_ROW_FORMATS; f++) {
        if (s->width[f] > 0) {
            s->gathered[f] = scratch(b, n, linear_row_bytes((row_format)f, s->width[f]));
            is_there = is_there && s->gathered[f] != NULL;
        }
    }
    return is_there ? QUIRE_OK : QUIRE_NO_MEMORY;
}
