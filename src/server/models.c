#include "server/models.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"

/* time for waiting requests to take a loaded model, before it may leave for another */
#define FRESH_US        1000000
#define PROGRESS_PARTS  1000000
#define NO_ROOM_RETRY_S 10 /* Retry-After if a model has no room beside those in use */

struct models {
    models_options options;
    pthread_mutex_t lock;
    pthread_cond_t work; /* signalled when the thread may have work */
    pthread_t thread;
    bool has_thread, stops;
    served_model *list; /* [n] */
    int32_t n;
    atomic_int sleep; /* a sleep_level; written under the lock */
    bool are_caches_dropped;
    /* load_progress: millionths of the weights loaded so far */
    atomic_int load_progress;
    atomic_bool load_ends;
};

const char *model_state_name(model_state s) {
    static const char *const names[] = {"unloaded", "loading", "loaded", "unloading"};
    return names[s];
}

/* ---- the thread ---- */

/* Whether a model may be unloaded without a command once no request holds it. */
static bool model_may_leave(const served_model *m) {
    return m->number > 0 && m->state == MODEL_READY && !m->is_pinned;
}

static bool model_is_idle(const served_model *m) {
    return model_may_leave(m) && m->n_holds == 0;
}

/* Number of loaded models, without pinned ones. */
static int32_t models_n_loaded(const models *all) {
    int32_t n = 0;
    for (int32_t i = 1; i < all->n; i++) {
        const served_model *m = &all->list[i];
        n += !m->is_pinned && (m->state == MODEL_READY || m->state == MODEL_LEAVING);
    }
    return n;
}

/* Whether requests that waited for a model may still be about to take it. */
static bool model_is_fresh(const served_model *m) {
    return m->is_fresh && clock_us() - m->ready_us < FRESH_US;
}

/* The least recently used idle model; NULL: none is idle. */
static served_model *models_least_used(models *all) {
    served_model *least = NULL;
    for (int32_t i = 1; i < all->n; i++) {
        served_model *m = &all->list[i];
        least = model_is_idle(m) && !model_is_fresh(m) && (least == NULL || m->used_us < least->used_us)
                    ? m
                    : least;
    }
    return least;
}

/* The model that was loaded longest ago, in use or not; NULL: none. If it leaves, new
 * requests for it wait, and it goes when its present ones end; otherwise a model whose
 * requests overlap without a pause would stay for ever. */
static served_model *models_first_ready(models *all) {
    served_model *first = NULL;
    for (int32_t i = 1; i < all->n; i++) {
        served_model *m = &all->list[i];
        first = model_may_leave(m) && (first == NULL || m->ready_us < first->ready_us) ? m : first;
    }
    return first;
}

/* Time when a model was last loaded for a tenant; 0: never. */
static int64_t models_turn_of(const models *all, const char *tenant) {
    int64_t last_us = 0;
    for (int32_t i = 1; i < all->n; i++) {
        const served_model *m = &all->list[i];
        last_us = m->ready_us > last_us && strcmp(m->loaded_for, tenant) == 0 ? m->ready_us : last_us;
    }
    return last_us;
}

/* The model to load next: the first one wanted by the tenant whose last turn is longest
 * ago. NULL: none is wanted. */
static served_model *models_first_wanted(models *all) {
    served_model *first = NULL;
    int64_t first_us = 0;
    for (int32_t i = 1; i < all->n; i++) {
        served_model *m = &all->list[i];
        if (m->state != MODEL_LOADING) {
            continue;
        }
        const int64_t turn_us = models_turn_of(all, m->wanted_for);
        if (first == NULL || turn_us < first_us || (turn_us == first_us && m->wanted_us < first->wanted_us)) {
            first = m;
            first_us = turn_us;
        }
    }
    return first;
}

/* Calls `changed` with the lock released. */
static void models_tell(models *all) {
    pthread_mutex_unlock(&all->lock);
    all->options.changed(all->options.context);
    pthread_mutex_lock(&all->lock);
}

