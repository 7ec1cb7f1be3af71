#include "text/piece_table.h"

#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"
#include "base/turn.h"

static uint64_t piece_table_mix(uint64_t h) {
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93u;
    h ^= h >> 32;
    return h;
}

static uint32_t hash_piece(uint64_t seed, str s) {
    uint64_t h = seed ^ s.n;
    while (s.n >= 8) {
        uint64_t word;
        memcpy(&word, s.p, 8);
        h = piece_table_mix(h ^ word);
        s.p += 8;
        s.n -= 8;
    }
    uint64_t tail = 0;
    mem_copy(&tail, s.p, s.n);
    return (uint32_t)piece_table_mix(h ^ tail);
}

/* Finds a power of two of which n is at most 3/4. False on overflow. */
static bool piece_table_slots_for(size_t n, size_t *out) {
    size_t n_slots = 16;
    while (n_slots / 4 * 3 < n) {
        if (!size_mul(n_slots, 2, &n_slots)) {
            return false;
        }
    }
    *out = n_slots;
    return true;
}

quire_err piece_table_init(piece_table *t, int32_t n_ids, size_t n_pieces, size_t n_bytes) {
    assert(n_ids >= 0);
    size_t n_slots;
    if (!piece_table_slots_for(n_pieces, &n_slots) || n_slots > UINT32_MAX) {
        return QUIRE_TOO_LARGE;
    }
    *t = (piece_table){
        .n = n_ids, .mask = (uint32_t)(n_slots - 1), .seed = rng_os_seed(), .bytes = {.max = UINT32_MAX}};
    t->spans = mem_new((size_t)n_ids, sizeof *t->spans);
    t->slots = mem_new_huge(n_slots, sizeof *t->slots);
    if (t->spans == NULL || t->slots == NULL ||
        mem_grow(&t->bytes.p, &t->bytes.cap, n_bytes + 1, 1) != QUIRE_OK) {
        piece_table_deinit(t);
        return QUIRE_NO_MEMORY;
    }
    return QUIRE_OK;
}

void piece_table_deinit(piece_table *t) {
    if (!t->borrowed) {
        strbuf_deinit(&t->bytes);
        mem_free(t->spans);
        mem_free(t->slots);
    }
    *t = (piece_table){0};
}

/* The slot of piece, or the empty slot where it would be inserted. */
static piece_slot *piece_table_slot_of(const piece_table *t, str piece, uint32_t hash) {
    for (uint32_t i = hash & t->mask;; i = (i + 1) & t->mask) {
        piece_slot *s = &t->slots[i];
        if (s->id_plus_1 == 0 ||
            (s->hash == hash && str_eq((str){t->bytes.p + s->span.at, s->span.n}, piece))) {
            return s;
        }
    }
}

quire_err piece_table_add_hidden(piece_table *t, int32_t id, str piece) {
    assert(t != NULL);
    size_t at = t->bytes.n;
    if (t->borrowed) {
        return QUIRE_BAD_FILE;
    }
    TRY(strbuf_add(&t->bytes, piece.p, piece.n));
    t->spans[id] = (piece_span){(uint32_t)at, (uint32_t)piece.n};
    return QUIRE_OK;
}

quire_err piece_table_add(piece_table *t, int32_t id, str piece) {
    TRY(piece_table_add_hidden(t, id, piece));
    uint32_t hash = hash_piece(t->seed, piece);
    *piece_table_slot_of(t, piece, hash) = (piece_slot){hash, id + 1, t->spans[id]};
    return QUIRE_OK;
}

str piece_table_get(const piece_table *t, int32_t id) {
    if (id < 0 || id >= t->n || t->spans[id].n == 0) {
        return (str){"", 0};
    }
    return (str){t->bytes.p + t->spans[id].at, t->spans[id].n};
}

int32_t piece_table_find(const piece_table *t, str piece) {
    return piece_table_slot_of(t, piece, hash_piece(t->seed, piece))->id_plus_1 - 1;
}

static size_t hash_pair(const pair_table *t, int32_t left, int32_t right) {
    return (size_t)piece_table_mix(t->seed ^ ((uint64_t)(uint32_t)left << 32 | (uint32_t)right));
}

