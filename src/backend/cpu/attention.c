/* Attention over pages: cuts the work list into tiles of queries and chunks of positions,
 * and merges the chunks. The arithmetic is in attention_kernels.inc.h and
 * attention_plain.c.
 *
 * A query's result is the merge of its chunks in ascending order, whichever worker
 * computes them. Items that cover all chunks merge them as they go; they may leave their
 * states for another item to continue from, with the accumulator in the query's output. A
 * partial item writes each chunk's state to buffer partial + (row - row0) * n_chunks +
 * (chunk - chunk0), and the batch's merges combine those. How queries share a tile, and
 * which pages hold the positions, never changes the bits. */
#include <assert.h>
#include <string.h>

#include "backend/cpu/attention_chosen.h"
#include "backend/cpu/attention_tile.h"
#include "backend/cpu/pages.h"
#include "base/mem.h"
#include "base/size.h"

/* bytes of keys and values that consecutive query tiles can read from a near cache */
#define NEAR_BYTES       (256 * 1024)
#define MANY_CHUNKS      16   /* from here on it matters little how the first chunk is read */
#define SMALL_PIECE      4096 /* bytes of a head's keys in a page that count as small */
#define SMALL_INT8_PIECE 1024 /* the same for int8, where computing takes longer than reading */
#define ENOUGH_TASKS     8    /* tasks per worker at which it matters little who runs the last one */
#define LEAST_QUERIES    4 /* queries per task at which their products take longer than reading the latents */

static int32_t acc_stride_of(int32_t d_value) {
    return (int32_t)size_align((size_t)d_value, 16);
}

/* The most elements of a key, or value; a latent may be used as a value as a whole. */
static int32_t widest_of(const kv_layout *l, kv_plane_kind kind) {
    int32_t widest = 0;
    for (int32_t i = 0; i < l->n_caches; i++) {
        const kv_planes *p = &l->caches[i];
        const int32_t width = kind == KV_PLANE_V && p->kind != LAYER_LATENT ? p->value.width : p->key.width;
        widest = width > widest ? width : widest;
    }
    return widest;
}

/* Whether a cache's keys, or values, are read as int8. */
static bool reads_bytes(const kv_layout *l, kv_plane_kind kind) {
    for (int32_t i = 0; i < l->n_caches; i++) {
        const kv_planes *p = &l->caches[i];
        const kv_plane *plane = kind == KV_PLANE_V && p->kind != LAYER_LATENT ? &p->value : &p->key;
        if (p->n_heads > 0 && cpu_kv_is_bytes(plane->type)) {
            return true;
        }
    }
    return false;
}

/* Allocates n elements of `size` bytes, counted in step_bytes. */
static void *step_new(cpu_backend *b, size_t n, size_t size) {
    void *p = cpu_own(b, n, size);
    if (p != NULL) {
        b->step_bytes += (int64_t)(n * size);
    }
    return p;
}

/* Allocates a worker's scratch. KV heads share what is used only within one chunk. */
static quire_err attention_scratch_open(cpu_backend *b, int32_t acc_stride, attn_scratch *s) {
    const int32_t q_stride = attn_int8_stride(widest_of(&b->layout, KV_PLANE_K));
    float *scores = step_new(b, ATTN_TILE * ATTN_CHUNK, sizeof *scores);
    float *sums = step_new(b, 2 * ATTN_TILE, sizeof *sums);
    float *acc = step_new(b, (size_t)ATTN_TILE * (size_t)acc_stride, sizeof *acc);
    float *states = step_new(b, (size_t)(MOST_TOGETHER * ATTN_TILE) * (size_t)acc_stride, sizeof *states);
    uint8_t *copies = step_new(b, attn_copies_bytes(&b->layout), 1), *weights = NULL;
    attn_registers *regs = step_new(b, 1, sizeof *regs);
    int8_t *q_int8 = NULL;
    const bool k_int8 = reads_bytes(&b->layout, KV_PLANE_K), v_int8 = reads_bytes(&b->layout, KV_PLANE_V);
    if (v_int8) {
        weights = step_new(b, ATTN_TILE, ATTN_CHUNK);
    }
    if (k_int8) {
        q_int8 = step_new(b, MOST_TOGETHER * ATTN_TILE, (size_t)q_stride);
    }
    if (regs != NULL) {
        regs->rows = step_new(b, ATTN_PROGRAM_ROW_REGS * ATTN_PROGRAM_QUERIES, sizeof *regs->rows);
        regs->vectors = step_new(b, ATTN_PROGRAM_VECTORS * ATTN_PROGRAM_KEYS, sizeof *regs->vectors);
    }
    if (scores == NULL || sums == NULL || acc == NULL || states == NULL || copies == NULL || regs == NULL ||
        regs->rows == NULL || regs->vectors == NULL || (v_int8 && weights == NULL) ||
        (k_int8 && q_int8 == NULL)) {
        return QUIRE_NO_MEMORY;
    }
    for (int32_t h = 0; h < MOST_TOGETHER; h++) {
        attn_tile *tile = &s[h].tile;
        attn_copies_init(&b->layout, copies, &s[h].copies);
        s[h].change.regs = regs;
        tile->scores = scores;
        tile->max = sums;
        tile->sum = sums + ATTN_TILE;
        s[h].acc = tile->acc = acc;
        tile->weights = weights;
        tile->q_int8 = q_int8 != NULL ? q_int8 + (int64_t)h * ATTN_TILE * q_stride : NULL;
        s[h].states[0].acc = states + (int64_t)h * ATTN_TILE * acc_stride;
    }
    return QUIRE_OK;
}

