/* quire_hub_pull: finds a named model in the cache, or downloads it into the cache. */
#include <pthread.h>
#include <sys/statvfs.h>
#include <time.h>

#include "base/mem.h"
#include "file/map.h"
#include "file/not_a_model.h"
#include "hub/hub_choose.h"
#include "hub/hub_fetch.h"
#include "hub/hub_name.h"

#define MAX_ANSWER_BYTES ((size_t)64 << 20)
#define MAX_CONFIG_BYTES (1 << 20)
#define MAX_INDEX_BYTES  ((size_t)256 << 20)
#define RESERVE_BYTES    ((int64_t)16 << 20) /* bytes of disk space to leave free */

typedef struct pull {
    quire_hub_options o;
    hub_name name;
    hub_repo repo;
    hub_listing listing;
    hub_choice choice;
    hub_client *client; /* used by the calling thread only */
    int lock;
    hub_meter meter;
    int32_t *todo; /* [n_todo] files of the listing to fetch */
    int32_t n_todo;
    int64_t total_bytes;
    strbuf others;         /* text of quire_hub_progress.others */
    pthread_mutex_t mutex; /* guards the members below */
    pthread_cond_t ended;
    int32_t next, n_running;
    quire_err code; /* the first failure */
    quire_error error;
} pull;

/* ---- the cache alone ---- */

/* Reads the index file and adds the shards that it names. */
static quire_err add_indexed(pull *x, const char *index_path, quire_error *err) {
    file_map map;
    TRY(file_map_open(index_path, MAX_INDEX_BYTES, &map, err));
    quire_err e = hub_choose_shards(&x->listing, x->name.repo, file_map_text(&map), &x->choice, err);
    file_map_close(&map);
    return e;
}

/* Chooses the model's files from the listing. */
static quire_err hub_pull_choose(pull *x, quire_error *err) {
    return (x->o.is_adapter ? hub_choose_adapter : hub_choose)(&x->listing, x->name.repo, x->name.pick,
                                                               &x->choice, err);
}

/* Lists a snapshot's files and chooses the model's. */
static quire_err choose_cached(pull *x, const char *commit, quire_error *err) {
    strbuf path = {0};
    TRY(hub_repo_list(&x->repo, commit, &x->listing, err));
    quire_err e = hub_pull_choose(x, err);
    if (e == QUIRE_OK && x->choice.index >= 0) {
        TRY_DONE(e, hub_repo_file(&x->repo, commit, HUB_INDEX, &path, err));
        TRY_DONE(e, add_indexed(x, path.p, err));
    }
done:
    strbuf_deinit(&path);
    return e;
}

/* Sets *out to the path with which the chosen model is opened: a file or a directory. */
static quire_err path_of_choice(const pull *x, char **out, quire_error *err) {
    strbuf path = {0};
    const char *first = x->choice.first >= 0 ? x->listing.files[x->choice.first].path : NULL;
    quire_err e = hub_repo_file(&x->repo, x->listing.commit, first, &path, err);
    *out = e == QUIRE_OK ? mem_dup(path.p, path.n) : NULL;
    strbuf_deinit(&path);
    TRY(e);
    return mem_check_for(*out, "a model's path", err);
}

static void hub_pull_forget(pull *x) {
    hub_choice_deinit(&x->choice);
    hub_listing_deinit(&x->listing);
}

/* Finds the model in the cache. A complete one has its weights and, for safetensors, a
 * config and a tokenizer; other programs may have fetched only a part. Offline, an
 * incomplete one is accepted. QUIRE_NOT_FOUND, without a message: it is not in the
 * cache. */
static quire_err find_cached(pull *x, char **path, quire_error *err) {
    char commit[41];
    quire_error why;
    if (!hub_repo_commit(&x->repo, x->name.revision, commit)) {
        return QUIRE_NOT_FOUND;
    }
    quire_err e = choose_cached(x, commit, &why);
    bool is_whole = e == QUIRE_OK && x->choice.has_weights &&
                    (x->choice.first >= 0 || x->o.is_adapter || hub_has_texts(&x->listing));
    if (e == QUIRE_NO_MEMORY) {
        *err = why;
        return e;
    }
    if (e != QUIRE_OK || !(is_whole || x->o.offline)) {
        hub_pull_forget(x);
        return QUIRE_NOT_FOUND;
    }
    hub_repo_touch(&x->repo, commit, x->listing.files[x->choice.files[0]].path);
    return path_of_choice(x, path, err);
}

/* Lists in x->others the quantisations of the model that the cache has. */
static void find_others(pull *x) {
    char commit[41];
    hub_listing l = {.files = NULL};
    if (hub_repo_commit(&x->repo, x->name.revision, commit) &&
        hub_repo_list(&x->repo, commit, &l, NULL) == QUIRE_OK) {
        hub_list_quants(&l, &x->others);
    }
    hub_listing_deinit(&l);
}

