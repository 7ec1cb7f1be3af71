/* The LoRA adapter functions of quire.h: load, unload, list. */
#include <pthread.h>
#include <string.h>

#include "api/quire_engine.h"
#include "base/mem.h"

static adapter_store *store_of(const quire_engine *e) {
    return e->parts.adapters.store;
}

static quire_err need_store(const quire_engine *e, quire_error *err) {
    return store_of(e) != NULL ? QUIRE_OK
                               : err_set(err, QUIRE_UNSUPPORTED, -1,
                                         "this engine was opened without adapters (--enable-lora)");
}

/* ---- load and unload ---- */

/* An adapter_want whose answer a thread waits for. */
typedef struct awaited_want {
    adapter_want want; /* first member */
    pthread_mutex_t lock;
    pthread_cond_t answered;
    bool is_answered;
} awaited_want;

static void on_answer(adapter_want *w) {
    awaited_want *a = (awaited_want *)(void *)w;
    pthread_mutex_lock(&a->lock);
    a->is_answered = true;
    pthread_cond_signal(&a->answered);
    pthread_mutex_unlock(&a->lock);
}

quire_err quire_adapter_load(quire_engine *e, const char *name, const char *path, bool in_place,
                             quire_error *err) {
    TRY(need_store(e, err));
    awaited_want a = {.want = {.ready = on_answer}};
    pthread_mutex_init(&a.lock, NULL);
    pthread_cond_init(&a.answered, NULL);
    bool at_once = adapter_store_load(store_of(e), name, path, in_place, &a.want);
    pthread_mutex_lock(&a.lock);
    while (!at_once && !a.is_answered) {
        pthread_cond_wait(&a.answered, &a.lock);
    }
    pthread_mutex_unlock(&a.lock);
    pthread_cond_destroy(&a.answered);
    pthread_mutex_destroy(&a.lock);
    adapter_ref_drop(a.want.ref);
    return a.want.error.code == QUIRE_OK
               ? QUIRE_OK
               : err_set(err, a.want.error.code, a.want.error.position, "%s", a.want.error.message);
}

quire_err quire_adapter_unload(quire_engine *e, const char *name, quire_error *err) {
    TRY(need_store(e, err));
    return adapter_store_remove(store_of(e), name, err);
}

quire_err quire_adapter_scale(quire_engine *e, int32_t number, float scale, quire_error *err) {
    TRY(need_store(e, err));
    return adapter_store_scale(store_of(e), number, scale, err);
}

bool quire_adapter_known(const quire_engine *e, const char *name) {
    const adapter_source *from = &e->streams.adapters;
    return from->knows != NULL && from->knows(from->context, name);
}

/* ---- lists ---- */

/* A list that is written in two passes: the first counts its size, the second writes it
 * to one block: pointers, then structs, then texts. */
typedef struct adapter_list {
    size_t n, n_text;      /* adapters and bytes of text, as counted by the first pass */
    size_t n_written;      /* at most n: adapters may have been added since counting */
    quire_adapter **block; /* NULL: counting pass */
    char *text;
    size_t text_left;
    int64_t steps;
    int32_t number;
} adapter_list;

static void count_one(void *context, const adapter_about *a) {
    adapter_list *l = context;
    l->n++;
    l->n_text += strlen(a->name) + strlen(a->path) + 2;
}

static const char *adapters_copy_text(adapter_list *l, const char *text) {
    char *at = l->text;
    size_t n = strlen(text) + 1;
    memcpy(at, text, n);
    l->text += n;
    l->text_left -= n;
    return at;
}

static void write_one(void *context, const adapter_about *a) {
    adapter_list *l = context;
    int32_t number = a->is_listed ? -1 : l->number++;
    if (l->n_written == l->n || strlen(a->name) + strlen(a->path) + 2 > l->text_left) {
        return;
    }
    bool is_used = a->n_holders > 0;
    quire_adapter *out = (quire_adapter *)(void *)(l->block + l->n) + l->n_written;
    l->block[l->n_written++] = out;
    *out = (quire_adapter){.size = sizeof *out,
                           .name = adapters_copy_text(l, a->name),
                           .path = adapters_copy_text(l, a->path),
                           .number = number,
                           .scale = a->scale,
                           .is_loaded = a->is_resident,
                           .is_running = is_used && atomic_load(&a->ref->ran_at) >= l->steps,
                           .is_waiting = is_used && atomic_load(&a->ref->waited_at) >= l->steps,
                           .rank = a->rank,
                           .n_bytes = a->n_bytes,
                           .load_us = a->load_us,
                           .n_requests = atomic_load(&a->ref->n_requests),
                           .prompt_tokens = atomic_load(&a->ref->n_prompt_tokens),
                           .completion_tokens = atomic_load(&a->ref->n_generated)};
}

quire_err quire_adapters(const quire_engine *e, quire_adapter ***list, size_t *n) {
    adapter_list l = {0};
    quire_stats stats;
    *list = NULL;
    *n = 0;
    if (store_of(e) == NULL) {
        return QUIRE_OK;
    }
    adapter_store_visit(store_of(e), count_one, &l);
    if (l.n == 0) {
        return QUIRE_OK;
    }
    size_t heads = l.n * (sizeof *l.block + sizeof(quire_adapter));
    l.block = mem_new(1, heads + l.n_text);
    TRY(mem_check(l.block));
    l.text = (char *)l.block + heads;
    l.text_left = l.n_text;
    engine_stats_read(e->parts.core, &stats);
    l.steps = stats.steps > 0 ? stats.steps : 1;
    adapter_store_visit(store_of(e), write_one, &l);
    *list = l.block;
    *n = l.n_written;
    return QUIRE_OK;
}

void quire_adapter_count(const quire_engine *e, quire_adapter_stats *out) {
    quire_adapter_stats all = {.size = out->size};
    if (store_of(e) != NULL) {
        adapter_bounds b = adapter_store_bounds(store_of(e));
        all.max_running = e->parts.max_adapters;
        all.max_rank = e->parts.adapters.limits.max_rank;
        all.max_loaded = b.max_resident;
        all.n_loaded = b.n_resident;
        all.most_loaded = b.most_resident;
        all.n_bytes = b.n_bytes;
        all.n_loads = b.n_loads;
        all.n_evictions = b.n_evictions;
    }
    memcpy(out, &all, out->size < sizeof all ? out->size : sizeof all);
}