quire_err pair_table_init(pair_table *t, size_t n_pairs) {
    size_t n_slots;
    if (!piece_table_slots_for(n_pairs, &n_slots)) {
        return QUIRE_TOO_LARGE;
    }
    *t = (pair_table){
        .slots = mem_new_huge(n_slots, sizeof(pair_slot)), .mask = n_slots - 1, .seed = rng_os_seed()};
    return t->slots == NULL ? QUIRE_NO_MEMORY : QUIRE_OK;
}

void pair_table_deinit(pair_table *t) {
    if (!t->borrowed) {
        mem_free(t->slots);
    }
    *t = (pair_table){0};
}

/* left may be any number that a packed table has as a result, up to INT32_MAX. */
static pair_slot *pair_slot_of(const pair_table *t, int32_t left, int32_t right) {
    const uint32_t left_plus_1 = (uint32_t)left + 1;
    size_t i = hash_pair(t, left, right) & t->mask;
    while (t->slots[i].left_plus_1 != 0 &&
           ((uint32_t)t->slots[i].left_plus_1 != left_plus_1 || t->slots[i].right != right)) {
        i = (i + 1) & t->mask;
    }
    return &t->slots[i];
}

static quire_err pair_table_double(pair_table *t) {
    pair_table grown;
    TRY(pair_table_init(&grown, (t->mask + 1) / 4 * 3 + 1));
    for (size_t i = 0; i <= t->mask; i++) {
        const pair_slot *s = &t->slots[i];
        if (s->left_plus_1 != 0) {
            *pair_slot_of(&grown, s->left_plus_1 - 1, s->right) = *s;
        }
    }
    grown.n = t->n;
    mem_free(t->slots);
    *t = grown;
    return QUIRE_OK;
}

quire_err pair_table_put(pair_table *t, int32_t left, int32_t right, uint32_t rank, int32_t id) {
    assert(t != NULL);
    if (t->n >= (t->mask + 1) / 4 * 3) {
        TRY(pair_table_double(t));
    }
    pair_slot *s = pair_slot_of(t, left, right);
    t->n += s->left_plus_1 == 0;
    *s = (pair_slot){left + 1, right, rank, id};
    return QUIRE_OK;
}

const pair_slot *pair_table_find(const pair_table *t, int32_t left, int32_t right) {
    const pair_slot *s = pair_slot_of(t, left, right);
    return s->left_plus_1 == 0 ? NULL : s;
}

#define WIDTH     256
#define MAX_UNITS ((size_t)INT32_MAX - 2 * WIDTH)
#define MAX_TRIES 64 /* positions tried for a node's children before the array grows */

/* Free units form a ring by `next` and `prev`, in ascending order, whose head is unit 0,
 * the root. */
typedef struct builder {
    const trie_piece *pieces;
    trie_unit *units;
    int32_t *next, *prev;
    size_t n, cap_units, cap_next, cap_prev;
    struct range {
        size_t low, high, depth;
        int32_t node;
    } * stack;
    size_t n_stack, cap_stack;
} builder;

static int piece_trie_compare(const void *x, const void *y) {
    const trie_piece *a = x, *b = y;
    int c = str_compare(a->text, b->text);
    return c != 0 ? c : (a->id < b->id) - (a->id > b->id);
}

static quire_err piece_trie_grow(builder *b, size_t n) {
    if (n > MAX_UNITS) {
        return QUIRE_TOO_LARGE;
    }
    TRY(mem_grow(&b->units, &b->cap_units, n, sizeof *b->units));
    TRY(mem_grow(&b->next, &b->cap_next, n, sizeof *b->next));
    TRY(mem_grow(&b->prev, &b->cap_prev, n, sizeof *b->prev));
    for (int32_t i = (int32_t)b->n; i < (int32_t)n; i++) {
        b->units[i] = (trie_unit){.base = 0, .parent = -1, .id = -1};
        b->prev[i] = i == 0 ? 0 : b->prev[0];
        b->next[i] = 0;
        b->next[b->prev[i]] = i;
        b->prev[0] = i;
    }
    b->n = n > b->n ? n : b->n;
    return QUIRE_OK;
}

static void piece_trie_take(builder *b, int32_t unit, int32_t parent) {
    b->next[b->prev[unit]] = b->next[unit];
    b->prev[b->next[unit]] = b->prev[unit];
    b->units[unit].parent = parent;
}

static bool piece_trie_fits(const builder *b, int32_t base, const uint8_t *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (base + bytes[i] >= (int32_t)b->n) {
            return true; /* entries after the array are free */
        }
        if (base + bytes[i] == PIECE_TRIE_ROOT || b->units[base + bytes[i]].parent >= 0) {
            return false;
        }
    }
    return true;
}

