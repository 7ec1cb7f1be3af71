#include "text/piece_table.h"

#include <assert.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"

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

/* A power of two of which n is at most 3/4; false on overflow. */
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

/* The slot that holds piece, or the empty slot to insert it. */
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

/* left may be any number that a packed table gives as a result, INT32_MAX too. */
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