/* Allocates the lists of selected keys, if the model calls choose(). */
static quire_err choice_open(cpu_backend *b, int32_t n_workers, attn_choice *c) {
    const size_t n_rows = (size_t)b->limits.max_rows, n_lists = (size_t)b->most_choices,
                 room = (size_t)b->most_chosen, n_candidates = (size_t)n_workers * (2 * room + ATTN_CHUNK);
    if (room == 0) {
        return QUIRE_OK;
    }
    c->most_lists = b->most_choices;
    c->most = b->most_chosen;
    c->n = step_new(b, n_rows, n_lists * sizeof *c->n);
    c->n_seen = step_new(b, n_rows, sizeof *c->n_seen);
    c->places = step_new(b, n_rows, n_lists * room * sizeof *c->places);
    c->candidates = step_new(b, n_candidates, sizeof *c->candidates);
    c->scores = step_new(b, n_candidates, sizeof *c->scores);
    c->sorted = step_new(b, n_candidates, sizeof *c->sorted);
    const bool is_there = c->n != NULL && c->n_seen != NULL && c->places != NULL && c->candidates != NULL &&
                          c->scores != NULL && c->sorted != NULL;
    return is_there ? QUIRE_OK : QUIRE_NO_MEMORY;
}

quire_err cpu_attention_step_open(cpu_backend *b) {
    assert(b != NULL);
    int32_t narrowest = 0;
    for (int32_t i = 0; i < b->layout.n_caches; i++) {
        const kv_planes *p = &b->layout.caches[i];
        narrowest = p->n_heads > 0 && (narrowest == 0 || p->key.width < narrowest) ? p->key.width : narrowest;
    }
    if (narrowest == 0) {
        return QUIRE_OK;
    }
    cpu_attention_state *s = step_new(b, 1, sizeof *s);
    TRY(mem_check(s));
    int32_t widest_row = 0, n_workers = thread_pool_size(b->thread_pool);
    for (int32_t i = 0; i < b->n_acts; i++) {
        widest_row = b->buffers[i].width > widest_row ? b->buffers[i].width : widest_row;
    }
    s->acc_stride = acc_stride_of(widest_of(&b->layout, KV_PLANE_V));
    s->max_heads = widest_row / narrowest;
    size_t n_states = (size_t)b->limits.max_partials * (size_t)s->max_heads,
           n_carried = (size_t)b->limits.max_rows * (size_t)s->max_heads;
    s->scratch = step_new(b, (size_t)n_workers * MOST_TOGETHER, sizeof *s->scratch);
    s->carried_max = step_new(b, n_carried, sizeof *s->carried_max);
    s->carried_sum = step_new(b, n_carried, sizeof *s->carried_sum);
    s->partial_max = step_new(b, n_states, sizeof *s->partial_max);
    s->partial_sum = step_new(b, n_states, sizeof *s->partial_sum);
    s->partial_acc = step_new(b, n_states, (size_t)s->acc_stride * sizeof *s->partial_acc);
    if (s->scratch == NULL || s->carried_max == NULL || s->carried_sum == NULL || s->partial_max == NULL ||
        s->partial_sum == NULL || s->partial_acc == NULL) {
        return QUIRE_NO_MEMORY;
    }
    const step_limits *limits = &b->limits;
    s->map.heads = limits->most_heads > 0 ? (attn_range){limits->fewest_heads, limits->most_heads}
                                          : (attn_range){1, s->max_heads};
    s->map.max_items = limits->max_rows + limits->max_seqs;
    s->map.items = step_new(b, (size_t)s->map.max_items, sizeof *s->map.items);
    s->map.verdicts = step_new(b, ATTN_MAP_BYTES, 1);
    if (s->map.items == NULL || s->map.verdicts == NULL) {
        return QUIRE_NO_MEMORY;
    }
    TRY(choice_open(b, n_workers, &s->choice));
    for (int32_t i = 0; i < n_workers; i++) {
        TRY(attention_scratch_open(b, s->acc_stride, &s->scratch[i * MOST_TOGETHER]));
    }
    b->attention_state = s;
    return QUIRE_OK;
}

