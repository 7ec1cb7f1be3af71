/* Attention over pages: cuts the work list into tiles of queries and chunks of positions, and joins the chunks. The arithmetic is in attention_kernels.inc.h and attention_plain.c.
 *
 * A query's result is the merge of its chunks in ascending order, whoever computes them: items that cover all chunks merge as they go, and may leave
 * what they have, its accumulator in the query's output, for another item to go on from; a partial item writes each chunk's state to buffer partial + (row - row0) * n_chunks + (chunk - chunk0), and the merges join those. How
 * queries share a tile, and on which pages the positions lie, never shows in the bits. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "backend/cpu/attention_pages.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/math.h"
#include "backend/cpu/pages.h"
#include "backend/cpu/pages_int8.h"
#include "base/size.h"

#define NEAR_BYTES (256 * 1024) /* of keys and values that several tiles of queries take out of a near cache, one after the other */

/* What one member of the team works in. */
typedef struct attn_scratch {
    attn_tile tile;
    attn_state states[ATTN_TILE];
    int32_t first[ATTN_TILE], end[ATTN_TILE]; /* positions each query sees */
    int32_t row[ATTN_TILE];                   /* of its sequence's rows, the one each query belongs to; read in a tree's chunks only */
    int64_t row_head[ATTN_TILE];              /* row of the batch * max_heads + head of each query */
    float *out[ATTN_TILE];                    /* its result */
    attn_copies copies;
    attn_tile branch;                         /* those of the tile's queries whose rows are one branch of a draft tree */
} attn_scratch;

/* States of rows for all their heads: what items carry on, and partial results. */
typedef struct cpu_attention_state {
    attn_scratch *scratch; /* [team_size] */
    int32_t acc_stride, max_heads;
    float *carried_max, *carried_sum; /* [max_rows, max_heads] */
    float *partial_max, *partial_sum; /* [max_partials, max_heads] */
    float *partial_acc;               /* [max_partials, max_heads, acc_stride] */
} cpu_attention_state;

typedef struct attn_job {
    const cpu_backend *b;
    cpu_attention_state *state;
    const attn_spec *spec;
    const attn_item *items; /* of the wave that runs */
    int32_t layer, n_heads, group_size; /* group_size: query heads that share a kv head */
    act q, out;
} attn_job;

/* Memory of n elements of size bytes, counted as the step's. */
static void *step_new(cpu_backend *b, size_t n, size_t size) {
    void *p = cpu_own(b, n, size);
    if (p != NULL) {
        b->step_bytes += (int64_t)(n * size);
    }
    return p;
}

static quire_err scratch_open(cpu_backend *b, int32_t acc_stride, attn_scratch *s) {
    float *scores = step_new(b, ATTN_TILE * ATTN_CHUNK, sizeof *scores);
    float *sums = step_new(b, 2 * ATTN_TILE, sizeof *sums);
    float *acc = step_new(b, (size_t)(2 * ATTN_TILE) * (size_t)acc_stride, sizeof *acc);
    uint8_t *copies = step_new(b, attn_copies_bytes(&b->layout), 1);
    if (scores == NULL || sums == NULL || acc == NULL || copies == NULL) {
        return QUIRE_NO_MEMORY;
    }
    attn_copies_init(&b->layout, copies, &s->copies);
    if (b->layout.type == DTYPE_I8) {
        s->tile.q_int8 = step_new(b, ATTN_TILE, (size_t)attn_int8_stride(b->layout.d_head));
        s->tile.weights = step_new(b, ATTN_TILE, ATTN_CHUNK);
        if (s->tile.q_int8 == NULL || s->tile.weights == NULL) {
            return QUIRE_NO_MEMORY;
        }
    }
    s->tile.scores = scores;
    s->tile.max = sums;
    s->tile.sum = sums + ATTN_TILE;
    s->tile.acc = acc;
    for (int32_t t = 0; t < ATTN_TILE; t++) {
        s->states[t].acc = acc + (int64_t)(ATTN_TILE + t) * acc_stride;
    }
    return QUIRE_OK;
}