static void model_leave(models *all, served_model *m) {
    m->state = MODEL_LEAVING;
    m->is_wanted = false;
    models_tell(all);
}

/* Closes the engine of a model that no request holds. */
static void model_unload(models *all, served_model *m) {
    quire_engine *e = m->engine;
    pthread_mutex_unlock(&all->lock);
    quire_engine_close(e);
    log_line(LOG_INFO, "model %s: unloaded", m->name);
    pthread_mutex_lock(&all->lock);
    m->engine = NULL;
    m->state = m->is_wanted ? MODEL_LOADING : MODEL_UNLOADED;
    m->is_wanted = false;
    models_tell(all);
}

/* Drops the caches of sleeping models once no request holds a model. The lock is held.
 * Returns whether it did. */
static bool models_settle(models *all) {
    int32_t n_holds = 0;
    for (int32_t i = 0; i < all->n; i++) {
        n_holds += all->list[i].n_holds;
    }
    if (atomic_load(&all->sleep) == SLEEP_NONE || all->are_caches_dropped || n_holds > 0) {
        return false;
    }
    for (int32_t i = 0; i < all->n; i++) {
        if (all->list[i].state == MODEL_READY) {
            quire_engine_drop_cache(all->list[i].engine);
        }
    }
    all->are_caches_dropped = true;
    return true;
}

/* The quire_options.load_progress callback. Runs at low priority, so it takes no lock. */
static bool models_watch_load(void *user, double part) {
    models *all = user;
    atomic_store(&all->load_progress, (int)(part * PROGRESS_PARTS));
    return !atomic_load(&all->load_ends);
}

/* Opens the engine of a model, with load_progress. */
static quire_err model_open_engine(models *all, const served_model *m, quire_engine **out, quire_error *err) {
    quire_options own = *m->options;
    own.load_progress = models_watch_load;
    own.load_progress_user = all;
    TRY(quire_engine_open_beside(all->list[0].engine, &own, out, err));
    all->options.opened(all->options.context, *out);
    return QUIRE_OK;
}

/* Reads the facts of a model that is not loaded. */
static void model_read_facts(models *all, served_model *m) {
    quire_error err = {0};
    char *text = NULL;
    pthread_mutex_unlock(&all->lock);
    quire_err r = quire_inspect(m->options, true, &text, &err);
    pthread_mutex_lock(&all->lock);
    quire_free(m->facts);
    m->facts = text;
    m->wants_facts = false;
    if (r != QUIRE_OK) {
        m->n_failures++;
        m->error = err;
    }
    models_tell(all);
}

/* Records the facts of a loaded model, for lists. */
static void model_note(served_model *m) {
    const quire_info *i = quire_engine_info(m->engine);
    m->max_model_len = i->max_model_len;
    m->gives_rows = i->has_vocabulary && i->end_tokens == NULL;
}

/* Records why a model could not be loaded. */
static void model_note_failure(const models *all, served_model *m, quire_err r, const quire_error *why) {
    m->n_failures++;
    m->error = *why;
    m->error.code = r;
    if (r == QUIRE_NO_MEMORY && models_n_loaded(all) > 0) { /* the models in use take the memory */
        (void)err_set(&m->error, QUIRE_BUSY, -1,
                      "model %s does not fit into memory with the models in use: %s", m->name, why->message);
        m->error.retry_after_s = NO_ROOM_RETRY_S;
    }
    log_line(LOG_WARN, "model %s: cannot be loaded: %s", m->name, m->error.message);
}