void cpu_attention_begin(cpu_backend *b) {
    if (b->attention_state != NULL) {
        attn_map_fill(b->batch, &b->attention_state->map);
    }
}

static attn_state partial_state(const cpu_attention_state *s, int32_t partial, int32_t head) {
    int64_t i = (int64_t)partial * s->max_heads + head;
    return (attn_state){s->partial_max[i], s->partial_sum[i], s->partial_acc + i * s->acc_stride};
}

/* ---- chunks ---- */

/* Loads the states that earlier items left for the tile's queries, if there are any. */
static void take_states(const attn_job *job, int32_t chunk0, attn_scratch *s) {
    for (int32_t t = 0; t < s->tile.n_queries && chunk0 > 0; t++) {
        s->states[t].max = job->state->carried_max[s->row_head[t]];
        s->states[t].sum = job->state->carried_sum[s->row_head[t]];
        memcpy(s->states[t].acc, s->out[t], sizeof *s->out[t] * (size_t)s->tile.d_value);
    }
    s->has_states = chunk0 > 0;
}

static void leave_states(const attn_job *job, attn_scratch *s) {
    for (int32_t t = 0; t < s->tile.n_queries; t++) {
        job->state->carried_max[s->row_head[t]] = s->states[t].max;
        job->state->carried_sum[s->row_head[t]] = s->states[t].sum;
        memcpy(s->out[t], s->states[t].acc, sizeof *s->out[t] * (size_t)s->tile.d_value);
    }
}

/* Whether two kv heads are prefetched together, page by page in memory order, while the
 * two before are computed. Memory is read faster in large pieces, and one head's part of
 * a small page is small. Nothing hides the reads of the first two heads, so there must be
 * many chunks, and four heads must fit in L2 at once. */
static bool fetches_pairs(const attn_job *job, int32_t n_heads, int32_t n_chunks) {
    const kv_planes *l = job->planes;
    int64_t head_bytes = 2 * ATTN_CHUNK * l->key.row_bytes, piece_bytes = l->page_tokens * l->key.row_bytes;
    return n_heads % 2 == 0 && n_chunks >= MANY_CHUNKS && l->page_tokens >= ATTN_BLOCK &&
           piece_bytes <= (cpu_kv_is_bytes(l->key.type) ? SMALL_INT8_PIECE : SMALL_PIECE) &&
           4 * head_bytes <= job->b->near_bytes;
}

/* What to prefetch during `chunk` for head h of n_heads from kv_head on. */
static attn_next next_of(int32_t kv_head, int32_t h, int32_t n_heads, int32_t chunk, int32_t last,
                         bool in_pairs) {
    int32_t then = in_pairs ? h - h % 2 + 2 : h + 1;
    return (attn_next){.kv_head = kv_head + then % n_heads,
                       .chunk = chunk + then / n_heads,
                       .end = last,
                       .n_heads = in_pairs ? 2 : 0,
                       .part = h % 2};
}

/* Computes the visible part of a chunk and merges it into the tile's states; the first
 * chunk's results become the states. */
static void merge_chunk(const attn_job *job, const batch_seq *seq, int32_t chunk, attn_next next,
                        const attn_scratch *like, attn_scratch *s) {
    attn_tile *tile = &s->tile;
    attn_state now[ATTN_TILE];
    tile->acc = s->has_states ? s->acc : s->states[0].acc;
    if (attn_compute_chunk(job, seq, chunk, next, like, s)) {
        for (int32_t t = 0; t < tile->n_queries; t++) {
            now[t] = (attn_state){tile->max[t], tile->sum[t], tile->acc + (int64_t)t * tile->acc_stride};
        }
        if (s->has_states) {
            job->b->math->attention_merge(s->states, now, tile->n_queries, tile->acc_stride);
        } else {
            memcpy(s->states, now, sizeof *now * (size_t)tile->n_queries);
        }
        s->has_states = true;
    }
    tile->acc = s->acc;
}

