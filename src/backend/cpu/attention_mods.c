#include "backend/cpu/attention_mods.h"

#include <math.h>
#include <string.h>

/* ---- running ---- */

static attn_lanes row_lanes(const attn_change *c, int32_t n) {
    return (attn_lanes){.regs = c->regs->rows,
                        .n = n,
                        .stride = ATTN_PROGRAM_QUERIES,
                        .faults = c->regs->row_faults,
                        .functions = &c->functions};
}

static attn_lanes key_lanes(const attn_change *c) {
    return (attn_lanes){.regs = c->regs->vectors,
                        .n = c->n,
                        .stride = ATTN_PROGRAM_KEYS,
                        .faults = c->regs->key_faults,
                        .functions = &c->functions};
}

void attn_change_begin(const attn_program *p, const attn_asked *q, int32_t base, int32_t first, int32_t end,
                       attn_change *c) {
    c->program = p;
    c->lane0 = first / ATTN_BLOCK * ATTN_BLOCK;
    c->n = (end + ATTN_BLOCK - 1) / ATTN_BLOCK * ATTN_BLOCK - c->lane0;
    const attn_lanes row = row_lanes(c, q->n), key = key_lanes(c);
    for (int32_t t = 0; t < q->n; t++) {
        attn_ints(&row, ATTN_ROW_Q_IDX)[t] = q->position[t];
        attn_ints(&row, ATTN_ROW_H)[t] = q->head[t];
        attn_ints(&row, ATTN_ROW_B)[t] = q->b;
        attn_ints(&row, ATTN_ROW_N_HEADS)[t] = q->n_heads;
        attn_ints(&row, ATTN_ROW_N_KV)[t] = q->n_kv[t];
        c->faults[t] = 0;
    }
    int64_t *kv_idx = attn_ints(&key, ATTN_KEY_KV_IDX);
    for (int32_t i = 0; i < c->n; i++) {
        kv_idx[i] = base + c->lane0 + i;
    }
    memset(c->regs->row_faults, 0, (size_t)q->n);
    memset(c->regs->key_faults, 0, (size_t)c->n);
    c->run(p, &p->row, &row);
    c->run(p, &p->key, &key);
}

/* Runs the tile code for one query. Afterwards regs->faults has the lanes' faults, except
 * those of row and key code. */
static void run_query(attn_change *c, int32_t query) {
    attn_lanes tile = key_lanes(c);
    tile.row_regs = c->regs->rows;
    tile.row_stride = ATTN_PROGRAM_QUERIES;
    tile.query = query;
    tile.faults = c->regs->faults;
    memset(c->regs->faults, 0, (size_t)c->n);
    c->run(c->program, &c->program->tile, &tile);
}

/* Adds the faults of a lane to a query's. */
static void attention_mods_note_faults(attn_change *c, int32_t query, int32_t lane) {
    c->faults[query] |=
        (uint8_t)(c->regs->row_faults[query] | c->regs->key_faults[lane] | c->regs->faults[lane]);
}

/* Whether any of n scores is NaN or infinite, for which a softmax is undefined. */
static bool any_without_meaning(const float *scores, int32_t n) {
    int wrong = 0;
    for (int32_t i = 0; i < n; i++) {
        wrong |= !(scores[i] < INFINITY);
    }
    return wrong != 0;
}

/* Notes faults at a query's visible positions. */
static void check_scores(const attn_tile *t, int32_t query) {
    const float *scores = t->scores + query * ATTN_CHUNK;
    attn_change *c = t->change;
    int32_t first = t->first[query], end = t->end[query];
    if (first < end && any_without_meaning(scores + first, end - first)) {
        for (int32_t p = first; p < end; p++) {
            c->faults[t->change_query + query] |=
                attn_sees(t, query, p) && !(scores[p] < INFINITY) ? ATTN_FAULT_SCORE : 0;
        }
    }
}

void attn_change_scores(const attn_tile *t, int32_t query) {
    attn_change *c = t->change;
    int32_t asked = t->change_query + query;
    if (t->first[query] >= t->end[query]) {
        return;
    }
    const attn_lanes key = key_lanes(c);
    float *scores = t->scores + query * ATTN_CHUNK + c->lane0;
    memcpy(attn_floats(&key, ATTN_KEY_SCORE), scores, sizeof *scores * (size_t)c->n);
    run_query(c, asked);
    memcpy(scores, attn_floats(&key, c->program->result), sizeof *scores * (size_t)c->n);
    for (int32_t p = t->first[query]; c->program->may_fault && p < t->end[query]; p++) {
        if (attn_sees(t, query, p)) {
            attention_mods_note_faults(c, asked, p - c->lane0);
        }
    }
    check_scores(t, query);
}

