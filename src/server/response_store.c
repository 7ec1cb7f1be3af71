#include "server/response_store.h"

#include <assert.h>
#include <pthread.h>

#include "base/mem.h"
#include "quire.h"

/* A tenant's responses. It exists as long as the tenant has any. */
typedef struct store_tenant {
    char name[QUIRE_TENANT_BYTES + 1];
    size_t n_bytes;
    int64_t n_held;    /* number of its responses and turns */
    int64_t n_running; /* number of its responses in progress */
    /* its responses in order of last use; oldest: least recently used */
    struct store_entry *oldest, *newest;
    struct store_tenant *next;
} store_tenant;

struct response_turn {
    store_tenant *tenant;
    response_turn *parent;
    int64_t n_refs; /* references: by responses, by turns that continue it, and by callers */
    char *lines;    /* n bytes of items, of which the first n_input are the input's */
    size_t n, n_input;
};

typedef struct store_entry {
    store_tenant *tenant;
    char *id, *object;
    size_t n_id, n_object;
    response_turn *turn;
    int64_t kept_us;
    bool in_progress;
    struct store_entry *next_in_bucket;
    struct store_entry *older, *newer;  /* neighbours in its tenant's list, by last use */
    struct store_entry *before, *after; /* neighbours in the list of all, by time of storing */
} store_entry;

struct response_store {
    pthread_mutex_t lock; /* guards everything below */
    size_t max_bytes, n_bytes;
    int64_t max_age_us, n;
    store_tenant *tenants;
    store_entry *first, *last; /* list of all, by time of storing */
    store_entry **buckets;     /* [n_buckets] hash table by id */
    size_t n_buckets;
};

#define FIRST_BUCKETS 64

/* ---- bytes ---- */

static size_t store_turn_bytes(const response_turn *t) {
    return sizeof *t + t->n;
}

static size_t store_entry_bytes(const store_entry *e) {
    return sizeof *e + e->n_id + e->n_object;
}

static void store_charge(response_store *s, store_tenant *t, size_t n) {
    s->n_bytes += n;
    t->n_bytes += n;
    t->n_held++;
}

/* Subtracts a response or turn of n bytes from a tenant; frees a tenant without any. */
static void store_discharge(response_store *s, store_tenant *t, size_t n) {
    assert(t->n_bytes >= n && s->n_bytes >= n && t->n_held > 0);
    s->n_bytes -= n;
    t->n_bytes -= n;
    if (--t->n_held == 0) {
        store_tenant **at = &s->tenants;
        while (*at != t) {
            at = &(*at)->next;
        }
        *at = t->next;
        mem_free(t);
    }
}

/* ---- turns ---- */

static void store_drop_turn(response_store *s, response_turn *t) {
    while (t != NULL && --t->n_refs == 0) {
        response_turn *parent = t->parent;
        store_discharge(s, t->tenant, store_turn_bytes(t));
        mem_free(t->lines);
        mem_free(t);
        t = parent;
    }
}

void response_turn_drop(response_store *s, response_turn *t) {
    pthread_mutex_lock(&s->lock);
    store_drop_turn(s, t);
    pthread_mutex_unlock(&s->lock);
}

/* ---- entries ---- */

static store_entry **store_bucket(const response_store *s, str id) {
    return &s->buckets[str_hash(STR_HASH_START, id) & (s->n_buckets - 1)];
}

static void store_unlink_use(store_entry *e) {
    store_tenant *t = e->tenant;
    *(e->older != NULL ? &e->older->newer : &t->oldest) = e->newer;
    *(e->newer != NULL ? &e->newer->older : &t->newest) = e->older;
}

static void store_link_use(store_entry *e) {
    store_tenant *t = e->tenant;
    e->older = t->newest;
    e->newer = NULL;
    *(t->newest != NULL ? &t->newest->newer : &t->oldest) = e;
    t->newest = e;
}

static void store_link(response_store *s, store_entry *e) {
    store_entry **bucket = store_bucket(s, (str){e->id, e->n_id});
    e->next_in_bucket = *bucket;
    *bucket = e;
    e->before = s->last;
    *(s->last != NULL ? &s->last->after : &s->first) = e;
    s->last = e;
    store_link_use(e);
    e->tenant->n_running += e->in_progress;
    s->n++;
    store_charge(s, e->tenant, store_entry_bytes(e));
}