/* Computes the visible part of chunks from..end and merges it into the states of n_heads
 * tiles: the same rows, one tile per kv head. All tiles compute one chunk before the
 * next, since its pages are the same for all of them. */
static void merge_chunks(const attn_job *job, const attn_item *item, int32_t n_heads, int32_t from,
                         int32_t end, attn_scratch *s) {
    int32_t first = INT32_MAX, last = 0;
    for (int32_t t = 0; t < s->tile.n_queries; t++) {
        first = s->first[t] < first ? s->first[t] : first;
        last = s->end[t] > last ? s->end[t] : last;
    }
    from = first / ATTN_CHUNK > from ? first / ATTN_CHUNK : from;
    if (s->mods != NULL) {
        from = s->map.first > from ? s->map.first : from;
        end = s->map.end < end ? s->map.end : end;
    }
    last = end <= last / ATTN_CHUNK ? end * ATTN_CHUNK : last;
    const batch_seq *seq = &job->b->batch->seqs[item->seq];
    const bool in_pairs = fetches_pairs(job, n_heads, last / ATTN_CHUNK - from);
    if (in_pairs) {
        const attn_pages pages = attn_pages_of(job, seq, s->kv_head);
        attn_pages_fetch_all(&pages, first > from * ATTN_CHUNK ? first : from * ATTN_CHUNK,
                             (from + 1) * ATTN_CHUNK, 2);
    }
    for (int32_t chunk = from; chunk * ATTN_CHUNK < last; chunk++) {
        for (int32_t h = 0; h < n_heads; h++) {
            attn_next next = next_of(s->kv_head, h, n_heads, chunk, last, in_pairs);
            merge_chunk(job, seq, chunk, next, h > 0 ? s : NULL, &s[h]);
        }
    }
}

static void finish(const attn_job *job, attn_scratch *s) {
    const float *sinks = job->spec->sinks;
    for (int32_t t = 0; t < s->tile.n_queries; t++) {
        const float *sink = sinks != NULL ? sinks + s->row_head[t] % job->max_heads : NULL;
        job->b->math->attention_finish(&s->states[t], sink, s->tile.d_value, s->out[t]);
    }
}

/* Computes n of the item's queries, for each kv head of the task, over all visible
 * positions from the item's first chunk on, into the output rows. */
static void run_whole(const attn_job *job, const attn_item *item, int32_t kv_head, int32_t from, int32_t n,
                      attn_scratch *s) {
    for (int32_t h = 0; h < job->n_together; h++) {
        attn_set_queries(job, item, kv_head + h, from, n, &s[h]);
        take_states(job, item->chunk0, &s[h]);
    }
    merge_chunks(job, item, job->n_together, item->chunk0, INT32_MAX, s);
    for (int32_t h = 0; h < job->n_together; h++) {
        finish(job, &s[h]);
    }
}

/* Computes the tile's queries over the item's chunks, each into its partial buffer. */
static void run_partial(const attn_job *job, const attn_item *item, int32_t kv_head, int32_t from, int32_t n,
                        attn_scratch *s) {
    cpu_attention_state *state = job->state;
    attn_tile *tile = &s->tile;
    int32_t end = (item->chunk0 + item->n_chunks) * ATTN_CHUNK, last = 0;
    attn_set_queries(job, item, kv_head, from, n, s);
    for (int32_t t = 0; t < tile->n_queries; t++) {
        last = s->end[t] > last ? s->end[t] : last;
    }
    for (int32_t i = 0; i < item->n_chunks; i++) {
        int32_t chunk = item->chunk0 + i;
        attn_next next = next_of(kv_head, 0, 1, chunk, last < end ? last : end, false);
        bool any = attn_compute_chunk(job, &job->b->batch->seqs[item->seq], chunk, next, NULL, s);
        for (int32_t t = 0; t < tile->n_queries; t++) {
            int32_t partial = item->partial + (from + t) / job->group_size * item->n_chunks + i;
            int64_t state_at = (int64_t)partial * state->max_heads + kv_head * job->group_size +
                               (from + t) % job->group_size;
            assert(partial < job->b->limits.max_partials);
            state->partial_max[state_at] = tile->max[t];
            state->partial_sum[state_at] = any ? tile->sum[t] : 0.0f;
            memcpy(state->partial_acc + state_at * state->acc_stride,
                   tile->acc + (int64_t)t * tile->acc_stride, sizeof *tile->acc * (size_t)tile->acc_stride);
        }
    }
}