/* Loads a model. If memory is short, an idle one leaves first, and it is retried. */
static void model_load(models *all, served_model *m) {
    quire_engine *e = NULL;
    quire_error err = {0};
    int64_t began_us = clock_us();
    m->is_opening = true;
    m->is_cancelled = false;
    atomic_store(&all->load_progress, 0);
    atomic_store(&all->load_ends, all->stops);
    pthread_mutex_unlock(&all->lock);
    quire_err r = model_open_engine(all, m, &e, &err);
    pthread_mutex_lock(&all->lock);
    m->is_opening = false;
    if (r != QUIRE_OK && (m->is_cancelled || r == QUIRE_CANCELLED)) { /* the model may be wanted again */
        m->state = m->is_cancelled ? MODEL_UNLOADED : MODEL_LOADING;
        models_tell(all);
        return;
    }
    served_model *least = r == QUIRE_NO_MEMORY ? models_least_used(all) : NULL;
    m->needs_room = least != NULL;
    if (least != NULL) {
        model_leave(all, least);
        return;
    }
    m->load_us = clock_us() - began_us;
    m->used_us = m->ready_us = clock_us();
    m->state = r != QUIRE_OK ? MODEL_UNLOADED : m->is_cancelled ? MODEL_LEAVING : MODEL_READY;
    m->is_fresh = true;
    m->engine = e;
    m->keep_us = all->options.idle_us > 0 ? all->options.idle_us : MODEL_STAYS;
    memcpy(m->loaded_for, m->wanted_for, sizeof m->loaded_for);
    if (r == QUIRE_OK) {
        model_note(m);
        quire_free(m->facts); /* the file may be replaced before the next load */
        m->facts = NULL;
        log_line(LOG_INFO, "model %s: loaded in %.3f s", m->name, (double)m->load_us * 1e-6);
    } else {
        model_note_failure(all, m, r, &err);
    }
    models_tell(all);
}

/* Makes a model leave, since the maximum is loaded and `loading` waits. False: all are in
 * use and `loading` has not waited long enough; lowers *due_us to when to look again. */
static bool models_make_place(models *all, const served_model *loading, int64_t *due_us) {
    served_model *idle = models_least_used(all), *first = models_first_ready(all);
    const int64_t now_us = clock_us();
    int64_t until_us = now_us + FRESH_US;
    if (first != NULL) {
        const int64_t since_us = first->ready_us > loading->wanted_us ? first->ready_us : loading->wanted_us;
        until_us = since_us + all->options.patience_us;
    }
    served_model *leaving = idle != NULL ? idle : now_us >= until_us ? first : NULL;
    if (leaving != NULL) {
        model_leave(all, leaving);
    }
    const int64_t look_us = until_us < now_us + FRESH_US ? until_us : now_us + FRESH_US;
    *due_us = look_us < *due_us ? look_us : *due_us;
    return leaving != NULL;
}

/* Does one thing that is due. False: nothing is; *due_us: when something may be
 * (clock_us), or INT64_MAX. Called with the lock held, which it releases meanwhile. */
static bool models_do_one(models *all, int64_t *due_us) {
    const models_options *o = &all->options;
    bool some_leave = false;
    *due_us = INT64_MAX;
    for (int32_t i = 1; i < all->n; i++) {
        if (all->list[i].wants_facts) {
            model_read_facts(all, &all->list[i]);
            return true;
        }
    }
    for (int32_t i = 1; i < all->n; i++) {
        served_model *m = &all->list[i];
        if (m->state == MODEL_LEAVING && m->n_holds == 0 && m->n_queues == 0) {
            model_unload(all, m);
            return true;
        }
        some_leave = some_leave || m->state == MODEL_LEAVING;
        if (model_is_idle(m) && m->keep_us != MODEL_STAYS) {
            const int64_t leaves_us = m->used_us + m->keep_us;
            if (clock_us() >= leaves_us) {
                model_leave(all, m);
                return true;
            }
            *due_us = leaves_us < *due_us ? leaves_us : *due_us;
        }
    }
    served_model *loading = models_first_wanted(all);
    const bool is_full =
        loading != NULL && !loading->is_pinned && o->max_loaded > 0 && models_n_loaded(all) >= o->max_loaded;
    if (loading == NULL || (some_leave && (is_full || loading->needs_room))) {
        return false;
    }
    if (is_full) {
        return models_make_place(all, loading, due_us);
    }
    model_load(all, loading);
    return true;
}

