/* The models of a server: the main one, which lives as long as the server, and others,
 * which are loaded when a request names them and unloaded when they are idle. The
 * operator may put them to sleep: then none is loaded, and the memory of all prefix
 * caches, or also of all models but the main one, is returned to the system.
 *
 *   UNLOADED --models_take, /models/load--> LOADING --> READY
 *   READY --idle, room needed, /models/unload--> LEAVING --no holds--> UNLOADED
 *   LOADING --failed--> UNLOADED
 *
 * A request holds its model from the end of its body to the end of its response. Each
 * loop has a queue for the engine of each model that it uses (loop.h), and closes it when
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
    const char *name; /* the model's name in requests */
    /* options to open it with; NULL: the main model, which the server's owner opens */
    const quire_options *options;
    int32_t number; /* index among the models; 0: the main one */
    /* loaded at the start, unloaded by command only, and not counted for max_loaded */
    bool is_pinned;
    /* open from READY to UNLOADED; whoever holds the model may use it */
    quire_engine *engine;

    /* the members below belong to models.c, under its lock */
    model_state state;
    bool is_wanted;            /* LEAVING: it is to be loaded again */
    bool needs_room;           /* LOADING: memory was short, so another model is leaving */
    int32_t n_holds, n_queues; /* n_holds: requests that hold it; n_queues: loops with a queue of it */
    int64_t used_us;           /* time when the last hold was dropped (clock_us) */
    int64_t wanted_us;         /* time when its load was requested */
    /* tenants for whom it is to be loaded, and was last loaded; "": none */
    char wanted_for[QUIRE_TENANT_BYTES + 1], loaded_for[QUIRE_TENANT_BYTES + 1];
    bool is_opening;   /* LOADING: the thread is loading it now */
    bool is_cancelled; /* LOADING: the load in progress is no longer wanted */
    double progress;   /* only in models_look's copy, LOADING: fraction of the weights loaded */
    /* idle time after which it leaves; MODEL_STAYS: no limit */
    int64_t keep_us;
    int64_t ready_us;      /* time when it was last loaded */
    bool is_fresh;         /* loaded, but no request that waited for it has taken it yet */
    int64_t load_us;       /* time of its last load; 0: never loaded */
    int32_t max_model_len; /* the engine's, as of the last load; 0: never loaded */
    /* the engine's, as of the last load: it returns rows, not text */
    bool gives_rows;
    uint32_t n_failures; /* failed attempts to load it or to read its facts */
    quire_error error;   /* the last failure */
    bool wants_facts;    /* its facts are to be read from its file */
    char *facts;         /* JSON of quire_inspect; NULL: not read since the last load */
} served_model;

#define MODEL_STAYS INT64_MAX

/* What a request remembers while it waits for a model. */
typedef struct model_ticket {
    model_state found;   /* the model's state when the request came */
    bool is_asleep;      /* the request is refused, because the models sleep */
    uint32_t n_failures; /* the model's n_failures at that time */
} model_ticket;

/* Levels of sleep: none; drop prefix caches; also unload all models but the main one. */
typedef enum sleep_level { SLEEP_NONE, SLEEP_CACHES, SLEEP_OTHERS } sleep_level;

typedef struct models_options {
    const model_spec *others;
    int32_t n_others;
    int32_t max_loaded; /* most models loaded besides the main and pinned ones; 0: any number */
    int64_t idle_us;    /* idle time after which a model is unloaded; 0: never */
    /* if max_loaded models are always in use: time since a model was loaded, and time
     * that another has waited, after which the first leaves for the second */
    int64_t patience_us;
    /* called without the lock after a state has changed, to wake the loops */
    void (*changed)(void *context);
    /* called with a new engine before it is used */
    void (*opened)(void *context, quire_engine *e);
    void *context;
} models_options;

/* Opens the models, without the main one. The caller closes *out. QUIRE_NO_MEMORY. */
quire_err models_open(const models_options *o, models **out);
/* Adds the main model, which is loaded. name is borrowed; the caller keeps the engine. */
void models_attach(models *all, const char *name, quire_engine *main);
/* Starts the thread that loads the other models, if there are any; pinned ones are loaded
 * at once. `changed` may be called from now on. QUIRE_NO_MEMORY: it did not start. */
quire_err models_start(models *all);
/* Ends the thread and cancels a load. A second call does nothing. all may be NULL. */
void models_stop(models *all);
/* Ends the thread, unloads all models but the main one and frees `all`, which may be
 * NULL. No loop may have a queue, and no request a hold. */
void models_close(models *all);

/* Number of models, with the main one; the model with a number, 0: the main one. */
int32_t models_count(const models *all);
served_model *models_at(models *all, int32_t number);
/* Finds a model other than the main one by name, with or without ":latest"; NULL:
 * unknown. */
served_model *models_find(models *all, str name);

/* Takes a hold of a model. False: unless the models sleep, it is loaded first, for this
 * tenant, and `changed` is called afterwards; models_failed of *t then says whether that
 * failed. Tenants take turns at loading; within a tenant, models are loaded in the order
 * of requests. The main model is always loaded. Any thread. */
bool models_take(models *all, served_model *m, const char *tenant, model_ticket *t);
/* Whether loading m or reading its facts has failed since t was filled; *err: why. */
bool models_failed(models *all, const served_model *m, const model_ticket *t, quire_error *err);
/* Writes the facts in a model's file (quire_inspect) to *out. False: the file is read
 * first, without loading the model, and `changed` is called afterwards. */
bool models_facts(models *all, served_model *m, model_ticket *t, strbuf *out);
/* Adds a hold to one that the caller has; models_drop drops one. Any thread. */
void models_hold(models *all, served_model *m);
void models_drop(models *all, served_model *m);
/* Adds n to the number of loops with a queue of m: 1 before a loop that holds m opens
 * one, -1 after it has closed it. */
void models_count_queue(models *all, served_model *m, int32_t n);
/* Takes a brief hold, which does not count as use, of a model that is loaded, or leaving
 * but still in use; models_end_visit drops it. False: it is not loaded. Any thread. */
bool models_visit(models *all, served_model *m);
void models_end_visit(models *all, served_model *m);
/* Whether m is leaving: loops without holds of it must close their queues. */
bool models_leaves(models *all, const served_model *m);

/* Requests a load, without a hold. False: the model is loaded or being loaded. */
bool models_load(models *all, served_model *m);
/* Lets a model leave once its requests have ended. False: it is not loaded. */
bool models_unload(models *all, served_model *m);
/* Sets the idle time after which a model, which the caller holds, leaves; valid until its
 * next load. */
void models_keep(models *all, served_model *m, int64_t keep_us);
/* Puts all models to sleep, or into a deeper sleep: none is loaded from now on, and
 * prefix caches are dropped once no request holds a model. */
void models_sleep(models *all, sleep_level level);
/* Ends the sleep; pinned models are loaded again. */
void models_wake_up(models *all);
/* The level of sleep. Lock-free; any thread. */
sleep_level models_sleeping(const models *all);
/* Whether the level of sleep has been reached; `changed` is called when it is. */
bool models_are_at_rest(models *all);
/* Returns a copy of a model's state, without its facts, for lists. Any thread. */
served_model models_look(models *all, const served_model *m);
/* The name of a state in lists of models, constant. */
const char *model_state_name(model_state s);

#endif
