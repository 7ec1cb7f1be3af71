/* The models of a server: the main one, which lives as long as the server, and others,
 * which are loaded when a request names them and unloaded when they are idle. All of them
 * may be put to sleep: then none is loaded, and the memory of their caches, or of all
 * models except the main one, is returned to the system.
 *
 *   UNLOADED --models_take, /models/load--> LOADING --> READY
 *   READY --idle, room needed, /models/unload--> LEAVING --no holds--> UNLOADED
 *   LOADING --failed--> UNLOADED
 *
 * A request holds its model from the end of its body to the end of its response. Each
 * loop has a queue for the engine of each model that it uses (loop.c), and closes it when
 * the model leaves and none of the loop's requests holds it. One thread loads and
 * unloads, one model at a time, and wakes the loops when a state has changed. */
#ifndef SERVER_MODELS_H
#define SERVER_MODELS_H

#include "base/str.h"
#include "quire.h"
#include "server/server_options.h"

typedef struct models models;

typedef enum model_state { MODEL_UNLOADED, MODEL_LOADING, MODEL_READY, MODEL_LEAVING } model_state;

typedef struct served_model {
    const char *name; /* in requests */
    /* how to open it; NULL: the main model, which the server's owner opens */
    const quire_options *options;
    int32_t number; /* index among the models; 0: the main one */
    /* loaded at the start; leaves by command only, and does not count for max_loaded */
    bool is_pinned;
    /* open from READY to UNLOADED; holders of the model may use it */
    quire_engine *engine;

    /* the members below belong to models.c, under its lock */
    model_state state;
    bool is_wanted;            /* LEAVING: load it again */
    bool needs_room;           /* LOADING: there was no memory, and another model is leaving to make room */
    int32_t n_holds, n_queues; /* requests that hold it; loops that have its queue */
    int64_t used_us;           /* when the last hold was dropped (clock_us) */
    int64_t wanted_us;         /* when its load was requested */
    /* tenant for whom it is, or was last, loaded; "": none */
    char wanted_for[QUIRE_TENANT_BYTES + 1], loaded_for[QUIRE_TENANT_BYTES + 1];
    bool is_opening;   /* LOADING: the thread is loading it now */
    bool is_cancelled; /* the same, but it is no longer wanted */
    double progress;   /* in a copy (models_look), LOADING: the fraction of its weights that is loaded */
    /* idle time after which it leaves; MODEL_STAYS: no limit */
    int64_t keep_us;
    int64_t ready_us;      /* when it was last loaded */
    bool is_fresh;         /* loaded, and not yet taken by the requests that waited */
    int64_t load_us;       /* time of its last load; 0: never loaded */
    int32_t max_model_len; /* from the engine, at its last load; 0: never loaded */
    bool gives_rows;       /* likewise: it returns embeddings or scores, not text */
    uint32_t n_failures;   /* failed attempts to load it or to read its facts */
    quire_error error;     /* error of the last failure */
    bool wants_facts;      /* its facts are to be read */
    char *facts;           /* quire_inspect's JSON, since it was last loaded; NULL: not read */
} served_model;

#define MODEL_STAYS INT64_MAX

/* What a request keeps while it waits for a model. */
typedef struct model_ticket {
    model_state found;   /* the model's state when the request came */
    bool is_asleep;      /* refused, since the models sleep */
    uint32_t n_failures; /* the model's n_failures at that time */
} model_ticket;

/* Levels of sleep: drop the caches, or also unload all models but the main one. */
typedef enum sleep_level { SLEEP_NONE, SLEEP_CACHES, SLEEP_OTHERS } sleep_level;

typedef struct models_options {
    const model_spec *others;
    int32_t n_others;
    int32_t max_loaded; /* most models loaded besides the main and pinned ones; 0: any number */
    int64_t idle_us;    /* idle time after which a model is unloaded; 0: never */
    /* if max_loaded models are in use without a pause: a model that was loaded at least
     * this long ago leaves for one that has waited this long */
    int64_t patience_us;
    /* called after a state has changed, without the lock: wakes the loops */
    void (*changed)(void *context);
    /* called with a new engine before it is used */
    void (*opened)(void *context, quire_engine *e);
    void *context;
} models_options;

/* Opens the models, without the main one. QUIRE_NO_MEMORY. */
quire_err models_open(const models_options *o, models **out);
/* Adds the loaded main model, under that name, which is borrowed. */
void models_attach(models *all, const char *name, quire_engine *main);
/* Starts the thread that loads further models, if there are any, pinned ones now.
 * `changed` may be called from now on. QUIRE_NO_MEMORY: it does not start. */
quire_err models_start(models *all);
/* Ends the thread, and cancels a load in progress. A second call does nothing. NULL is
 * allowed. */
void models_stop(models *all);
/* The same, and unloads all models but the main one. No loop may have a queue, and no
 * request a hold. NULL is allowed. */
void models_close(models *all);

int32_t models_count(const models *all);
served_model *models_at(models *all, int32_t number);
/* Finds a model other than the main one by name, with or without ":latest"; NULL:
 * unknown. */
served_model *models_find(models *all, str name);

/* Takes a hold of a model: true. False: it is loaded first, unless the models sleep,
 * and `changed` is called afterwards; models_failed of *t then says whether it failed.
 * Wanted models are loaded in turns of tenants, each tenant's in the order of its
 * requests. The main model is always loaded. Any thread. */
bool models_take(models *all, served_model *m, const char *tenant, model_ticket *t);
/* Whether loading m, or reading its facts, has failed since t was taken; *err is then its
 * error. */
bool models_failed(models *all, const served_model *m, const model_ticket *t, quire_error *err);
/* Writes the facts of a model's file (quire_inspect) to *out: true. False: the file is
 * read first, without loading the model, as in models_take. */
bool models_facts(models *all, served_model *m, model_ticket *t, strbuf *out);
/* Adds a hold; the caller has one. Any thread, as models_drop. */
void models_hold(models *all, served_model *m);
void models_drop(models *all, served_model *m);
/* Records that a loop that holds m opens its queue of m, or has closed it. */
void models_count_queue(models *all, served_model *m, int32_t n);
/* Takes a brief hold of a loaded model that does not count as use; also of one that is
 * leaving but still in use. False: it is not loaded. models_end_visit drops it. Any
 * thread. */
bool models_visit(models *all, served_model *m);
void models_end_visit(models *all, served_model *m);
/* Whether m is leaving: loops without holds of it must close their queues. */
bool models_leaves(models *all, const served_model *m);

/* Requests a load without a hold. False: it is loaded or being loaded. */
bool models_load(models *all, served_model *m);
/* Lets a model leave when its requests have ended. False: it is not loaded. */
bool models_unload(models *all, served_model *m);
/* Sets the idle time after which a model, which the caller holds, leaves, until it is
 * loaded again. */
void models_keep(models *all, served_model *m, int64_t keep_us);
/* Puts all models to sleep, or into a deeper sleep: none is loaded from now on, and
 * the prefix caches are dropped once no request holds any. */
void models_sleep(models *all, sleep_level level);
/* Ends the sleep; pinned models are loaded again. */
void models_wake_up(models *all);
/* Lock-free; any thread. */
sleep_level models_sleeping(const models *all);
/* Whether the sleep is complete. `changed` is called when it is. */
bool models_are_at_rest(models *all);
/* Copies a model's state, without its facts, for lists. Any thread. */
served_model models_look(models *all, const served_model *m);
const char *model_state_name(model_state s);

#endif
