#include "backend/cpu/attention_tile.h"

#include <assert.h>
#include <string.h>

#include "backend/cpu/pages.h"

attn_pages attn_pages_of(const attn_job *job, const batch_seq *seq, int32_t kv_head) {
    return (attn_pages){job->b, seq->pages[job->planes->group], job->cache, kv_head};
}

/* The batch's row of the item's row `at`. */
static int32_t attn_item_row(const attn_job *job, const attn_item *item, int32_t at) {
    const int32_t *rows = job->b->batch->work_rows;
    return rows != NULL ? rows[item->row0 + at] : item->row0 + at;
}

/* Sets first..end to the positions visible to a query at `position` by the spec. */
static void set_range(const attn_spec *spec, int32_t position, int32_t n_tokens, int32_t *first,
                      int32_t *end) {
    *first = spec->window > 0 && position >= spec->window ? position - spec->window + 1 : 0;
    *end = spec->causal && position < n_tokens ? position + 1 : n_tokens;
    if (!spec->causal && spec->window > 0 && spec->window < n_tokens - position) {
        *end = position + spec->window;
    }
    if (spec->chunk > 0) {
        int32_t base = position - position % spec->chunk, left = n_tokens - base;
        *first = *first < base ? base : *first;
        *end = !spec->causal && left > spec->chunk && *end > base + spec->chunk ? base + spec->chunk : *end;
    }
}

/* Sets the inputs of the queries' programs, and the map's results for the chunks. */
static void set_mods(const attn_job *job, const attn_item *item, const batch_seq *seq, attn_scratch *s) {
    s->mods = seq->mods;
    s->tile.seen = NULL;
    s->tile.change = NULL;
    s->tile.change_query = 0;
    if (s->mods == NULL) {
        return;
    }
    const attn_map *map = &job->state->map; /* valid, since the batch has programs */
    int64_t i = item - job->b->batch->work;
    s->asked.n = s->tile.n_queries;
    s->asked.b = seq->b;
    s->asked.n_heads = job->n_heads;
    for (int32_t t = 0; t < s->tile.n_queries; t++) {
        s->asked.position[t] = s->tile.position[t];
        s->asked.head[t] = (int32_t)(s->row_head[t] % job->max_heads);
        s->asked.n_kv[t] = job->spec->causal ? s->tile.position[t] + 1 : seq->n_tokens;
    }
    s->change.run = job->b->math->run_program;
    s->change.functions = (attn_functions){job->b->math->exp, job->b->math->tanh};
    s->map_chunk0 = item->chunk0;
    s->map = i < map->n_items ? map->items[i] : (attn_mapped){NULL, 0, INT32_MAX};
}

/* Quantises query t of the tile. */
static void set_int8_query(const cpu_backend *b, attn_tile *tile, int32_t t) {
    int32_t stride = attn_int8_stride(tile->d_head);
    int8_t *out = tile->q_int8 + (int64_t)t * stride;
    memset(out + tile->d_head, 0, (size_t)(stride - tile->d_head));
    tile->q_scale[t] = b->math->narrow_int8(tile->q[t], tile->d_head, out, &tile->q_sum[t]);
}

void attn_tile_begin(const attn_job *job, attn_tile *tile) {
    const kv_planes *planes = job->planes;
    tile->d_head = planes->key.width;
    tile->d_value = job->d_value;
    tile->acc_stride = (job->d_value + ATTN_BLOCK - 1) / ATTN_BLOCK * ATTN_BLOCK;
    attn_pages_types(planes, job->b->math, 0, tile);
    tile->scale = job->spec->scale;
    tile->soft_cap = job->spec->soft_cap;
    tile->has_slopes = job->spec->alibi_slopes != NULL;
}

void attn_set_query(const attn_job *job, int32_t row, int32_t head, int32_t t, attn_scratch *s) {
    assert(job != NULL && s != NULL);
    s->row_head[t] = (int64_t)row * job->max_heads + head;
    s->out[t] = cpu_act_row(job->b, job->out, row) + (int64_t)head * s->tile.d_value;
    s->tile.q[t] = cpu_act_row(job->b, job->q, row) + (int64_t)head * s->tile.d_head;
    if (cpu_kv_is_bytes(s->tile.k_type)) {
        set_int8_query(job->b, &s->tile, t);
    }
    s->tile.slopes[t] = job->spec->alibi_slopes != NULL ? job->spec->alibi_slopes[head] : 0.0f;
    s->states[t] = (attn_state){.acc = s->states[0].acc + (int64_t)t * s->tile.acc_stride};
}