quire_err cpu_attention_step_open(cpu_backend *b) {
    const kv_layout *l = &b->layout;
    if (l->d_head < 1 || l->n_kv_heads < 1) {
        return QUIRE_OK;
    }
    cpu_attention_state *s = step_new(b, 1, sizeof *s);
    if (s == NULL) {
        return QUIRE_NO_MEMORY;
    }
    int32_t widest = 0, n_members = team_size(b->team);
    for (int32_t i = 0; i < b->n_acts; i++) {
        widest = b->acts[i].width > widest ? b->acts[i].width : widest;
    }
    s->acc_stride = (int32_t)size_align((size_t)l->d_head, 16);
    s->max_heads = widest / l->d_head;
    size_t n_states = (size_t)b->limits.max_partials * (size_t)s->max_heads, n_carried = (size_t)b->limits.max_rows * (size_t)s->max_heads;
    s->scratch = step_new(b, (size_t)n_members, sizeof *s->scratch);
    s->carried_max = step_new(b, n_carried, sizeof *s->carried_max);
    s->carried_sum = step_new(b, n_carried, sizeof *s->carried_sum);
    s->partial_max = step_new(b, n_states, sizeof *s->partial_max);
    s->partial_sum = step_new(b, n_states, sizeof *s->partial_sum);
    s->partial_acc = step_new(b, n_states, (size_t)s->acc_stride * sizeof *s->partial_acc);
    if (s->scratch == NULL || s->carried_max == NULL || s->carried_sum == NULL || s->partial_max == NULL || s->partial_sum == NULL || s->partial_acc == NULL) {
        return QUIRE_NO_MEMORY;
    }
    for (int32_t i = 0; i < n_members; i++) {
        TRY(scratch_open(b, s->acc_stride, &s->scratch[i]));
    }
    b->attention_state = s;
    return QUIRE_OK;
}

static attn_state partial_state(const cpu_attention_state *s, int32_t partial, int32_t head) {
    int64_t i = (int64_t)partial * s->max_heads + head;
    return (attn_state){s->partial_max[i], s->partial_sum[i], s->partial_acc + i * s->acc_stride};
}

static attn_pages pages_of(const attn_job *job, const batch_seq *seq, int32_t kv_head) {
    return (attn_pages){job->b, seq->pages[job->b->layout.layer_group[job->layer]], job->layer, kv_head};
}

/* Sets the tile's queries: those from number `from` on of the item's rows x the kv head's query heads. */
static void set_queries(const attn_job *job, const attn_item *item, int32_t kv_head, int32_t from, int32_t n, attn_scratch *s) {
    const batch *step = job->b->batch;
    const attn_spec *spec = job->spec;
    const batch_seq *seq = &step->seqs[item->seq];
    s->tile.n_queries = n;
    for (int32_t t = 0; t < n; t++) {
        int32_t at = item->row0 + (from + t) / job->group_size, row = step->work_rows != NULL ? step->work_rows[at] : at;
        int32_t head = kv_head * job->group_size + (from + t) % job->group_size;
        int32_t position = step->positions[(int64_t)row * step->n_axes];
        s->row[t] = row - seq->row0;
        s->row_head[t] = (int64_t)row * job->state->max_heads + head;
        s->out[t] = cpu_act_row(job->b, job->out, row) + (int64_t)head * s->tile.d_head;
        s->tile.q[t] = cpu_act_row(job->b, job->q, row) + (int64_t)head * s->tile.d_head;
        if (s->tile.type == DTYPE_I8) {
            cpu_int8_query(&s->tile, t);
        }
        s->tile.slopes[t] = spec->alibi_slopes != NULL ? spec->alibi_slopes[head] : 0.0f;
        s->tile.position[t] = position;
        s->first[t] = spec->window > 0 && position >= spec->window ? position - spec->window + 1 : 0;
        s->end[t] = spec->causal ? position + 1 : seq->n_tokens;
        s->states[t].sum = 0.0f;
    }
}

/* ---- trees of drafts ---- */

/* Whether the chunk holds positions of a draft tree: those behind its first row, which the tree grows from. */
static bool has_tree(const batch_seq *seq, int32_t base) {
    return seq->parents != NULL && base + ATTN_CHUNK > seq->n_tokens - seq->n_rows + 1;
}