static void store_free_entry(store_entry *e) {
    if (e != NULL) {
        mem_free(e->id);
        mem_free(e->object);
        mem_free(e);
    }
}

static void store_remove(response_store *s, store_entry *e) {
    store_entry **at = store_bucket(s, (str){e->id, e->n_id});
    while (*at != e) {
        at = &(*at)->next_in_bucket;
    }
    *at = e->next_in_bucket;
    *(e->before != NULL ? &e->before->after : &s->first) = e->after;
    *(e->after != NULL ? &e->after->before : &s->last) = e->before;
    store_unlink_use(e);
    e->tenant->n_running -= e->in_progress;
    s->n--;
    store_drop_turn(s, e->turn);
    store_discharge(s, e->tenant, store_entry_bytes(e));
    store_free_entry(e);
}

/* Removes responses over the maximum age, except those in progress. */
static void store_expire(response_store *s, int64_t now_us) {
    for (store_entry *e = s->first, *next; e != NULL && now_us - e->kept_us > s->max_age_us; e = next) {
        next = e->after;
        if (!e->in_progress) {
            store_remove(s, e);
        }
    }
}

/* The response of this tenant with this id; NULL: none. */
static store_entry *store_find(response_store *s, const char *tenant, str id, int64_t now_us) {
    store_expire(s, now_us);
    store_entry *e = *store_bucket(s, id);
    while (e != NULL && (!str_eq((str){e->id, e->n_id}, id) || strcmp(e->tenant->name, tenant) != 0)) {
        e = e->next_in_bucket;
    }
    return e;
}

/* ---- the limit in bytes ---- */

/* The tenant's least recently used complete response; NULL: none. */
static store_entry *store_unused(const store_tenant *t) {
    store_entry *e = t->oldest;
    while (e != NULL && e->in_progress) {
        e = e->newer;
    }
    return e;
}

static void store_evict(response_store *s) {
    while (s->n_bytes > s->max_bytes) {
        store_entry *victim = NULL;
        for (store_tenant *t = s->tenants; t != NULL; t = t->next) {
            store_entry *e = store_unused(t);
            bool is_larger = victim == NULL || t->n_bytes > victim->tenant->n_bytes;
            victim = e != NULL && is_larger ? e : victim;
        }
        if (victim == NULL) {
            return;
        }
        store_remove(s, victim);
    }
}

/* ---- keeping ---- */

static store_tenant *store_tenant_of(response_store *s, const char *name) {
    store_tenant *t = s->tenants;
    while (t != NULL && strcmp(t->name, name) != 0) {
        t = t->next;
    }
    if (t == NULL && strlen(name) < sizeof t->name && (t = mem_new(1, sizeof *t)) != NULL) {
        memcpy(t->name, name, strlen(name) + 1);
        t->next = s->tenants;
        s->tenants = t;
    }
    return t;
}

/* Doubles the buckets if there are fewer than responses. */
static void store_grow(response_store *s) {
    size_t n = 2 * s->n_buckets;
    store_entry **buckets = (size_t)s->n < s->n_buckets ? NULL : mem_new(n, sizeof(store_entry *));
    if (buckets == NULL) {
        return; /* not needed, or out of memory, which only makes lookups slower */
    }
    mem_free(s->buckets);
    s->buckets = buckets;
    s->n_buckets = n;
    for (store_entry *e = s->first; e != NULL; e = e->after) {
        store_entry **bucket = store_bucket(s, (str){e->id, e->n_id});
        e->next_in_bucket = *bucket;
        *bucket = e;
    }
}

static response_turn *store_new_turn(const response_to_keep *r) {
    response_turn *t = mem_new(1, sizeof *t);
    size_t line_end = r->input.n > 0 && r->output.n > 0;
    char *lines = mem_new(r->input.n + r->output.n + 1, 1);
    if (t == NULL || lines == NULL) {
        mem_free(t);
        mem_free(lines);
        return NULL;
    }
    mem_copy(lines, r->input.p, r->input.n);
    if (line_end > 0) {
        lines[r->input.n] = '\n';
    }
    mem_copy(lines + r->input.n + line_end, r->output.p, r->output.n);
    *t = (response_turn){
        .n_refs = 1, .lines = lines, .n = r->input.n + line_end + r->output.n, .n_input = r->input.n};
    return t;
}