/* A base at which all children find free units. Tries the last free units, since the
 * first are mostly holes that few nodes fit. */
static int32_t find_base(const builder *b, const uint8_t *bytes, size_t n) {
    int32_t unit = b->prev[0];
    int32_t best = (int32_t)b->n - bytes[0];
    for (int tries = 0; tries < MAX_TRIES && unit != 0; tries++, unit = b->prev[unit]) {
        if (unit >= bytes[0] && piece_trie_fits(b, unit - bytes[0], bytes, n)) {
            best = unit - bytes[0];
        }
    }
    return best > 0 ? best : 0;
}

static quire_err piece_trie_add_children(builder *b, struct range r) {
    uint8_t bytes[WIDTH];
    size_t starts[WIDTH + 1], n = 0;
    for (; r.low < r.high && b->pieces[r.low].text.n == r.depth; r.low++) {
        if (b->units[r.node].id < 0 && r.depth > 0) {
            b->units[r.node].id = b->pieces[r.low].id;
        }
    }
    for (size_t i = r.low; i < r.high; i++) {
        uint8_t byte = (uint8_t)b->pieces[i].text.p[r.depth];
        if (n == 0 || bytes[n - 1] != byte) {
            bytes[n] = byte;
            starts[n++] = i;
        }
    }
    starts[n] = r.high;
    if (n == 0) {
        return QUIRE_OK;
    }
    int32_t base = find_base(b, bytes, n);
    TRY(piece_trie_grow(b, (size_t)base + WIDTH > b->n ? (size_t)base + WIDTH : b->n));
    TRY(mem_grow(&b->stack, &b->cap_stack, b->n_stack + n, sizeof *b->stack));
    b->units[r.node].base = base;
    for (size_t i = 0; i < n; i++) {
        piece_trie_take(b, base + bytes[i], r.node);
    }
    for (size_t i = n; i-- > 0;) {
        b->stack[b->n_stack++] = (struct range){starts[i], starts[i + 1], r.depth + 1, base + bytes[i]};
    }
    return QUIRE_OK;
}

quire_err piece_trie_build(trie_piece *pieces, size_t n, piece_trie *out) {
    builder b = {.pieces = pieces};
    if (n > 1) {
        qsort(pieces, n, sizeof *pieces, piece_trie_compare);
    }
    quire_err e = piece_trie_grow(&b, WIDTH);
    TRY_DONE(e, mem_grow(&b.stack, &b.cap_stack, 1, sizeof *b.stack));
    b.stack[b.n_stack++] = (struct range){0, n, 0, PIECE_TRIE_ROOT};
    while (b.n_stack > 0) {
        TRY_DONE(e, piece_trie_add_children(&b, b.stack[--b.n_stack]));
    }
done:
    mem_free(b.next);
    mem_free(b.prev);
    mem_free(b.stack);
    if (e != QUIRE_OK) {
        mem_free(b.units);
        return e;
    }
    *out = (piece_trie){.units = b.units, .n = b.n};
    return QUIRE_OK;
}

void piece_trie_deinit(piece_trie *t) {
    if (!t->borrowed) {
        mem_free(t->units);
    }
    *t = (piece_trie){0};
}

bool piece_trie_check(const piece_trie *t) {
    assert(t != NULL);
    bool good = t->n >= WIDTH && t->n <= INT32_MAX;
    for (size_t i = 0; i < t->n && good; i++) {
        good = t->units[i].base >= 0 && (size_t)t->units[i].base <= t->n - WIDTH;
    }
    return good;
}

int32_t piece_trie_walk(const piece_trie *t, int32_t node, str text) {
    for (size_t i = 0; i < text.n && node >= 0; i++) {
        node = piece_trie_step(t, node, (uint8_t)text.p[i]);
    }
    return node;
}

int32_t piece_trie_longest(const piece_trie *t, int32_t node, str text, size_t *n) {
    int32_t id = -1;
    size_t i = 0;
    for (; i < text.n; i++) {
        node = piece_trie_step(t, node, (uint8_t)text.p[i]);
        if (node < 0) {
            break;
        }
        if (t->units[node].id >= 0) {
            id = t->units[node].id;
            *n = i + 1;
        }
    }
    (void)turn_poll((uint32_t)(i / 16)); /* an error reappears at the caller's next poll */
    return id;
}