/* ---- the hub's list ---- */

/* A sink that collects bytes in memory. Its first member is the hub_sink. */
typedef struct text_sink {
    hub_sink sink;
    strbuf text;
} text_sink;

static quire_err text_restart(hub_sink *s, quire_error *err) {
    (void)err;
    strbuf_clear(&((text_sink *)s)->text);
    s->at = 0;
    return QUIRE_OK;
}

static quire_err text_add(hub_sink *s, const void *p, size_t n, quire_error *err) {
    quire_err e = strbuf_add(&((text_sink *)s)->text, p, n);
    s->at += (int64_t)n;
    return e == QUIRE_OK ? e
                         : err_set(err, e == QUIRE_TOO_LARGE ? QUIRE_BAD_FILE : e, -1,
                                   "a string from the hub is too long");
}

static quire_err write_listing_path(const pull *x, strbuf *out) {
    TRY(strbuf_addf(out, "/api/models/%s/revision/", x->name.repo));
    TRY(hub_escape(str_of(x->name.revision), false, out));
    return strbuf_add_str(out, "?blobs=true");
}

static quire_err get_listing(pull *x, quire_error *err) {
    strbuf path = {0};
    text_sink s = {.sink = {.restart = text_restart, .add = text_add}, .text = {.max = MAX_ANSWER_BYTES}};
    quire_err e = err_set(err, write_listing_path(x, &path), -1, "out of memory for an address");
    const hub_target t = {x->name.repo, "its list of files", path.p, NULL, -1};
    TRY_DONE(e, hub_client_get(x->client, &t, &s.sink, err));
    TRY_DONE(e, hub_listing_parse((str){s.text.p, s.text.n}, x->name.repo, &x->listing, err));
done:
    strbuf_deinit(&s.text);
    strbuf_deinit(&path);
    return e;
}

/* Fetches the index of shards, which names more files to fetch. */
static quire_err get_index(pull *x, quire_error *err) {
    strbuf path = {0};
    const hub_file *f = &x->listing.files[x->choice.index];
    if (!hub_blob_is_there(&x->repo, f)) {
        TRY(hub_fetch(x->client, &x->repo, x->name.repo, x->listing.commit, f, &x->meter, err));
    }
    TRY(hub_repo_blob(&x->repo, f->id, "", &path, err));
    quire_err e = add_indexed(x, path.p, err);
    strbuf_deinit(&path);
    return e;
}

/* Gets a file's text, at most MAX_CONFIG_BYTES, from the cache or the hub. Does not
 * change the cache. */
static quire_err get_text(pull *x, const hub_file *f, strbuf *text, quire_error *err) {
    strbuf path = {0};
    file_map map = {0};
    if (hub_blob_is_there(&x->repo, f)) {
        TRY(hub_repo_blob(&x->repo, f->id, "", &path, err));
        quire_err e = file_map_open(path.p, MAX_CONFIG_BYTES, &map, err);
        strbuf_deinit(&path);
        TRY(e);
        const str all = file_map_text(&map);
        e = strbuf_add(text, all.p, all.n);
        file_map_close(&map);
        return err_set(err, e, -1, "%s: out of memory", f->path);
    }
    TRY(hub_address(x->name.repo, x->listing.commit, f, &path, err));
    text_sink s = {.sink = {.restart = text_restart, .add = text_add}, .text = {.max = MAX_CONFIG_BYTES}};
    const hub_target t = {x->name.repo, f->path, path.p, NULL, f->n_bytes};
    quire_err e = hub_client_get(x->client, &t, &s.sink, err);
    strbuf_deinit(&path);
    *text = s.text;
    return e;
}

/* Refuses, by its config.json, a model whose quantisation Quire does not read, before
 * anything is fetched into the cache. */
static quire_err hub_pull_check_weights(pull *x, quire_error *err) {
    int32_t i = hub_listing_find(&x->listing, str_of("config.json"));
    if (i < 0 || x->choice.first >= 0 || !x->choice.has_weights || x->o.is_adapter ||
        x->listing.files[i].n_bytes > MAX_CONFIG_BYTES) {
        return QUIRE_OK;
    }
    strbuf text = {0};
    quire_err e = get_text(x, &x->listing.files[i], &text, err);
    if (e == QUIRE_OK) {
        json_value *root = json_document((str){text.p, text.n});
        e = foreign_weights_check(root, NULL, x->name.repo, x->listing.base, err);
        json_drop(root);
    }
    strbuf_deinit(&text);
    return e;
}

/* ---- what is to be fetched ---- */