/* Computes n of the item's queries over its chunks and stores their states for later
 * items. Runs all tiles over a few chunks at a time, so that memory is read once. */
static void run_carry(const attn_job *job, const attn_item *item, int32_t kv_head, int32_t first, int32_t n,
                      attn_scratch *s) {
    int32_t last = first + n, end = item->chunk0 + item->n_chunks;
    size_t chunk_bytes = ATTN_CHUNK * (size_t)(job->planes->key.row_bytes + job->planes->value.row_bytes);
    int32_t n_near = chunk_bytes < NEAR_BYTES ? (int32_t)(NEAR_BYTES / chunk_bytes) : 1;
    for (int32_t chunk = item->chunk0; chunk < end; chunk += n_near) {
        for (int32_t from = first; from < last; from += ATTN_TILE) {
            attn_set_queries(job, item, kv_head, from, last - from < ATTN_TILE ? last - from : ATTN_TILE, s);
            take_states(job, chunk, s);
            merge_chunks(job, item, 1, chunk, chunk + n_near < end ? chunk + n_near : end, s);
            leave_states(job, s);
        }
    }
}

/* The first query of a part, if n queries are split into n_parts. */
static int32_t part_begin(int32_t n, int32_t part, int32_t n_parts) {
    return (int32_t)((int64_t)n * part / n_parts);
}

/* A task's work: n_together kv heads of one item, or queries first..last of one head. */
typedef struct attn_part {
    const attn_item *item;
    int32_t kv_head, first, last;
} attn_part;

static int32_t attn_tasks(const attn_job *job) {
    return job->n_items * job->planes->n_heads / job->n_together * job->n_parts;
}

/* The work of a task. The last items, which take longest in a prompt, come first so that
 * all workers finish at about the same time. */
static attn_part attn_part_of(const attn_job *job, int32_t task) {
    const int32_t part = task % job->n_parts, at = task / job->n_parts * job->n_together,
                  n_heads = job->planes->n_heads;
    const attn_item *item = &job->items[job->n_items - 1 - at / n_heads];
    const int32_t n_queries = item->n_rows * job->group_size;
    return (attn_part){item, at % n_heads, part_begin(n_queries, part, job->n_parts),
                       part_begin(n_queries, part + 1, job->n_parts)};
}

static int32_t tile_queries(const attn_part *p, int32_t from) {
    return p->last - from < ATTN_TILE ? p->last - from : ATTN_TILE;
}

/* Prefetches the queries of the next tile: those of part p from `from` on or, at its end,
 * the first ones of the worker's next task. */
static void fetch_next_tile(const attn_job *job, attn_part p, int32_t from, int32_t task) {
    const int32_t next = task + thread_pool_size(job->b->thread_pool);
    if (from >= p.last && next < attn_tasks(job)) {
        p = attn_part_of(job, next);
        from = p.first;
    }
    if (from < p.last) {
        attn_fetch_queries(job, p.item, p.kv_head, from, tile_queries(&p, from));
    }
}

/* Task: runs one part. */
static void run_item(void *context, int32_t task, int32_t worker) {
    const attn_job *job = context;
    const attn_part p = attn_part_of(job, task);
    attn_scratch *s = &job->state->scratch[worker * MOST_TOGETHER];
    for (int32_t h = 0; h < job->n_together; h++) {
        attn_tile_begin(job, &s[h].tile);
    }
    if (p.item->partial == ATTN_CARRY) {
        run_carry(job, p.item, p.kv_head, p.first, p.last - p.first, s);
        return;
    }
    for (int32_t from = p.first; from < p.last; from += ATTN_TILE) {
        const int32_t n = tile_queries(&p, from);
        fetch_next_tile(job, p, from + n, task);
        if (p.item->partial < 0) {
            run_whole(job, p.item, p.kv_head, from, n, s);
        } else {
            run_partial(job, p.item, p.kv_head, from, n, s);
        }
    }
}