/* A bitmap of the lanes of a block that are nonzero. */
static uint16_t bits_of(const int64_t *lanes) {
    uint32_t bits = 0;
    for (uint32_t i = 0; i < ATTN_BLOCK; i++) {
        bits |= (uint32_t)(lanes[i] != 0) << i;
    }
    return (uint16_t)bits;
}

/* A bitmap of the positions first..end of the chunk that are in block b. */
static uint16_t bits_between(int32_t first, int32_t end, int32_t b) {
    int32_t low = first - b * ATTN_BLOCK, high = end - b * ATTN_BLOCK;
    uint32_t below = high >= ATTN_BLOCK ? 0xffffu : high <= 0 ? 0u : (1u << high) - 1u;
    return (uint16_t)(low <= 0 ? below : low >= ATTN_BLOCK ? 0u : below & ~((1u << low) - 1u));
}

/* Narrows a query's first..end to its visible positions. False: not contiguous. */
static bool cut_query(attn_change *c, int32_t query, attn_tile *t, uint16_t *seen) {
    int32_t first = t->first[query], end = t->end[query], n = 0, low = ATTN_CHUNK, high = 0;
    const attn_lanes key = key_lanes(c);
    run_query(c, query);
    for (int32_t p = first; c->program->may_fault && p < end; p++) {
        attention_mods_note_faults(c, query, p - c->lane0);
    }
    memset(seen, 0, sizeof *seen * ATTN_BLOCKS);
    for (int32_t b = first / ATTN_BLOCK; b * ATTN_BLOCK < end; b++) {
        uint32_t bits = bits_of(attn_ints(&key, c->program->result) + b * ATTN_BLOCK - c->lane0) &
                        bits_between(first, end, b);
        seen[b] = (uint16_t)bits;
        if (bits != 0) {
            n += __builtin_popcount(bits);
            low = low < ATTN_CHUNK ? low : b * ATTN_BLOCK + __builtin_ctz(bits);
            high = b * ATTN_BLOCK + 32 - __builtin_clz(bits);
        }
    }
    t->first[query] = low;
    t->end[query] = high;
    return n == 0 || n == high - low;
}

static void attention_mods_widen(attn_range *r, int64_t v) {
    r->low = v < r->low ? v : r->low;
    r->high = v > r->high ? v : r->high;
}

void attn_change_narrow(const attn_program *p, const attn_asked *q, int32_t base, attn_tile *t,
                        int32_t *first, int32_t *end) {
    attn_rectangle r = {.row = {[ATTN_ROW_Q_IDX] = {q->position[0], q->position[0]},
                                [ATTN_ROW_H] = {q->head[0], q->head[0]},
                                [ATTN_ROW_B] = {q->b, q->b},
                                [ATTN_ROW_N_HEADS] = {q->n_heads, q->n_heads},
                                [ATTN_ROW_N_KV] = {q->n_kv[0], q->n_kv[0]}}};
    for (int32_t i = 1; i < q->n; i++) {
        attention_mods_widen(&r.row[ATTN_ROW_Q_IDX], q->position[i]);
        attention_mods_widen(&r.row[ATTN_ROW_H], q->head[i]);
        attention_mods_widen(&r.row[ATTN_ROW_N_KV], q->n_kv[i]);
    }
    for (int32_t step = ATTN_CHUNK / 2; step >= ATTN_BLOCK; step /= 2) {
        r.kv_idx = (attn_range){base + *first, base + *first + step - 1};
        *first += *first + step < *end && attn_program_seen(p, &r) == ATTN_SEES_NONE ? step : 0;
        r.kv_idx = (attn_range){base + *end - step, base + *end - 1};
        *end -= *first + step < *end && attn_program_seen(p, &r) == ATTN_SEES_NONE ? step : 0;
    }
    for (int32_t i = 0; i < q->n; i++) {
        t->first[i] = t->first[i] < *first ? *first : t->first[i];
        t->end[i] = t->end[i] > *end ? *end : t->end[i];
    }
}