static int64_t sum_up_to_max(int64_t a, int64_t b) {
    return a > INT64_MAX - b ? INT64_MAX : a + b;
}

static quire_err hub_pull_check_room(const pull *x, int64_t bytes, quire_error *err) {
    struct statvfs fs;
    if (statvfs(x->repo.dir, &fs) != 0) {
        return err_set(err, QUIRE_IO, -1, "%s: its free space is unknown", x->repo.dir);
    }
    double room = (double)fs.f_bavail * (double)fs.f_frsize;
    if ((double)bytes + (double)RESERVE_BYTES <= room) {
        return QUIRE_OK;
    }
    return err_set(
        err, QUIRE_NO_ROOM, -1,
        "%s needs %.1f GB more, and %s has %.1f GB free: make room (quire list, quire rm), or name another "
        "directory in HF_HUB_CACHE",
        x->name.repo, (double)bytes / 1e9, x->o.cache, room / 1e9);
}

/* Lists the files whose blobs are missing. */
static quire_err hub_pull_plan(pull *x, quire_error *err) {
    int64_t missing = 0;
    x->todo = mem_new(x->choice.n, sizeof *x->todo);
    TRY(mem_check_for(x->todo, "a list of files", err));
    for (size_t i = 0; i < x->choice.n; i++) {
        const hub_file *f = &x->listing.files[x->choice.files[i]];
        if (!hub_blob_is_there(&x->repo, f)) {
            x->todo[x->n_todo++] = x->choice.files[i];
            x->total_bytes = sum_up_to_max(x->total_bytes, f->n_bytes);
            missing = sum_up_to_max(missing, f->n_bytes - hub_blob_begun(&x->repo, f));
        }
    }
    return missing > 0 ? hub_pull_check_room(x, missing, err) : QUIRE_OK;
}

/* ---- threads ---- */

static void note_failure(pull *x, quire_err e, const quire_error *err) {
    pthread_mutex_lock(&x->mutex);
    if (x->code == QUIRE_OK) {
        x->code = e;
        x->error = *err;
    }
    pthread_mutex_unlock(&x->mutex);
    atomic_store(&x->meter.stop, true);
}

static int32_t take_next(pull *x) {
    pthread_mutex_lock(&x->mutex);
    int32_t i = x->code == QUIRE_OK && x->next < x->n_todo ? x->todo[x->next++] : -1;
    pthread_mutex_unlock(&x->mutex);
    return i;
}

static void *hub_pull_work(void *user) {
    pull *x = user;
    hub_client *c = NULL;
    quire_error err = {.code = QUIRE_OK, .position = -1};
    quire_err e = hub_client_open(&x->o, &x->meter.stop, &c, &err);
    for (int32_t i = 0; e == QUIRE_OK && (i = take_next(x)) >= 0;) {
        e = hub_fetch(c, &x->repo, x->name.repo, x->listing.commit, &x->listing.files[i], &x->meter, &err);
    }
    if (e != QUIRE_OK) {
        note_failure(x, e, &err);
    }
    hub_client_close(c);
    pthread_mutex_lock(&x->mutex);
    x->n_running--;
    pthread_cond_signal(&x->ended);
    pthread_mutex_unlock(&x->mutex);
    return NULL;
}

static void tell(pull *x) {
    if (x->o.progress != NULL) {
        const quire_hub_progress p = {.others = x->others.p,
                                      .bytes = atomic_load(&x->meter.bytes),
                                      .total_bytes = x->total_bytes,
                                      .fetched_bytes = atomic_load(&x->meter.fetched),
                                      .n_files = atomic_load(&x->meter.n_files),
                                      .n_total_files = x->n_todo,
                                      .is_waiting = atomic_load(&x->meter.n_waiting) > 0};
        x->o.progress(x->o.user, &p);
    }
}

/* Waits for all threads, and reports their progress. */
static void wait_for_all(pull *x) {
    pthread_mutex_lock(&x->mutex);
    while (x->n_running > 0) {
        struct timespec until;
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 200000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        (void)pthread_cond_timedwait(&x->ended, &x->mutex, &until);
        pthread_mutex_unlock(&x->mutex);
        tell(x);
        pthread_mutex_lock(&x->mutex);
    }
    pthread_mutex_unlock(&x->mutex);
}

