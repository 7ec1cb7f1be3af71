#include "lab/bench/op_profile.h"

#include <math.h>
#include <stddef.h>

const char *const stage_names[N_STAGES] = {
    "plan, pages, batch", "embed",      "q k v: rows",   "q k v",        "rope, store", "attention",
    "output: rows",       "output",     "gate up: rows", "gate up, act", "down: rows",  "down",
    "elements",           "head: rows", "head",          "sample",       "commit",      "between",
};

static stage_kind stage_kind_of(stage s) {
    switch (s) {
    case STAGE_QKV:
    case STAGE_OUTPUT:
    case STAGE_GATE_UP:
    case STAGE_DOWN:
    case STAGE_HEAD:
        return STAGE_IS_PRODUCT;
    case STAGE_ATTENTION:
        return STAGE_IS_ATTENTION;
    case STAGE_SAMPLE:
        return STAGE_IS_SAMPLING;
    default:
        return STAGE_IS_OTHER;
    }
}

static bool is_elements(op_kind kind) {
    return kind == OP_NORM_ADD || kind == OP_NORM_ROWS || kind == OP_MULTIPLY || kind == OP_SCALE_ROWS ||
           kind == OP_ROUTE || kind == OP_PLACE || kind == OP_HYPER_WEIGHTS || kind == OP_STREAMS_READ ||
           kind == OP_STREAMS_WRITE || kind == OP_STREAM_GATES;
}

/* Whether these are the products for queries, keys and values, which come first in a
 * layer. */
static bool is_qkv(const op_time *ops, int32_t n, int32_t i) {
    int32_t next = i + 1;
    while (next < n && is_elements(ops[next].kind)) {
        next++;
    }
    return ops[i].kind == OP_NORM_LINEARS && next < n && ops[next].kind == OP_ROPE_STORE;
}

/* The stage of an op's result; the op's rows are the stage before. *product: stage of the
 * next product in its layer; updated. */
static stage stage_of(const op_time *ops, int32_t n, int32_t i, stage *product) {
    stage s = is_qkv(ops, n, i) ? STAGE_QKV : *product;
    if (is_elements(ops[i].kind)) {
        return STAGE_ELEMENTS;
    }
    switch (ops[i].kind) {
    case OP_EMBED:
    case OP_NGRAMS:
        return STAGE_EMBED;
    case OP_NORM_LINEARS:
    case OP_LINEAR_ADD:
        *product = s == STAGE_OUTPUT ? STAGE_GATE_UP : s;
        return s;
    case OP_ROPE_STORE:
        return STAGE_ROPE_STORE;
    case OP_ATTENTION:
    case OP_LINEAR_ATTENTION:
    case OP_SCAN:
    case OP_LRU:
        *product = STAGE_OUTPUT;
        return STAGE_ATTENTION;
    case OP_CONV:
    case OP_POOL:
    case OP_HEAD_PRODUCTS:
    case OP_CHOOSE:
        return STAGE_ATTENTION;
    case OP_FEED_FORWARD:
        *product = STAGE_DOWN;
        return STAGE_GATE_UP;
    case OP_EXPERTS:
        return STAGE_GATE_UP;
    default:
        return STAGE_HEAD;
    }
}

static void add_op(const op_time *op, stage s, stage_cost *to) {
    if (stage_kind_of(s) == STAGE_IS_PRODUCT) {
        to[s - 1].us += (double)op->rows_ns * 1e-3;
    }
    to[s].us += (double)(op->ns - op->rows_ns) * 1e-3;
    to[s].bytes += (double)op->bytes;
    to[s].operations += (double)op->operations;
}

/* End of the pass that begins at ops[first]: after its OP_HEAD or, if it computes no
 * logits, where the next pass begins. 0: the trace ends before. */
static int32_t pass_end(const op_time *ops, int32_t n, int32_t first) {
    for (int32_t i = first + 1; i < n; i++) {
        if (ops[i].kind == OP_HEAD || ops[i].kind == OP_EMBED) {
            return ops[i].kind == OP_HEAD ? i + 1 : i;
        }
    }
    return 0;
}

int32_t op_profile_most_rows(const op_time *ops, int32_t n) {
    int32_t most = 0;
    for (int32_t i = 0; i < n; i++) {
        if (ops[i].kind == OP_EMBED && ops[i].n_rows > most && pass_end(ops, n, i) > 0) {
            most = ops[i].n_rows;
        }
    }
    return most;
}