void attn_set_queries(const attn_job *job, const attn_item *item, int32_t kv_head, int32_t from, int32_t n,
                      attn_scratch *s) {
    assert(job != NULL && item != NULL && s != NULL);
    const batch *step = job->b->batch;
    const batch_seq *seq = &step->seqs[item->seq];
    const int32_t group = job->group_size, head0 = kv_head * group;
    int32_t at = from / group, i = from % group;
    s->kv_head = kv_head;
    s->tile.n_queries = n;
    s->has_states = false;
    for (int32_t t = 0; t < n; at++, i = 0) {
        int32_t row = attn_item_row(job, item, at), first, end,
                position = step->positions[(int64_t)row * step->n_axes];
        set_range(job->spec, position, seq->n_tokens, &first, &end);
        for (; t < n && i < group; i++, t++) {
            s->row[t] = row - seq->row0;
            attn_set_query(job, row, head0 + i, t, s);
            s->tile.position[t] = position;
            s->first[t] = first;
            s->end[t] = end;
        }
    }
    set_mods(job, item, seq, s);
}

#define LINE_FLOATS 16 /* floats in a cache line */

void attn_fetch_queries(const attn_job *job, const attn_item *item, int32_t kv_head, int32_t from,
                        int32_t n) {
    const int32_t group = job->group_size, n_heads = group * job->n_together,
                  n_q = n_heads * job->planes->key.width, n_out = n_heads * job->d_value;
    for (int32_t at = from / group; at * group < from + n; at++) {
        const int32_t row = attn_item_row(job, item, at);
        const float *q = cpu_act_row(job->b, job->q, row) + (int64_t)kv_head * group * job->planes->key.width,
                    *out = cpu_act_row(job->b, job->out, row) + (int64_t)kv_head * group * job->d_value;
        for (int32_t i = 0; i < n_q; i += LINE_FLOATS) {
            __builtin_prefetch(q + i, 0, 2);
        }
        for (int32_t i = 0; i < n_out; i += LINE_FLOATS) {
            __builtin_prefetch(out + i, 1, 2);
        }
    }
}

/* ---- draft trees ---- */

/* Whether the chunk has positions of a draft tree: those after its root, row 0. */
static bool has_tree(const batch_seq *seq, int32_t base) {
    return seq->parents != NULL && base + ATTN_CHUNK > seq->n_tokens - seq->n_rows + 1;
}

/* Copies the keys and values of row `row` and its ancestors in the tree to the chunk's
 * positions first..end, over those of other branches. The tile's blocks cover these
 * positions only. */
static void find_branch(const attn_job *job, const batch_seq *seq, int32_t base, int32_t first, int32_t end,
                        int32_t row, attn_scratch *s) {
    const batch *step = job->b->batch;
    const attn_pages pages = attn_pages_of(job, seq, s->kv_head);
    for (; row > 0; row = seq->parents[row]) {
        int32_t p = step->positions[(int64_t)(seq->row0 + row) * step->n_axes] - base;
        if (p < first) {
            break;
        }
        if (p < end) {
            attn_pages_place(&pages, seq->n_tokens - seq->n_rows + row, p, &s->copies, &s->tile);
        }
    }
    attn_pages_placed(&pages, first, end, &s->copies, &s->tile);
}

/* Makes queries from..from+n of a tile a tile of their own that writes to the same
 * results. */
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
    if (cpu_kv_is_bytes(whole->k_type)) {
        part->q_int8 += (int64_t)from * attn_int8_stride(whole->d_head);
    }
    part->seen = whole->seen != NULL ? whole->seen + (int64_t)from * ATTN_BLOCKS : NULL;
    part->change_query = from;
    part->scores += (int64_t)from * ATTN_CHUNK;
    part->max += from;
    part->sum += from;
    part->acc += (int64_t)from * whole->acc_stride;
}

/* Computes the tile over a chunk with positions of a draft tree. Consecutive queries
 * whose rows form a chain, each the child of the one before, share a branch and are
 * computed together. */
static void attend_branches(const attn_job *job, const batch_seq *seq, int32_t base, int32_t first,
                            int32_t end, attn_scratch *s) {
    for (int32_t from = 0, to; from < s->tile.n_queries; from = to) {
        for (to = from + 1; to < s->tile.n_queries; to++) {
            int32_t row = s->row[to], before = s->row[to - 1];
            if (row != before && seq->parents[row] != before) {
                break;
            }
        }
        find_branch(job, seq, base, first, end, s->row[to - 1], s);
        part_of(&s->tile, from, to - from, &s->branch);
        job->b->math->attention_tile(&s->branch);
    }
}

/* ---- chunks ---- */

static int32_t clamp(int32_t v, int32_t low, int32_t high) {
    return v < low ? low : v > high ? high : v;
}

/* Sets the tile's first..end to the positions in the chunk at `base` that each query sees
 * by sequence and layer. */
static void cut_to_chunk(attn_scratch *s, int32_t base) {
    for (int32_t t = 0; t < s->tile.n_queries; t++) {
        s->tile.first[t] = clamp(s->first[t] - base, 0, ATTN_CHUNK);
        s->tile.end[t] = clamp(s->end[t] - base, 0, ATTN_CHUNK);
    }
}

