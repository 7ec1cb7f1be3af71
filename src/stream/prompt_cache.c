#include "stream/prompt_cache.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "kv/namespace.h"

#define BLOCK PROMPT_CACHE_LEAST_BYTES

/* A text in one block of memory that starts with the entry. In the cache, only its
 * atomics change, and `place`, guarded by the cache's lock; so readers that hold a
 * reference need no lock. */
typedef struct entry {
    atomic_int n_refs; /* references of the cache and of readers; the last one frees it */
    atomic_ullong last_used;
    int32_t place; /* index in the cache's lists; -1: dropped */
    uint64_t tenant;
    size_t n_bytes; /* size of the block */
    str text;
    text_marks marks;
    encode_seams seams;
    int32_t *ids;
    size_t n_ids, n_hashes;
    uint64_t *hashes; /* [n_hashes] hash of the text up to the end of each whole block of BLOCK bytes */
} entry;

/* A tenant with entries. */
typedef struct holder {
    uint64_t tenant;
    size_t n_bytes; /* 0: unused */
} holder;

struct prompt_cache {
    pthread_mutex_t lock;
    size_t max_bytes, n_bytes;
    atomic_ullong now; /* counter of uses */
    int32_t n;
    entry *entries[PROMPT_CACHE_ENTRIES];
    int16_t holder_of[PROMPT_CACHE_ENTRIES]; /* index in holders for each entry */
    holder holders[PROMPT_CACHE_ENTRIES];
};

/* Entries that a reader has references to. */
typedef struct entry_list {
    int32_t n;
    entry *at[PROMPT_CACHE_ENTRIES];
} entry_list;

void prompt_start_deinit(prompt_start *s) {
    token_list_deinit(&s->ids);
    encode_seams_deinit(&s->seams);
    *s = (prompt_start){0};
}