/* The chunk's positions from `first` on, as far as they are of the tree, are those of row `row` and its ancestors. What other branches put there is overwritten. */
static void find_branch(const attn_job *job, const batch_seq *seq, int32_t kv_head, int32_t base, int32_t first, int32_t row, attn_scratch *s) {
    const batch *step = job->b->batch;
    const attn_pages pages = pages_of(job, seq, kv_head);
    for (; row > 0; row = seq->parents[row]) {
        int32_t p = step->positions[(int64_t)(seq->row0 + row) * step->n_axes] - base;
        if (p < first) {
            break;
        }
        if (p < ATTN_CHUNK) {
            attn_pages_place(&pages, seq->n_tokens - seq->n_rows + row, p, &s->copies, &s->tile);
        }
    }
}

/* Queries from..from+n of a tile as a tile of their own, with their places in its results. */
static void part_of(const attn_tile *whole, int32_t from, int32_t n, attn_tile *part) {
    *part = *whole;
    part->n_queries = n;
    for (int32_t t = 0; t < n; t++) {
        part->q[t] = whole->q[from + t];
        part->first[t] = whole->first[from + t];
        part->end[t] = whole->end[from + t];
        part->slopes[t] = whole->slopes[from + t];
        part->position[t] = whole->position[from + t];
        part->q_scale[t] = whole->q_scale[from + t];
        part->q_sum[t] = whole->q_sum[from + t];
    }
    if (whole->type == DTYPE_I8) {
        part->q_int8 += (int64_t)from * attn_int8_stride(whole->d_head);
    }
    part->scores += (int64_t)from * ATTN_CHUNK;
    part->max += from;
    part->sum += from;
    part->acc += (int64_t)from * whole->acc_stride;
}

/* The tile over a chunk that holds positions of its tree: rows that follow each other see the same, so they are one part. */
static void attend_branches(const attn_job *job, const batch_seq *seq, int32_t kv_head, int32_t base, int32_t first, attn_scratch *s) {
    for (int32_t from = 0, end; from < s->tile.n_queries; from = end) {
        for (end = from + 1; end < s->tile.n_queries; end++) {
            int32_t row = s->row[end], before = s->row[end - 1];
            if (row != before && seq->parents[row] != before) {
                break;
            }
        }
        find_branch(job, seq, kv_head, base, first, s->row[end - 1], s);
        part_of(&s->tile, from, end - from, &s->branch);
        job->b->math->attention_tile(&s->branch);
    }
}

/* ---- chunks ---- */

static int32_t clamp(int32_t v, int32_t low, int32_t high) {
    return v < low ? low : v > high ? high : v;
}

/* One chunk of the tile's queries; those up to next_end come after it. false: none of them sees any of it. */
static bool compute_chunk(const attn_job *job, const batch_seq *seq, int32_t kv_head, int32_t chunk, int32_t next_end, attn_scratch *s) {
    attn_tile *tile = &s->tile;
    const attn_pages pages = pages_of(job, seq, kv_head);
    int32_t base = chunk * ATTN_CHUNK, first = ATTN_CHUNK, end = 0;
    for (int32_t t = 0; t < tile->n_queries; t++) {
        tile->first[t] = clamp(s->first[t] - base, 0, ATTN_CHUNK);
        tile->end[t] = clamp(s->end[t] - base, 0, ATTN_CHUNK);
        if (tile->first[t] < tile->end[t]) {
            first = tile->first[t] < first ? tile->first[t] : first;
            end = tile->end[t] > end ? tile->end[t] : end;
        }
    }
    if (first >= end) {
        return false;
    }
    attn_pages_find(&pages, base, first, end, &s->copies, tile);
    attn_pages_find_next(&pages, base + ATTN_CHUNK, clamp(next_end - base - ATTN_CHUNK, 0, ATTN_CHUNK), tile);
    for (int32_t t = 0; t < tile->n_queries; t++) {
        tile->position[t] -= base;
    }
    if (has_tree(seq, base)) {
        attend_branches(job, seq, kv_head, base, first, s);
    } else {
        job->b->math->attention_tile(tile);
    }
    for (int32_t t = 0; t < tile->n_queries; t++) {
        tile->position[t] += base;
    }
    return true;
}