static store_entry *store_new_entry(const response_to_keep *r, int64_t now_us) {
    store_entry *e = mem_new(1, sizeof *e);
    response_turn *turn = store_new_turn(r);
    size_t n_id = strlen(r->id);
    char *id = mem_dup(r->id, n_id), *object = mem_dup(r->object.p, r->object.n);
    if (e == NULL || turn == NULL || id == NULL || object == NULL) {
        mem_free(e);
        mem_free(id);
        mem_free(object);
        if (turn != NULL) {
            mem_free(turn->lines);
            mem_free(turn);
        }
        return NULL;
    }
    *e = (store_entry){.id = id,
                       .object = object,
                       .n_id = n_id,
                       .n_object = r->object.n,
                       .turn = turn,
                       .kept_us = now_us,
                       .in_progress = r->in_progress};
    return e;
}

/* Adds a new entry to its tenant, which is made if necessary. */
static quire_err store_add(response_store *s, const response_to_keep *r, store_entry *e) {
    store_tenant *t = store_tenant_of(s, r->tenant);
    TRY(mem_check(t));
    e->tenant = e->turn->tenant = t;
    e->turn->parent = r->parent;
    if (r->parent != NULL) {
        r->parent->n_refs++;
    }
    store_charge(s, t, store_turn_bytes(e->turn));
    store_link(s, e);
    return QUIRE_OK;
}

quire_err response_store_keep(response_store *s, const response_to_keep *r, int64_t now_us) {
    if (s->max_bytes == 0) {
        return QUIRE_OK;
    }
    store_entry *e = store_new_entry(r, now_us);
    TRY(mem_check(e));
    pthread_mutex_lock(&s->lock);
    store_entry *old = store_find(s, r->tenant, str_of(r->id), now_us);
    bool is_over = old != NULL ? !old->in_progress : r->replaces;
    quire_err error = is_over ? QUIRE_OK : store_add(s, r, e);
    if (is_over || error != QUIRE_OK) {
        mem_free(e->turn->lines);
        mem_free(e->turn);
        store_free_entry(e);
    } else {
        if (old != NULL) {
            store_remove(s, old);
        }
        store_evict(s);
        store_grow(s);
    }
    pthread_mutex_unlock(&s->lock);
    return error;
}

/* ---- reading ---- */

static quire_err store_read(response_store *s, const char *tenant, str id, int64_t now_us, strbuf *out,
                            quire_err (*write)(const store_entry *e, strbuf *out)) {
    pthread_mutex_lock(&s->lock);
    store_entry *e = store_find(s, tenant, id, now_us);
    quire_err error = e != NULL ? write(e, out) : QUIRE_NOT_FOUND;
    if (e != NULL) {
        store_unlink_use(e);
        store_link_use(e);
    }
    pthread_mutex_unlock(&s->lock);
    return error;
}

static quire_err store_write_object(const store_entry *e, strbuf *out) {
    return strbuf_add(out, e->object, e->n_object);
}

static quire_err store_write_input(const store_entry *e, strbuf *out) {
    return strbuf_add(out, e->turn->lines, e->turn->n_input);
}

/* Appends the items of an entry's turns; copies from the last turn to the first, filling
 * the text from its end. */
static quire_err store_write_history(const store_entry *e, strbuf *out) {
    size_t n = 0, begin = out->n;
    for (const response_turn *t = e->turn; t != NULL; t = t->parent) {
        n += t->n > 0 ? t->n + 1 : 0;
    }
    if (n == 0) {
        return QUIRE_OK;
    }
    TRY(strbuf_reserve(out, n));
    char *end = out->p + begin + n; /* a newline follows each turn but the last */
    for (const response_turn *t = e->turn; t != NULL; t = t->parent) {
        if (t->n > 0) {
            *--end = '\n';
            end -= t->n;
            memcpy(end, t->lines, t->n);
        }
    }
    out->n = begin + n - 1;
    out->p[out->n] = '\0';
    return QUIRE_OK;
}