static void *models_run(void *arg) {
    models *all = arg;
    pthread_mutex_lock(&all->lock);
    while (!all->stops) {
        int64_t due_us;
        if (models_do_one(all, &due_us)) {
            continue;
        }
        if (due_us == INT64_MAX) {
            pthread_cond_wait(&all->work, &all->lock);
            continue;
        }
        struct timespec at;
        clock_gettime(CLOCK_REALTIME, &at);
        const int64_t wait_us = due_us > clock_us() ? due_us - clock_us() : 0;
        const int64_t ns = at.tv_nsec + wait_us % 1000000 * 1000;
        at.tv_sec += (time_t)(wait_us / 1000000 + ns / 1000000000);
        at.tv_nsec = (long)(ns % 1000000000);
        pthread_cond_timedwait(&all->work, &all->lock, &at);
    }
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

/* Requests the load of a model for a tenant, now or after it has left. The lock is
 * held. */
static bool model_want(models *all, served_model *m, const char *tenant) {
    const bool is_new = m->state == MODEL_UNLOADED || (m->state == MODEL_LEAVING && !m->is_wanted);
    m->wanted_us = is_new ? clock_us() : m->wanted_us;
    m->is_wanted = m->is_wanted || m->state == MODEL_LEAVING;
    m->state = m->state == MODEL_UNLOADED ? MODEL_LOADING : m->state;
    if (m->is_cancelled) {
        m->is_cancelled = false;
        atomic_store(&all->load_ends, all->stops);
    }
    /* the load counts for the tenant whose turn comes first */
    if (is_new || models_turn_of(all, tenant) < models_turn_of(all, m->wanted_for)) {
        (void)snprintf(m->wanted_for, sizeof m->wanted_for, "%s", tenant);
    }
    pthread_cond_signal(&all->work);
    return is_new;
}

/* Requests the load of all pinned models. The lock is held, or no thread runs. */
static void models_want_pinned(models *all) {
    for (int32_t i = 1; i < all->n; i++) {
        served_model *m = &all->list[i];
        if (m->is_pinned && m->state != MODEL_READY) {
            (void)model_want(all, m, "");
        }
    }
}

/* ---- opening and closing ---- */

quire_err models_open(const models_options *o, models **out) {
    models *all = mem_new(1, sizeof *all);
    *out = NULL;
    TRY(mem_check(all));
    all->options = *o;
    all->n = o->n_others + 1;
    all->list = mem_new((size_t)all->n, sizeof *all->list);
    if (all->list == NULL) {
        mem_free(all);
        return QUIRE_NO_MEMORY;
    }
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->work, NULL);
    for (int32_t i = 1; i < all->n; i++) {
        const model_spec *spec = &o->others[i - 1];
        all->list[i] = (served_model){
            .name = spec->name, .options = spec->options, .number = i, .is_pinned = spec->is_pinned};
    }
    *out = all;
    return QUIRE_OK;
}

void models_attach(models *all, const char *name, quire_engine *main) {
    all->list[0] = (served_model){.name = name, .engine = main, .state = MODEL_READY};
    model_note(&all->list[0]);
}

quire_err models_start(models *all) {
    models_want_pinned(all);
    all->has_thread = all->n > 1 && pthread_create(&all->thread, NULL, models_run, all) == 0;
    return all->has_thread || all->n == 1 ? QUIRE_OK : QUIRE_NO_MEMORY;
}

void models_stop(models *all) {
    if (all == NULL || !all->has_thread) {
        return;
    }
    pthread_mutex_lock(&all->lock);
    all->stops = true;
    atomic_store(&all->load_ends, true);
    pthread_cond_signal(&all->work);
    pthread_mutex_unlock(&all->lock);
    pthread_join(all->thread, NULL);
    all->has_thread = false;
}