static quire_err fetch_all(pull *x, quire_error *err) {
    pthread_t threads[HUB_MAX_AT_ONCE];
    int32_t most = x->o.n_at_once < x->n_todo ? x->o.n_at_once : x->n_todo, n = 0;
    atomic_store(&x->meter.bytes, 0); /* discards the bytes counted for the index file */
    atomic_store(&x->meter.fetched, 0);
    atomic_store(&x->meter.n_files, 0);
    x->n_running = most;
    while (n < most && pthread_create(&threads[n], NULL, hub_pull_work, x) == 0) {
        n++;
    }
    pthread_mutex_lock(&x->mutex);
    x->n_running -= most - n; /* subtracts the threads that could not be started */
    pthread_mutex_unlock(&x->mutex);
    if (n == 0 && x->n_todo > 0) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "%s: a thread to fetch it could not be started",
                       x->name.repo);
    }
    wait_for_all(x);
    for (int32_t i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
    }
    if (x->code != QUIRE_OK && err != NULL) {
        *err = x->error;
    }
    return x->code;
}

/* ---- all of it ---- */

/* Makes the links, last the one by which the cache finds the model, and then the
 * reference. */
static quire_err link_all(pull *x, quire_error *err) {
    const char *config = x->o.is_adapter ? HUB_ADAPTER_CONFIG : "config.json";
    int32_t last = x->choice.first >= 0 ? x->choice.first : hub_listing_find(&x->listing, str_of(config));
    for (size_t i = 0; i < x->choice.n; i++) {
        int32_t k = x->choice.files[i];
        if (k != last) {
            TRY(hub_repo_link(&x->repo, x->listing.commit, &x->listing.files[k], err));
        }
    }
    if (last >= 0) {
        TRY(hub_repo_link(&x->repo, x->listing.commit, &x->listing.files[last], err));
    }
    TRY(hub_repo_set_ref(&x->repo, x->name.revision, x->listing.commit, err));
    hub_repo_touch(&x->repo, x->listing.commit, x->listing.files[x->choice.files[0]].path);
    return QUIRE_OK;
}

/* Locks the repository against removals. Waits for a removal that is running. */
static quire_err lock_repo(pull *x, quire_error *err) {
    const struct timespec tick = {.tv_nsec = 50000000};
    for (;;) {
        TRY(hub_repo_make(&x->repo, err));
        quire_err e = hub_lock(&x->repo, "quire", HUB_LOCK_SHARED, &x->lock, err);
        if (e != QUIRE_BUSY) {
            TRY(e);
            return hub_repo_make(&x->repo, err);
        }
        (void)nanosleep(&tick, NULL);
    }
}

static quire_err pull_from_hub(pull *x, char **path, quire_error *err) {
    TRY(hub_client_open(&x->o, &x->meter.stop, &x->client, err));
    TRY(get_listing(x, err));
    TRY(hub_pull_choose(x, err));
    TRY(hub_pull_check_weights(x, err));
    TRY(lock_repo(x, err));
    if (x->choice.index >= 0) {
        TRY(get_index(x, err));
    }
    TRY(hub_pull_plan(x, err));
    tell(x);
    TRY(fetch_all(x, err));
    TRY(link_all(x, err));
    return path_of_choice(x, path, err);
}

static quire_err not_cached(const pull *x, quire_error *err) {
    return err_set(err, QUIRE_NOT_FOUND, -1,
                   "%s%s%s: not in the cache %s, and downloads are off (HF_HUB_OFFLINE or --offline)%s%s",
                   x->name.repo, x->name.pick[0] != 0 ? ":" : "", x->name.pick, x->o.cache,
                   x->others.n > 0 ? "; the cache has these of its files: " : "",
                   x->others.n > 0 ? x->others.p : "");
}

static quire_err hub_pull_run(pull *x, const char *name, quire_hub_when when, char **path, quire_error *err) {
    TRY(hub_name_parse(name, &x->name, err));
    TRY(hub_repo_init(x->o.cache, x->name.repo, &x->repo, err));
    if (when == QUIRE_HUB_MISSING || x->o.offline) {
        quire_err e = find_cached(x, path, err);
        if (e != QUIRE_NOT_FOUND) {
            return e;
        }
        find_others(x);
    }
    return x->o.offline ? not_cached(x, err) : pull_from_hub(x, path, err);
}

quire_err quire_hub_pull(const quire_hub_options *o, const char *name, quire_hub_when when, char **path,
                         quire_error *err) {
    pull x = {.lock = -1, .choice = {.first = -1, .index = -1}};
    *path = NULL;
    TRY(hub_options_read(o, &x.o, err));
    pthread_mutex_init(&x.mutex, NULL);
    pthread_cond_init(&x.ended, NULL);
    quire_err e = hub_pull_run(&x, name, when, path, err);
    hub_client_close(x.client);
    hub_unlock(x.lock);
    mem_free(x.todo);
    strbuf_deinit(&x.others);
    hub_choice_deinit(&x.choice);
    hub_listing_deinit(&x.listing);
    hub_repo_deinit(&x.repo);
    pthread_cond_destroy(&x.ended);
    pthread_mutex_destroy(&x.mutex);
    return e;
}
