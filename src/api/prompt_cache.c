#include "api/prompt_cache.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "kv/hash.h"

#define BLOCK PROMPT_CACHE_LEAST_BYTES

/* One text. All that it points to is in one block of memory, which begins with the entry itself. */
typedef struct entry {
    uint64_t tenant, last_used;
    size_t n_bytes; /* of the block */
    str text;
    text_marks marks;
    encode_seams seams;
    int32_t *ids;
    size_t n_ids, n_hashes;
    uint64_t *hashes; /* [n_hashes] of the text up to the end of each whole block of BLOCK bytes */
} entry;

struct prompt_cache {
    pthread_mutex_t lock;
    size_t max_bytes, n_bytes;
    uint64_t now; /* counts uses */
    int32_t n;
    entry *entries[PROMPT_CACHE_ENTRIES];
};

void prompt_start_deinit(prompt_start *s) {
    token_list_deinit(&s->ids);
    encode_seams_deinit(&s->seams);
    *s = (prompt_start){0};
}

quire_err prompt_cache_open(size_t max_bytes, prompt_cache **out) {
    prompt_cache *c = mem_new(1, sizeof *c);
    *out = c;
    TRY(mem_check(c));
    if (pthread_mutex_init(&c->lock, NULL) != 0) {
        mem_free(c);
        *out = NULL;
        return QUIRE_NO_MEMORY;
    }
    c->max_bytes = max_bytes;
    return QUIRE_OK;
}

void prompt_cache_close(prompt_cache *c) {
    if (c == NULL) {
        return;
    }
    for (int32_t i = 0; i < c->n; i++) {
        mem_free(c->entries[i]);
    }
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}

/* ---- comparing ---- */

static uint64_t block_hash(uint64_t before, str text, size_t block) {
    return kv_hash_root(before, text.p + block * BLOCK, BLOCK);
}