void models_close(models *all) {
    if (all == NULL) {
        return;
    }
    models_stop(all);
    for (int32_t i = 1; i < all->n; i++) {
        assert(all->list[i].n_holds == 0 && all->list[i].n_queues == 0);
        quire_engine_close(all->list[i].engine);
        quire_free(all->list[i].facts);
    }
    pthread_cond_destroy(&all->work);
    pthread_mutex_destroy(&all->lock);
    mem_free(all->list);
    mem_free(all);
}

int32_t models_count(const models *all) {
    return all->n;
}

served_model *models_at(models *all, int32_t number) {
    assert(number >= 0 && number < all->n);
    return &all->list[number];
}

served_model *models_find(models *all, str name) {
    static const char latest[] = ":latest";
    const size_t tag = sizeof latest - 1;
    const bool is_tagged = name.n > tag && memcmp(name.p + name.n - tag, latest, tag) == 0;
    for (int32_t i = 1; i < all->n; i++) {
        const char *own = all->list[i].name;
        if (str_is(name, own) || (is_tagged && str_is((str){name.p, name.n - tag}, own))) {
            return &all->list[i];
        }
    }
    return NULL;
}

/* ---- holds ---- */

bool models_take(models *all, served_model *m, const char *tenant, model_ticket *t) {
    pthread_mutex_lock(&all->lock);
    const bool is_there = m->state == MODEL_READY;
    *t = (model_ticket){
        .found = m->state, .is_asleep = atomic_load(&all->sleep) != SLEEP_NONE, .n_failures = m->n_failures};
    if (is_there) {
        m->n_holds++;
        m->is_fresh = false;
    } else if (!t->is_asleep) {
        (void)model_want(all, m, tenant);
    }
    pthread_mutex_unlock(&all->lock);
    return is_there;
}

bool models_failed(models *all, const served_model *m, const model_ticket *t, quire_error *err) {
    pthread_mutex_lock(&all->lock);
    const bool has_failed = m->n_failures != t->n_failures;
    if (has_failed) {
        *err = m->error;
    }
    pthread_mutex_unlock(&all->lock);
    return has_failed;
}

bool models_facts(models *all, served_model *m, model_ticket *t, strbuf *out) {
    pthread_mutex_lock(&all->lock);
    const bool are_there = m->facts != NULL && strbuf_add_str(out, m->facts) == QUIRE_OK;
    *t = (model_ticket){.found = m->state, .n_failures = m->n_failures};
    m->wants_facts = !are_there;
    pthread_cond_signal(&all->work);
    pthread_mutex_unlock(&all->lock);
    return are_there;
}

void models_hold(models *all, served_model *m) {
    pthread_mutex_lock(&all->lock);
    assert(m->n_holds > 0);
    m->n_holds++;
    pthread_mutex_unlock(&all->lock);
}

/* Drops a hold. used_us: when the use ended; 0: the hold was no use. */
static void model_give_up(models *all, served_model *m, int64_t used_us) {
    pthread_mutex_lock(&all->lock);
    assert(m->n_holds > 0);
    m->n_holds--;
    m->used_us = used_us > 0 ? used_us : m->used_us;
    if (m->n_holds == 0) {
        pthread_cond_signal(&all->work);
    }
    const bool leaves = m->state == MODEL_LEAVING && m->n_holds == 0, settles = models_settle(all);
    pthread_mutex_unlock(&all->lock);
    if (leaves || settles) {
        all->options.changed(all->options.context);
    }
}

void models_drop(models *all, served_model *m) {
    model_give_up(all, m, clock_us());
}

bool models_visit(models *all, served_model *m) {
    pthread_mutex_lock(&all->lock);
    const bool is_leaving = m->state == MODEL_LEAVING && m->n_holds + m->n_queues > 0;
    const bool is_there = m->state == MODEL_READY || is_leaving;
    m->n_holds += is_there;
    pthread_mutex_unlock(&all->lock);
    return is_there;
}