static void add_pass(const op_time *ops, int32_t n, step_costs *out) {
    int32_t layer = -1;
    stage product = STAGE_QKV;
    for (int32_t i = 0; i < n; i++) {
        stage s = stage_of(ops, n, i, &product);
        layer += is_qkv(ops, n, i);
        add_op(&ops[i], s, out->stages);
        if (out->layers != NULL && layer >= 0 && layer < out->n_layers && ops[i].kind != OP_HEAD) {
            add_op(&ops[i], s, out->layers + (size_t)layer * N_STAGES);
        }
    }
    out->n_steps++;
}

static double pass_us(const op_time *ops, int32_t n) {
    double ns = 0;
    for (int32_t i = 0; i < n; i++) {
        ns += (double)ops[i].ns;
    }
    return ns * 1e-3;
}

/* End of the next whole pass of n_rows rows, and *first, its beginning; 0: none. */
static int32_t next_pass(const op_time *ops, int32_t n, int32_t n_rows, int32_t *first) {
    int32_t end = 0;
    for (; *first < n && end == 0; *first += end == 0) {
        end = ops[*first].kind == OP_EMBED && ops[*first].n_rows == n_rows ? pass_end(ops, n, *first) : 0;
    }
    return end;
}

/* The median time of the passes. */
static double median_us(const op_time *ops, int32_t n, int32_t n_rows) {
    double us = INFINITY;
    for (int32_t i = 0, end; (end = next_pass(ops, n, n_rows, &i)) > 0; i = end) {
        double mine = pass_us(ops + i, end - i);
        int32_t n_under = 0, n_passes = 0;
        for (int32_t j = 0, last; (last = next_pass(ops, n, n_rows, &j)) > 0; j = last) {
            n_under += pass_us(ops + j, last - j) <= mine;
            n_passes++;
        }
        us = 2 * n_under >= n_passes ? fmin(us, mine) : us;
    }
    return us;
}

void op_profile_add(const op_time *ops, int32_t n, step_costs *out) {
    double most_us = median_us(ops, n, out->n_rows);
    for (int32_t i = 0, end; (end = next_pass(ops, n, out->n_rows, &i)) > 0; i = end) {
        if (pass_us(ops + i, end - i) > most_us) {
            continue;
        }
        add_pass(ops + i, end - i, out);
        if (end < n && ops[end].kind == OP_EMBED && ops[end].n_rows == out->n_rows) {
            out->n_gaps++;
            out->pass_us += pass_us(ops + i, end - i);
            out->cycle_us += (double)(ops[end].start_ns - ops[i].start_ns) * 1e-3;
        }
    }
}

void op_profile_finish(step_costs *c, double plan_us, double sample_us, double commit_us) {
    double n = c->n_steps > 0 ? c->n_steps : 1, gaps = c->n_gaps > 0 ? c->n_gaps : 1;
    for (int32_t i = 0; i < N_STAGES * (c->layers != NULL ? c->n_layers + 1 : 1); i++) {
        stage_cost *s = i < N_STAGES ? &c->stages[i] : &c->layers[i - N_STAGES];
        *s = (stage_cost){s->us / n, s->bytes / n, s->operations / n};
    }
    double engine_us = plan_us + sample_us + commit_us, gap_us = (c->cycle_us - c->pass_us) / gaps;
    double part = c->n_gaps > 0 && engine_us > gap_us ? gap_us / engine_us : 1;
    c->stages[STAGE_PLAN].us = plan_us * part;
    c->stages[STAGE_SAMPLE].us = sample_us * part;
    c->stages[STAGE_COMMIT].us = commit_us * part;
    c->stages[STAGE_BETWEEN].us = c->n_gaps > 0 && part == 1 ? gap_us - engine_us : 0;
    c->us = 0;
    for (int32_t i = 0; i < N_STAGES; i++) {
        c->us += c->stages[i].us;
    }
}

double op_profile_share(const step_costs *c, stage_kind kind) {
    double us = 0;
    for (stage s = 0; s < N_STAGES; s++) {
        us += stage_kind_of(s) == kind ? c->stages[s].us : 0;
    }
    return c->us > 0 ? us / c->us : 0;
}