/* The tile's queries go on from what earlier items left, if chunk0 is not the first. */
static void take_states(const attn_job *job, int32_t chunk0, attn_scratch *s) {
    for (int32_t t = 0; t < s->tile.n_queries && chunk0 > 0; t++) {
        s->states[t].max = job->state->carried_max[s->row_head[t]];
        s->states[t].sum = job->state->carried_sum[s->row_head[t]];
        memcpy(s->states[t].acc, s->out[t], sizeof *s->out[t] * (size_t)s->tile.d_head);
    }
}

static void leave_states(const attn_job *job, attn_scratch *s) {
    for (int32_t t = 0; t < s->tile.n_queries; t++) {
        job->state->carried_max[s->row_head[t]] = s->states[t].max;
        job->state->carried_sum[s->row_head[t]] = s->states[t].sum;
        memcpy(s->out[t], s->states[t].acc, sizeof *s->out[t] * (size_t)s->tile.d_head);
    }
}

/* Chunks from..end, as far as the tile's queries see them, merged into their states. */
static void merge_chunks(const attn_job *job, const attn_item *item, int32_t kv_head, int32_t from, int32_t end, attn_scratch *s) {
    attn_tile *tile = &s->tile;
    int32_t first = INT32_MAX, last = 0;
    for (int32_t t = 0; t < tile->n_queries; t++) {
        first = s->first[t] < first ? s->first[t] : first;
        last = s->end[t] > last ? s->end[t] : last;
    }
    from = first / ATTN_CHUNK > from ? first / ATTN_CHUNK : from;
    last = end <= last / ATTN_CHUNK ? end * ATTN_CHUNK : last;
    for (int32_t chunk = from; chunk * ATTN_CHUNK < last; chunk++) {
        bool any = compute_chunk(job, &job->b->batch->seqs[item->seq], kv_head, chunk, last, s);
        for (int32_t t = 0; any && t < tile->n_queries; t++) {
            attn_state now = {tile->max[t], tile->sum[t], tile->acc + (int64_t)t * tile->acc_stride};
            job->b->math->attention_merge(&s->states[t], &now, tile->acc_stride);
        }
    }
}

/* The tile's queries over all they see from the item's first chunk on, into the output rows. */
static void run_whole(const attn_job *job, const attn_item *item, int32_t kv_head, attn_scratch *s) {
    take_states(job, item->chunk0, s);
    merge_chunks(job, item, kv_head, item->chunk0, INT32_MAX, s);
    for (int32_t t = 0; t < s->tile.n_queries; t++) {
        const float *sinks = job->spec->sinks;
        int64_t head = s->row_head[t] % job->state->max_heads;
        job->b->math->attention_finish(&s->states[t], sinks != NULL ? sinks + head : NULL, s->tile.d_head, s->out[t]);
    }
}

/* The tile's queries over the item's chunks, each chunk's state into its partial buffer. */
static void run_partial(const attn_job *job, const attn_item *item, int32_t kv_head, int32_t from, attn_scratch *s) {
    cpu_attention_state *state = job->state;
    attn_tile *tile = &s->tile;
    int32_t end = (item->chunk0 + item->n_chunks) * ATTN_CHUNK, last = 0;
    for (int32_t t = 0; t < tile->n_queries; t++) {
        last = s->end[t] > last ? s->end[t] : last;
    }
    for (int32_t chunk = 0; chunk < item->n_chunks; chunk++) {
        bool any = compute_chunk(job, &job->b->batch->seqs[item->seq], kv_head, item->chunk0 + chunk, last < end ? last : end, s);
        for (int32_t t = 0; t < tile->n_queries; t++) {
            int32_t partial = item->partial + (from + t) / job->group_size * item->n_chunks + chunk;
            int64_t i = (int64_t)partial * state->max_heads + kv_head * job->group_size + (from + t) % job->group_size;
            assert(partial < job->b->limits.max_partials);
            state->partial_max[i] = tile->max[t];
            state->partial_sum[i] = any ? tile->sum[t] : 0.0f;
            memcpy(state->partial_acc + i * state->acc_stride, tile->acc + (int64_t)t * tile->acc_stride,
                   sizeof *tile->acc * (size_t)tile->acc_stride);
        }
    }
}