/* Sets first..end to the positions that some query of the tile sees. False: none. */
static bool seen_by_some(const attn_tile *tile, int32_t *first, int32_t *end) {
    *first = ATTN_CHUNK;
    *end = 0;
    for (int32_t t = 0; t < tile->n_queries; t++) {
        if (tile->first[t] < tile->end[t]) {
            *first = tile->first[t] < *first ? tile->first[t] : *first;
            *end = tile->end[t] > *end ? tile->end[t] : *end;
        }
    }
    return *first < *end;
}

/* Adds the programs' faults in this chunk to those of the queries' rows. */
static void report_faults(const attn_job *job, const attn_scratch *s) {
    for (int32_t t = 0; t < s->tile.n_queries && job->b->batch->faults != NULL; t++) {
        if (s->change.faults[t] != 0) {
            atomic_fetch_or(&job->b->batch->faults[s->row_head[t] / job->max_heads], s->change.faults[t]);
        }
    }
}

/* Applies the sequence's mask to the tile, whose first..end are in the chunk. */
static void apply_mask(const attn_job *job, int32_t chunk, int32_t first, int32_t end, attn_scratch *s) {
    uint8_t verdict = s->map.verdicts != NULL ? s->map.verdicts[chunk - s->map_chunk0] : ATTN_SEES_SOME;
    s->tile.seen = NULL;
    if (s->mods->mask == NULL || verdict == ATTN_SEES_ALL) {
        return;
    }
    if (s->asked.position[0] != s->asked.position[s->asked.n - 1]) { /* not worth it for a single row */
        attn_change_narrow(s->mods->mask, &s->asked, chunk * ATTN_CHUNK, &s->tile, &first, &end);
    }
    attn_change_begin(s->mods->mask, &s->asked, chunk * ATTN_CHUNK, first, end, &s->change);
    if (attn_change_mask(&s->asked, &s->change, &s->tile, s->seen)) {
        s->tile.seen = s->seen;
    }
    if (s->mods->mask->may_fault) {
        report_faults(job, s);
    }
}

/* Copies the mask's result from another kv head's tile. */
static void copy_mask(const attn_scratch *like, attn_scratch *s) {
    const size_t n = (size_t)s->tile.n_queries;
    memcpy(s->tile.first, like->tile.first, n * sizeof *s->tile.first);
    memcpy(s->tile.end, like->tile.end, n * sizeof *s->tile.end);
    s->tile.seen = like->tile.seen;
}

/* Prepares the sequence's score program for the tile. */
static void ready_change(int32_t base, int32_t first, int32_t end, attn_scratch *s) {
    if (s->mods != NULL && s->mods->score != NULL) {
        attn_change_begin(s->mods->score, &s->asked, base, first, end, &s->change);
        s->tile.change = &s->change;
    }
}

bool attn_compute_chunk(const attn_job *job, const batch_seq *seq, int32_t chunk, attn_next next,
                        const attn_scratch *like, attn_scratch *s) {
    attn_tile *tile = &s->tile;
    const attn_pages pages = attn_pages_of(job, seq, s->kv_head),
                     next_pages = attn_pages_of(job, seq, next.kv_head);
    int32_t next_base = next.chunk * ATTN_CHUNK, base = chunk * ATTN_CHUNK, first, end;
    if (s->mods != NULL && s->map.verdicts != NULL &&
        s->map.verdicts[chunk - s->map_chunk0] == ATTN_SEES_NONE) {
        return false;
    }
    cut_to_chunk(s, base);
    if (!seen_by_some(tile, &first, &end)) {
        return false;
    }
    if (s->mods != NULL) {
        if (like != NULL && s->mods->mask != NULL && !s->mods->mask->uses_h) {
            copy_mask(like, s);
        } else {
            apply_mask(job, chunk, first, end, s);
        }
        if (!seen_by_some(tile, &first, &end)) {
            return false;
        }
    }
    attn_pages_find(&pages, base, first, end, has_tree(seq, base) ? 0 : tile->n_queries, &s->copies, tile);
    int32_t n_next = clamp(next.end - next_base, 0, ATTN_CHUNK);
    if (next.n_heads > 0) {
        attn_pages_fetch_part(&next_pages, next_base, n_next, next.n_heads, next.part, tile);
    } else {
        attn_pages_fetch_next(&next_pages, next_base, n_next, tile);
    }
    for (int32_t t = 0; t < tile->n_queries; t++) {
        tile->position[t] -= base;
    }
    ready_change(base, first, end, s);
    if (has_tree(seq, base)) {
        attend_branches(job, seq, base, first, end, s);
    } else {
        job->b->math->attention_tile(tile);
    }
    for (int32_t t = 0; t < tile->n_queries; t++) {
        tile->position[t] += base;
    }
    if (tile->change != NULL) {
        report_faults(job, s);
    }
    return true;
}