quire_err prompt_cache_open(size_t max_bytes, prompt_cache **out) {
    prompt_cache *c = mem_new(1, sizeof *c);
    *out = c;
    TRY(mem_check(c));
    pthread_mutex_init(&c->lock, NULL);
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

/* ---- references ---- */

/* Index of a tenant among the holders. If absent: with or_free, that of an unused one,
 * else -1. */
static int32_t find_holder(const prompt_cache *c, uint64_t tenant, bool or_free) {
    int32_t found = -1;
    for (int32_t i = 0; i < PROMPT_CACHE_ENTRIES; i++) {
        if (c->holders[i].n_bytes > 0 && c->holders[i].tenant == tenant) {
            return i;
        }
        found = or_free && found < 0 && c->holders[i].n_bytes == 0 ? i : found;
    }
    return found;
}

/* Takes a reference to each of a tenant's entries. */
static void take_entries(prompt_cache *c, uint64_t tenant, entry_list *out) {
    out->n = 0;
    pthread_mutex_lock(&c->lock);
    int32_t h = find_holder(c, tenant, false);
    for (int32_t i = 0; h >= 0 && i < c->n; i++) {
        if (c->holder_of[i] == h) {
            out->at[out->n++] = c->entries[i];
            atomic_fetch_add_explicit(&c->entries[i]->n_refs, 1, memory_order_relaxed);
        }
    }
    pthread_mutex_unlock(&c->lock);
}

/* Drops the references. Without the lock, since freeing a long text takes time. */
static void let_go(const entry_list *list) {
    for (int32_t i = 0; i < list->n; i++) {
        if (atomic_fetch_sub_explicit(&list->at[i]->n_refs, 1, memory_order_acq_rel) == 1) {
            mem_free(list->at[i]);
        }
    }
}

/* ---- comparing ---- */

static uint64_t block_hash(uint64_t before, str text, size_t block) {
    return kv_hash_root(before, text.p + block * BLOCK, BLOCK);
}

/* The number of leading blocks with equal hashes. A hash covers all earlier blocks
 * too. */
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

/* Length of the common prefix of two texts. */
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

/* The first position where only one of the texts has a byte written by a client; SIZE_MAX
 * if none. */
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

/* The entry that shares the longest prefix with a text, judged by hashes; NULL if
 * none. */
static entry *nearest_entry(const entry_list *list, const uint64_t *hashes, size_t n) {
    entry *best = NULL;
    size_t most = 0;
    for (int32_t i = 0; i < list->n; i++) {
        size_t equal = n_equal_blocks(list->at[i], hashes, n);
        if (equal > most) {
            best = list->at[i];
            most = equal;
        }
    }
    return best;
}

/* Length of the common prefix of e and a text, comparing marks too. */
static size_t common_bytes(const entry *e, str text, const text_marks *marks) {
    size_t common = n_equal_bytes(e->text, text), differ = first_difference(&e->marks, marks);
    return differ < common ? differ : common;
}

/* Hashes of a text's whole blocks, owned by the caller. NULL: out of memory. */
static uint64_t *hash_blocks(str text, size_t *n) {
    uint64_t *hashes = mem_new(text.n / BLOCK, sizeof *hashes);
    *n = text.n / BLOCK;
    for (size_t i = 0; hashes != NULL && i < *n; i++) {
        hashes[i] = block_hash(i > 0 ? hashes[i - 1] : 0, text, i);
    }
    return hashes;
}

/* ---- finding ---- */

/* Copies the ids up to the last seam within the first `common` bytes of e's text. */
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

/* Records that e is used now. */
static void touch(prompt_cache *c, entry *e) {
    unsigned long long now = atomic_fetch_add_explicit(&c->now, 1, memory_order_relaxed) + 1;
    atomic_store_explicit(&e->last_used, now, memory_order_relaxed);
}

quire_err prompt_cache_find(prompt_cache *c, uint64_t tenant, str text, const text_marks *marks,
                            prompt_start *out) {
    size_t n;
    if (text.n < BLOCK) {
        return QUIRE_OK;
    }
    uint64_t *hashes = hash_blocks(text, &n);
    TRY(mem_check(hashes));
    entry_list own;
    take_entries(c, tenant, &own);
    entry *e = nearest_entry(&own, hashes, n);
    quire_err er = QUIRE_OK;
    if (e != NULL) {
        touch(c, e);
        er = take_start(e, common_bytes(e, text, marks), out);
    }
    let_go(&own);
    mem_free(hashes);
    return er;
}

/* ---- keeping ---- */

/* Copies n elements of `size` bytes to *at, and advances *at to the next aligned
 * address. */
static void *prompt_cache_put(char **at, const void *from, size_t n, size_t size) {
    char *to = *at;
    mem_copy(to, from, n * size);
    *at += (n * size + 7) / 8 * 8;
    return to;
}

/* Makes an entry; NULL: out of memory. */
static entry *prompt_cache_make_entry(uint64_t tenant, str text, const text_marks *marks, const int32_t *ids,
                                      size_t n_ids, const encode_seams *seams) {
    size_t n_hashes;
    uint64_t *hashes = hash_blocks(text, &n_hashes);
    size_t n_bytes = sizeof(entry) + text.n + marks->n * sizeof *marks->runs +
                     seams->n * sizeof(encode_seam) + n_ids * sizeof *ids + n_hashes * sizeof *hashes + 6 * 8;
    entry *e = hashes != NULL ? mem_new(1, n_bytes) : NULL;
    if (e != NULL) {
        char *at = (char *)(e + 1);
        e->tenant = tenant;
        e->n_bytes = n_bytes;
        e->n_ids = n_ids;
        e->n_hashes = n_hashes;
        e->place = -1;
        atomic_init(&e->n_refs, 1);
        e->hashes = prompt_cache_put(&at, hashes, n_hashes, sizeof *hashes);
        e->seams = (encode_seams){.at = prompt_cache_put(&at, seams->at, seams->n, sizeof *seams->at),
                                  .n = seams->n,
                                  .cap = seams->n};
        e->marks = (text_marks){.runs = prompt_cache_put(&at, marks->runs, marks->n, sizeof *marks->runs),
                                .n = marks->n,
                                .cap = marks->n};
        e->ids = prompt_cache_put(&at, ids, n_ids, sizeof *ids);
        e->text = (str){prompt_cache_put(&at, text.p, text.n, 1), text.n};
    }
    mem_free(hashes);
    return e;
}

/* Removes entry i from the lists and moves its reference to `gone`. */
static void prompt_cache_drop(prompt_cache *c, int32_t i, entry_list *gone) {
    entry *e = c->entries[i];
    c->n_bytes -= e->n_bytes;
    c->holders[c->holder_of[i]].n_bytes -= e->n_bytes;
    c->n--;
    c->entries[i] = c->entries[c->n];
    c->holder_of[i] = c->holder_of[c->n];
    c->entries[i]->place = i;
    e->place = -1;
    gone->at[gone->n++] = e;
}

/* Index of the entry to drop: the least recently used of the tenant that holds most. */
static int32_t prompt_cache_least_wanted(const prompt_cache *c) {
    int32_t most = 0, worst = -1;
    unsigned long long worst_used = 0;
    for (int32_t i = 1; i < PROMPT_CACHE_ENTRIES; i++) {
        most = c->holders[i].n_bytes > c->holders[most].n_bytes ? i : most;
    }
    for (int32_t i = 0; i < c->n; i++) {
        if (c->holder_of[i] == most) {
            unsigned long long used = atomic_load_explicit(&c->entries[i]->last_used, memory_order_relaxed);
            worst = worst < 0 || used < worst_used ? i : worst;
            worst_used = worst == i ? used : worst_used;
        }
    }
    return worst;
}

/* Whether e's text continues that of `old`, an entry of the same tenant. */
static bool continues(const entry *e, const entry *old) {
    if (old->text.n > e->text.n || n_equal_blocks(old, e->hashes, e->n_hashes) + 1 < old->n_hashes) {
        return false;
    }
    /* all but the beginning of the answer must be equal */
    return old->text.n - common_bytes(old, e->text, &e->marks) < BLOCK;
}

/* Replaces `earlier` by e, which fits into the cache, and drops other entries if room is
 * needed. Removed entries go to `gone`. */
static void replace(prompt_cache *c, entry *e, const entry_list *earlier, entry_list *gone) {
    pthread_mutex_lock(&c->lock);
    for (int32_t i = 0; i < earlier->n; i++) {
        if (earlier->at[i]->place >= 0) { /* not dropped in the meantime */
            prompt_cache_drop(c, earlier->at[i]->place, gone);
        }
    }
    while (c->n > 0 && (c->n == PROMPT_CACHE_ENTRIES || c->n_bytes + e->n_bytes > c->max_bytes)) {
        prompt_cache_drop(c, prompt_cache_least_wanted(c), gone);
    }
    int32_t h = find_holder(c, e->tenant, true);
    c->holders[h].tenant = e->tenant;
    c->holders[h].n_bytes += e->n_bytes;
    c->holder_of[c->n] = (int16_t)h;
    c->n_bytes += e->n_bytes;
    e->place = c->n;
    c->entries[c->n++] = e;
    pthread_mutex_unlock(&c->lock);
}

void prompt_cache_keep(prompt_cache *c, uint64_t tenant, str text, const text_marks *marks,
                       const int32_t *ids, size_t n_ids, const encode_seams *seams) {
    if (text.n < BLOCK || seams->n == 0 || text.n > c->max_bytes / 4) {
        return;
    }
    entry *e = prompt_cache_make_entry(tenant, text, marks, ids, n_ids, seams);
    if (e == NULL || e->n_bytes > c->max_bytes) {
        mem_free(e);
        return;
    }
    entry_list own, earlier = {.n = 0}, gone = {.n = 0};
    touch(c, e);
    take_entries(c, tenant, &own);
    for (int32_t i = 0; i < own.n; i++) {
        if (continues(e, own.at[i])) {
            earlier.at[earlier.n++] = own.at[i];
        }
    }
    replace(c, e, &earlier, &gone);
    let_go(&own);
    let_go(&gone);
}

size_t prompt_cache_bytes(prompt_cache *c) {
    assert(c != NULL);
    pthread_mutex_lock(&c->lock);
    size_t n = c->n_bytes;
    pthread_mutex_unlock(&c->lock);
    return n;
}