/* How many leading blocks have equal hashes. A hash covers all blocks before, so equality ends once. */
static size_t n_equal_blocks(const entry *e, const uint64_t *hashes, size_t n) {
    size_t low = 0, high = n < e->n_hashes ? n : e->n_hashes;
    while (low < high) {
        size_t middle = low + (high - low + 1) / 2;
        if (e->hashes[middle - 1] == hashes[middle - 1]) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

/* Bytes of the common beginning. */
static size_t n_equal_bytes(str a, str b) {
    size_t n = a.n < b.n ? a.n : b.n, i = 0;
    while (n - i >= BLOCK && memcmp(a.p + i, b.p + i, BLOCK) == 0) {
        i += BLOCK;
    }
    while (i < n && a.p[i] == b.p[i]) {
        i++;
    }
    return i;
}

/* The first position at which one has a client's byte and the other has not, or SIZE_MAX. */
static size_t first_difference(const text_marks *a, const text_marks *b) {
    size_t i = 0;
    while (i < a->n && i < b->n && a->runs[i].start == b->runs[i].start && a->runs[i].end == b->runs[i].end) {
        i++;
    }
    if (i < a->n && i < b->n && a->runs[i].start == b->runs[i].start) {
        return a->runs[i].end < b->runs[i].end ? a->runs[i].end : b->runs[i].end;
    }
    size_t of_a = i < a->n ? a->runs[i].start : SIZE_MAX, of_b = i < b->n ? b->runs[i].start : SIZE_MAX;
    return of_a < of_b ? of_a : of_b;
}

/* The entry with the longest beginning of a text, by hash, or NULL. */
static entry *nearest_entry(const prompt_cache *c, uint64_t tenant, const uint64_t *hashes, size_t n) {
    entry *best = NULL;
    size_t most = 0;
    for (int32_t i = 0; i < c->n; i++) {
        entry *e = c->entries[i];
        size_t equal = e->tenant == tenant ? n_equal_blocks(e, hashes, n) : 0;
        if (equal > most) {
            best = e;
            most = equal;
        }
    }
    return best;
}

/* How far e and a text are the same: bytes and marks. */
static size_t common_bytes(const entry *e, str text, const text_marks *marks) {
    size_t common = n_equal_bytes(e->text, text), differ = first_difference(&e->marks, marks);
    return differ < common ? differ : common;
}

/* The hashes of a text's whole blocks, mem_new'd. NULL: out of memory. */
static uint64_t *hash_blocks(str text, size_t *n) {
    uint64_t *hashes = mem_new(text.n / BLOCK, sizeof *hashes);
    *n = text.n / BLOCK;
    for (size_t i = 0; hashes != NULL && i < *n; i++) {
        hashes[i] = block_hash(i > 0 ? hashes[i - 1] : 0, text, i);
    }
    return hashes;
}

/* ---- finding ---- */

/* Copies the ids up to the last seam that lies in e's first `common` bytes. */
static quire_err take_start(const entry *e, size_t common, prompt_start *out) {
    size_t n = 0;
    while (n < e->seams.n && e->seams.at[n].needs <= common) {
        TRY(encode_seams_add(&out->seams, e->seams.at[n++]));
    }
    if (n == 0) {
        return QUIRE_OK;
    }
    out->at = e->seams.at[n - 1].at;
    return token_list_add_all(&out->ids, e->ids, e->seams.at[n - 1].n_ids);
}

quire_err prompt_cache_find(prompt_cache *c, uint64_t tenant, str text, const text_marks *marks, prompt_start *out) {
    size_t n;
    if (text.n < BLOCK) {
        return QUIRE_OK;
    }
    uint64_t *hashes = hash_blocks(text, &n);
    TRY(mem_check(hashes));
    pthread_mutex_lock(&c->lock);
    entry *e = nearest_entry(c, tenant, hashes, n);
    quire_err er = QUIRE_OK;
    if (e != NULL) {
        e->last_used = ++c->now;
        er = take_start(e, common_bytes(e, text, marks), out);
    }
    pthread_mutex_unlock(&c->lock);
    mem_free(hashes);
    return er;
}

/* ---- keeping ---- */

/* Copies n elements of size bytes to *at, which moves on, aligned. */
static void *put(char **at, const void *from, size_t n, size_t size) {
    char *to = *at;
    mem_copy(to, from, n * size);
    *at += (n * size + 7) / 8 * 8;
    return to;
}

/* A new entry; NULL: out of memory. */
static entry *make_entry(uint64_t tenant, str text, const text_marks *marks, const int32_t *ids, size_t n_ids, const encode_seams *seams) {
    size_t n_hashes;
    uint64_t *hashes = hash_blocks(text, &n_hashes);
    size_t n_bytes = sizeof(entry) + text.n + marks->n * sizeof *marks->runs + seams->n * sizeof(encode_seam) +
                     n_ids * sizeof *ids + n_hashes * sizeof *hashes + 6 * 8;
    entry *e = hashes != NULL ? mem_new(1, n_bytes) : NULL;
    if (e != NULL) {
        char *at = (char *)(e + 1);
        *e = (entry){.tenant = tenant, .n_bytes = n_bytes, .n_ids = n_ids, .n_hashes = n_hashes};
        e->hashes = put(&at, hashes, n_hashes, sizeof *hashes);
        e->seams = (encode_seams){.at = put(&at, seams->at, seams->n, sizeof *seams->at), .n = seams->n, .cap = seams->n};
        e->marks = (text_marks){.runs = put(&at, marks->runs, marks->n, sizeof *marks->runs), .n = marks->n, .cap = marks->n};
        e->ids = put(&at, ids, n_ids, sizeof *ids);
        e->text = (str){put(&at, text.p, text.n, 1), text.n};
    }
    mem_free(hashes);
    return e;
}

static void drop(prompt_cache *c, int32_t i) {
    c->n_bytes -= c->entries[i]->n_bytes;
    mem_free(c->entries[i]);
    c->entries[i] = c->entries[--c->n];
}

static size_t tenant_bytes(const prompt_cache *c, uint64_t tenant) {
    size_t n = 0;
    for (int32_t i = 0; i < c->n; i++) {
        n += c->entries[i]->tenant == tenant ? c->entries[i]->n_bytes : 0;
    }
    return n;
}

/* The entry to drop: of the tenant that holds most, the least recently used. */
static int32_t least_wanted(const prompt_cache *c) {
    int32_t worst = 0;
    size_t most = 0;
    for (int32_t i = 0; i < c->n; i++) {
        const entry *e = c->entries[i], *w = c->entries[worst];
        size_t held = i > 0 && e->tenant == w->tenant ? most : tenant_bytes(c, e->tenant);
        if (held > most || (e->tenant == w->tenant && e->last_used < w->last_used)) {
            worst = i;
            most = held;
        }
    }
    return worst;
}

/* Drops the entries of e's tenant whose text e continues, so that a conversation has one. */
static void drop_earlier_turns(prompt_cache *c, const entry *e) {
    for (int32_t i = c->n - 1; i >= 0; i--) {
        const entry *old = c->entries[i];
        if (old->tenant != e->tenant || old->text.n > e->text.n || n_equal_blocks(old, e->hashes, e->n_hashes) + 1 < old->n_hashes) {
            continue;
        }
        size_t common = common_bytes(old, e->text, &e->marks);
        if (old->text.n - common < BLOCK) { /* all but the opening of the answer */
            drop(c, i);
        }
    }
}

void prompt_cache_keep(prompt_cache *c, uint64_t tenant, str text, const text_marks *marks, const int32_t *ids, size_t n_ids,
                       const encode_seams *seams) {
    if (text.n < BLOCK || seams->n == 0 || text.n > c->max_bytes / 4) {
        return;
    }
    entry *e = make_entry(tenant, text, marks, ids, n_ids, seams);
    if (e == NULL) {
        return;
    }
    pthread_mutex_lock(&c->lock);
    drop_earlier_turns(c, e);
    while (c->n > 0 && (c->n == PROMPT_CACHE_ENTRIES || c->n_bytes + e->n_bytes > c->max_bytes)) {
        drop(c, least_wanted(c));
    }
    if (e->n_bytes <= c->max_bytes) {
        e->last_used = ++c->now;
        c->entries[c->n++] = e;
        c->n_bytes += e->n_bytes;
    } else {
        mem_free(e);
    }
    pthread_mutex_unlock(&c->lock);
}

size_t prompt_cache_bytes(prompt_cache *c) {
    pthread_mutex_lock(&c->lock);
    size_t n = c->n_bytes;
    pthread_mutex_unlock(&c->lock);
    return n;
}