/* Number of an item's kv heads per task. Several if an item's queries fit in one tile,
 * since pages are then read once and in larger pieces; but few enough to keep all workers
 * busy. An item's tasks take equally long; several items must give enough tasks. */
static int32_t heads_together(const attn_job *job) {
    int32_t n_workers = thread_pool_size(job->b->thread_pool), n_kv_heads = job->planes->n_heads,
            n = MOST_TOGETHER;
    for (int32_t i = 0; i < job->n_items; i++) {
        if (job->items[i].partial != ATTN_WHOLE || job->items[i].n_rows * job->group_size > ATTN_TILE) {
            return 1;
        }
    }
    for (; n > 1; n--) {
        int32_t n_tasks = job->n_items * n_kv_heads / n;
        if (n_kv_heads % n == 0 &&
            (n_tasks >= ENOUGH_TASKS * n_workers || (job->n_items == 1 && n_tasks % n_workers == 0))) {
            break;
        }
    }
    return n;
}

/* Number of tasks that share an item's queries. Normally one, since each task reads the
 * keys again. With latents, which all heads share, an item would be a single task, and
 * with many heads computation dominates, so it is split. */
static int32_t parts_of_items(const attn_job *job) {
    int32_t n_queries = INT32_MAX, n_workers = thread_pool_size(job->b->thread_pool), n = 1;
    for (int32_t i = 0; i < job->n_items; i++) {
        const int32_t queries = job->items[i].n_rows * job->group_size;
        n_queries = queries < n_queries ? queries : n_queries;
    }
    while (job->planes->kind == LAYER_LATENT && job->n_items > 0 &&
           job->n_items * n < ENOUGH_TASKS * n_workers && n_queries >= 2 * n * LEAST_QUERIES &&
           (job->n_items * n) % n_workers != 0) {
        n++;
    }
    return n;
}

/* Task: merges all heads of one row. */
static void run_merge(void *context, int32_t task, int32_t worker) {
    const attn_job *job = context;
    const attn_merge *merge = &job->b->batch->merges[task];
    const math_kernels *math = job->b->math;
    int32_t d_value = job->d_value, acc_stride = acc_stride_of(d_value);
    attn_state *state = &job->state->scratch[worker * MOST_TOGETHER].states[0];
    float *out = cpu_act_row(job->b, job->out, merge->row);
    for (int32_t head = 0; head < job->n_heads; head++) {
        state->sum = 0.0f;
        for (int32_t i = 0; i < merge->n_partials; i++) {
            attn_state chunk = partial_state(job->state, merge->partials[i], head);
            math->attention_merge(state, &chunk, 1, acc_stride);
        }
        math->attention_finish(state, job->spec->sinks != NULL ? job->spec->sinks + head : NULL, d_value,
                               out + (int64_t)head * d_value);
    }
}

void cpu_attention(backend *b, int32_t cache, buffer q, const attn_spec *spec, buffer out) {
    cpu_backend *c = (cpu_backend *)b;
    const kv_planes *planes = &c->layout.caches[cache];
    int32_t n_heads = c->buffers[q.id].width / planes->key.width;
    assert(n_heads % planes->n_heads == 0);
    assert(planes->kind == LAYER_LATENT ? c->buffers[out.id].width / n_heads <= planes->key.width
                                        : c->buffers[out.id].width / n_heads == planes->value.width);
    attn_job job = {.b = c,
                    .state = c->attention_state,
                    .spec = spec,
                    .planes = planes,
                    .cache = cache,
                    .n_heads = n_heads,
                    .max_heads = c->attention_state->max_heads,
                    .group_size = n_heads / planes->n_heads,
                    .d_value = c->buffers[out.id].width / n_heads,
                    .q = q,
                    .out = out};
    if (spec->chosen && attn_choice_counts(&job)) {
        attn_run_chosen(&job);
        return;
    }
    for (int32_t level = 0, from = 0; level <= c->batch->n_levels; level++) {
        int32_t end = level < c->batch->n_levels ? c->batch->level_ends[level] : c->batch->n_work;
        job.items = c->batch->work + from;
        job.n_items = end - from;
        job.n_together = heads_together(&job);
        job.n_parts = parts_of_items(&job);
        thread_pool_run(c->thread_pool, run_item, &job, attn_tasks(&job));
        from = end;
    }
    if (c->batch->n_merges > 0) {
        thread_pool_run(c->thread_pool, run_merge, &job, c->batch->n_merges);
    }
}