bool attn_change_mask(const attn_asked *q, attn_change *c, attn_tile *t, uint16_t *seen) {
    const attn_program *p = c->program;
    bool has_gaps = false;
    for (int32_t i = 0, same = -1; i < q->n; i++) { /* same: an earlier query with the same inputs */
        uint16_t *to = seen + i * ATTN_BLOCKS;
        if (t->first[i] >= t->end[i]) {
            memset(to, 0, sizeof *to * ATTN_BLOCKS);
            continue;
        }
        if (same >= 0 && !p->uses_h && q->position[same] == q->position[i]) {
            memcpy(to, seen + same * ATTN_BLOCKS, sizeof *to * ATTN_BLOCKS);
            t->first[i] = t->first[same];
            t->end[i] = t->end[same];
            c->faults[i] |= c->faults[same];
            continue;
        }
        has_gaps = !cut_query(c, i, t, to) || has_gaps;
        same = i;
    }
    return has_gaps;
}

/* ---- the map ---- */

/* Evaluates a mask for rows at `positions` and the keys in chunks low..high - 1. Rows of
 * several sequences may share chunks; a row sees only keys of its own sequence. */
static attn_seen look(const attn_program *p, const batch_seq *seq, attn_range positions, attn_range chunks,
                      attn_range heads) {
    int64_t end = chunks.high * ATTN_CHUNK < seq->n_tokens ? chunks.high * ATTN_CHUNK : seq->n_tokens;
    attn_range n_kv = {positions.low + 1, positions.high + 1};
    attention_mods_widen(&n_kv, seq->n_tokens);
    const attn_rectangle r = {.row = {[ATTN_ROW_Q_IDX] = positions,
                                      [ATTN_ROW_H] = {0, heads.high - 1},
                                      [ATTN_ROW_B] = {seq->b, seq->b},
                                      [ATTN_ROW_N_HEADS] = heads,
                                      [ATTN_ROW_N_KV] = n_kv},
                              .kv_idx = {chunks.low * ATTN_CHUNK, end - 1}};
    return attn_program_seen(p, &r);
}

/* Fills verdicts [chunks.high - chunks.low]; halves ranges while they are uncertain. */
static void fill_chunks(const attn_program *p, const batch_seq *seq, attn_range positions, attn_range chunks,
                        attn_range heads, uint8_t *verdicts) {
    attn_seen seen = look(p, seq, positions, chunks, heads);
    int64_t n = chunks.high - chunks.low, half = n / 2;
    if (seen != ATTN_SEES_SOME || n == 1) {
        memset(verdicts, (int)seen, (size_t)n);
        return;
    }
    fill_chunks(p, seq, positions, (attn_range){chunks.low, chunks.low + half}, heads, verdicts);
    fill_chunks(p, seq, positions, (attn_range){chunks.low + half, chunks.high}, heads, verdicts + half);
}

static attn_range positions_of(const batch *step, const attn_item *item) {
    attn_range r = {INT32_MAX, 0};
    for (int32_t i = item->row0; i < item->row0 + item->n_rows; i++) {
        int32_t row = step->work_rows != NULL ? step->work_rows[i] : i,
                position = step->positions[(int64_t)row * step->n_axes];
        r.low = position < r.low ? position : r.low;
        r.high = position > r.high ? position : r.high;
    }
    return r;
}

void attn_map_fill(const batch *step, attn_map *m) {
    int32_t used = 0, n_items = step->n_work < m->max_items ? step->n_work : m->max_items;
    m->n_items = 0;
    for (int32_t s = 0; s < step->n_seqs && m->n_items == 0; s++) {
        m->n_items = step->seqs[s].mods != NULL && step->seqs[s].mods->mask != NULL ? n_items : 0;
    }
    for (int32_t i = 0; i < m->n_items; i++) {
        const attn_item *item = &step->work[i];
        const batch_seq *seq = &step->seqs[item->seq];
        int32_t end = item->partial == ATTN_WHOLE ? (seq->n_tokens + ATTN_CHUNK - 1) / ATTN_CHUNK
                                                  : item->chunk0 + item->n_chunks;
        int32_t n = end - item->chunk0;
        m->items[i] = (attn_mapped){NULL, item->chunk0, end};
        if (seq->mods == NULL || seq->mods->mask == NULL || n > ATTN_MAP_BYTES - used) {
            continue;
        }
        uint8_t *verdicts = m->verdicts + used;
        fill_chunks(seq->mods->mask, seq, positions_of(step, item), (attn_range){item->chunk0, end}, m->heads,
                    verdicts);
        used += n;
        m->items[i].verdicts = verdicts;
        while (m->items[i].first < end && verdicts[m->items[i].first - item->chunk0] == ATTN_SEES_NONE) {
            m->items[i].first++;
        }
        while (m->items[i].end > m->items[i].first &&
               verdicts[m->items[i].end - 1 - item->chunk0] == ATTN_SEES_NONE) {
            m->items[i].end--;
        }
    }
}