/* All the item's queries over its chunks, their states left to be carried on: a few chunks at a time for all tiles, so that memory is read once. */
static void run_carry(const attn_job *job, const attn_item *item, int32_t kv_head, attn_scratch *s) {
    int32_t n_queries = item->n_rows * job->group_size, end = item->chunk0 + item->n_chunks;
    size_t chunk_bytes = 2 * ATTN_CHUNK * (size_t)s->tile.d_head * cpu_kv_element_bytes(&job->b->layout);
    int32_t n_near = chunk_bytes < NEAR_BYTES ? (int32_t)(NEAR_BYTES / chunk_bytes) : 1;
    for (int32_t chunk = item->chunk0; chunk < end; chunk += n_near) {
        for (int32_t from = 0; from < n_queries; from += ATTN_TILE) {
            set_queries(job, item, kv_head, from, n_queries - from < ATTN_TILE ? n_queries - from : ATTN_TILE, s);
            take_states(job, chunk, s);
            merge_chunks(job, item, kv_head, chunk, chunk + n_near < end ? chunk + n_near : end, s);
            leave_states(job, s);
        }
    }
}

/* Part: one kv head of one item. */
static void run_item(void *context, int32_t part, int32_t member) {
    const attn_job *job = context;
    const cpu_backend *b = job->b;
    const attn_item *item = &job->items[part / b->layout.n_kv_heads];
    int32_t kv_head = part % b->layout.n_kv_heads;
    attn_scratch *s = &job->state->scratch[member];
    s->tile.d_head = b->layout.d_head;
    s->tile.acc_stride = job->state->acc_stride;
    s->tile.type = b->layout.type;
    s->tile.scale = job->spec->scale;
    s->tile.soft_cap = job->spec->soft_cap;
    s->tile.has_slopes = job->spec->alibi_slopes != NULL;
    if (item->partial == ATTN_CARRY) {
        run_carry(job, item, kv_head, s);
        return;
    }
    int32_t n_queries = item->n_rows * job->group_size;
    for (int32_t from = 0; from < n_queries; from += ATTN_TILE) {
        set_queries(job, item, kv_head, from, n_queries - from < ATTN_TILE ? n_queries - from : ATTN_TILE, s);
        if (item->partial < 0) {
            run_whole(job, item, kv_head, s);
        } else {
            run_partial(job, item, kv_head, from, s);
        }
    }
}

/* Part: all heads of one merged row. */
static void run_merge(void *context, int32_t part, int32_t member) {
    const attn_job *job = context;
    const attn_merge *merge = &job->b->batch->merges[part];
    const math_kernels *math = job->b->math;
    attn_state *state = &job->state->scratch[member].states[0];
    float *out = cpu_act_row(job->b, job->out, merge->row);
    for (int32_t head = 0; head < job->n_heads; head++) {
        state->sum = 0.0f;
        for (int32_t i = 0; i < merge->n_partials; i++) {
            attn_state chunk = partial_state(job->state, merge->partials[i], head);
            math->attention_merge(state, &chunk, job->state->acc_stride);
        }
        math->attention_finish(state, job->spec->sinks != NULL ? job->spec->sinks + head : NULL, job->b->layout.d_head,
                               out + (int64_t)head * job->b->layout.d_head);
    }
}

void cpu_attention(backend *b, int32_t layer, act q, const attn_spec *spec, act out) {
    cpu_backend *c = (cpu_backend *)b;
    int32_t n_heads = c->acts[q.id].width / c->layout.d_head;
    assert(spec->program == NULL && n_heads % c->layout.n_kv_heads == 0);
    attn_job job = {.b = c,
                    .state = c->attention_state,
                    .spec = spec,
                    .layer = layer,
                    .n_heads = n_heads,
                    .group_size = n_heads / c->layout.n_kv_heads,
                    .q = q,
                    .out = out};
    for (int32_t wave = 0, from = 0; wave <= c->batch->n_waves; wave++) {
        int32_t end = wave < c->batch->n_waves ? c->batch->wave_ends[wave] : c->batch->n_work;
        job.items = c->batch->work + from;
        team_run(c->team, run_item, &job, (end - from) * c->layout.n_kv_heads);
        from = end;
    }
    if (c->batch->n_merges > 0) {
        team_run(c->team, run_merge, &job, c->batch->n_merges);
    }
}