quire_err response_store_object(response_store *s, const char *tenant, str id, int64_t now_us, strbuf *out) {
    return store_read(s, tenant, id, now_us, out, store_write_object);
}

quire_err response_store_input(response_store *s, const char *tenant, str id, int64_t now_us, strbuf *out) {
    return store_read(s, tenant, id, now_us, out, store_write_input);
}

quire_err response_store_history(response_store *s, const char *tenant, str id, int64_t now_us, strbuf *out) {
    return store_read(s, tenant, id, now_us, out, store_write_history);
}

quire_err response_store_end(response_store *s, const char *tenant, str id, str object, int64_t now_us) {
    char *copy = mem_dup(object.p, object.n);
    TRY(mem_check(copy));
    pthread_mutex_lock(&s->lock);
    store_entry *e = store_find(s, tenant, id, now_us);
    bool is = e != NULL && e->in_progress;
    if (is) {
        store_charge(s, e->tenant, object.n); /* the tenant must outlive the old entry */
        store_discharge(s, e->tenant, e->n_object);
        mem_free(e->object);
        e->object = copy;
        e->n_object = object.n;
        e->in_progress = false;
        e->tenant->n_running--;
        store_evict(s);
    } else {
        mem_free(copy);
    }
    pthread_mutex_unlock(&s->lock);
    return is ? QUIRE_OK : QUIRE_NOT_FOUND;
}

bool response_store_in_progress(response_store *s, const char *tenant, str id, int64_t now_us) {
    pthread_mutex_lock(&s->lock);
    const store_entry *e = store_find(s, tenant, id, now_us);
    bool is = e != NULL && e->in_progress;
    pthread_mutex_unlock(&s->lock);
    return is;
}

int64_t response_store_running(response_store *s, const char *tenant) {
    pthread_mutex_lock(&s->lock);
    const store_tenant *t = s->tenants;
    while (t != NULL && strcmp(t->name, tenant) != 0) {
        t = t->next;
    }
    int64_t n = t != NULL ? t->n_running : 0;
    pthread_mutex_unlock(&s->lock);
    return n;
}

bool response_store_delete(response_store *s, const char *tenant, str id, int64_t now_us) {
    pthread_mutex_lock(&s->lock);
    store_entry *e = store_find(s, tenant, id, now_us);
    if (e != NULL) {
        store_remove(s, e);
    }
    pthread_mutex_unlock(&s->lock);
    return e != NULL;
}

response_turn *response_store_turn(response_store *s, const char *tenant, str id, int64_t now_us) {
    pthread_mutex_lock(&s->lock);
    const store_entry *e = store_find(s, tenant, id, now_us);
    response_turn *t = e != NULL ? e->turn : NULL;
    if (t != NULL) {
        t->n_refs++;
    }
    pthread_mutex_unlock(&s->lock);
    return t;
}

response_store_counts response_store_count(response_store *s) {
    pthread_mutex_lock(&s->lock);
    response_store_counts counts = {s->n, (int64_t)s->n_bytes};
    pthread_mutex_unlock(&s->lock);
    return counts;
}

/* ---- opening and closing ---- */

quire_err response_store_open(size_t max_bytes, int64_t max_age_us, response_store **out) {
    response_store *s = mem_new(1, sizeof *s);
    store_entry **buckets = mem_new(FIRST_BUCKETS, sizeof(store_entry *));
    *out = NULL;
    if (s == NULL || buckets == NULL) {
        mem_free(s);
        mem_free(buckets);
        return QUIRE_NO_MEMORY;
    }
    pthread_mutex_init(&s->lock, NULL);
    s->max_bytes = max_bytes;
    s->max_age_us = max_age_us;
    s->buckets = buckets;
    s->n_buckets = FIRST_BUCKETS;
    *out = s;
    return QUIRE_OK;
}

void response_store_close(response_store *s) {
    if (s == NULL) {
        return;
    }
    while (s->first != NULL) {
        store_remove(s, s->first);
    }
    assert(s->tenants == NULL && s->n_bytes == 0);
    pthread_mutex_destroy(&s->lock);
    mem_free(s->buckets);
    mem_free(s);
}