void models_end_visit(models *all, served_model *m) {
    model_give_up(all, m, 0);
}

void models_count_queue(models *all, served_model *m, int32_t n) {
    pthread_mutex_lock(&all->lock);
    m->n_queues += n;
    assert(m->n_queues >= 0);
    pthread_cond_signal(&all->work);
    pthread_mutex_unlock(&all->lock);
}

bool models_leaves(models *all, const served_model *m) {
    pthread_mutex_lock(&all->lock);
    const bool leaves = m->state == MODEL_LEAVING;
    pthread_mutex_unlock(&all->lock);
    return leaves;
}

/* ---- by command ---- */

bool models_load(models *all, served_model *m) {
    pthread_mutex_lock(&all->lock);
    const bool is_new = atomic_load(&all->sleep) == SLEEP_NONE && model_want(all, m, "");
    pthread_mutex_unlock(&all->lock);
    return is_new;
}

bool models_unload(models *all, served_model *m) {
    pthread_mutex_lock(&all->lock);
    const bool is_there = m->number > 0 && (m->state == MODEL_READY || m->is_wanted);
    if (is_there) {
        m->state = MODEL_LEAVING;
        m->is_wanted = false;
        pthread_cond_signal(&all->work);
    }
    pthread_mutex_unlock(&all->lock);
    if (is_there) {
        all->options.changed(all->options.context);
    }
    return is_there;
}

void models_keep(models *all, served_model *m, int64_t keep_us) {
    pthread_mutex_lock(&all->lock);
    m->keep_us = keep_us;
    pthread_cond_signal(&all->work);
    pthread_mutex_unlock(&all->lock);
}

/* Makes a model leave for a sleep, or cancels its load. */
static void model_put_away(models *all, served_model *m) {
    m->is_wanted = false;
    m->is_cancelled = m->is_opening;
    if (m->is_opening) {
        atomic_store(&all->load_ends, true);
    }
    if (m->state == MODEL_READY) {
        m->state = MODEL_LEAVING;
    } else if (m->state == MODEL_LOADING && !m->is_opening) {
        m->state = MODEL_UNLOADED;
    }
}

void models_sleep(models *all, sleep_level level) {
    pthread_mutex_lock(&all->lock);
    if (level > models_sleeping(all)) {
        atomic_store(&all->sleep, level);
    }
    for (int32_t i = 1; i < all->n && models_sleeping(all) == SLEEP_OTHERS; i++) {
        model_put_away(all, &all->list[i]);
    }
    (void)models_settle(all);
    pthread_cond_signal(&all->work);
    pthread_mutex_unlock(&all->lock);
    all->options.changed(all->options.context);
}

void models_wake_up(models *all) {
    pthread_mutex_lock(&all->lock);
    if (models_sleeping(all) != SLEEP_NONE) {
        atomic_store(&all->sleep, SLEEP_NONE);
        all->are_caches_dropped = false;
        models_want_pinned(all);
    }
    pthread_mutex_unlock(&all->lock);
    all->options.changed(all->options.context);
}

sleep_level models_sleeping(const models *all) {
    return (sleep_level)atomic_load(&all->sleep);
}

bool models_are_at_rest(models *all) {
    pthread_mutex_lock(&all->lock);
    const sleep_level level = models_sleeping(all);
    bool rest = level != SLEEP_NONE && all->are_caches_dropped;
    for (int32_t i = 1; i < all->n && level == SLEEP_OTHERS; i++) {
        rest = rest && all->list[i].state == MODEL_UNLOADED;
    }
    pthread_mutex_unlock(&all->lock);
    return rest;
}

served_model models_look(models *all, const served_model *m) {
    pthread_mutex_lock(&all->lock);
    served_model copy = *m;
    copy.progress = m->is_opening ? (double)atomic_load(&all->load_progress) / PROGRESS_PARTS : 0.0;
    pthread_mutex_unlock(&all->lock);
    copy.facts = NULL;
    return copy;
}
