/* The models of a server: the main one, which is there as long as the server, and others
 * beside it, which are loaded when a request names them and unloaded when they are idle. All
 * of them may be put to sleep: then none is loaded, and the memory of their caches, or of the
 * others whole, goes back to the system.
 *
 *   UNLOADED --models_take, /models/load--> LOADING --> READY
 *   READY --idle, room needed, /models/unload--> LEAVING --nobody has it--> UNLOADED
 *   LOADING --failed--> UNLOADED
 *
 * A request holds its model from the end of its body to the end of its response. Each loop
 * has a queue of the engine of each model that it uses (loop_models.c), and closes it when
 * the model leaves and none of the loop's requests holds it. One thread loads and unloads,
 * one model at a time, and wakes the loops when a state has changed. */
#ifndef SERVER_MODELS_H
#define SERVER_MODELS_H

#include "base/str.h"
#include "quire.h"
#include "server/server_options.h"

typedef struct models models;

typedef enum model_state { MODEL_UNLOADED, MODEL_LOADING, MODEL_READY, MODEL_LEAVING } model_state;

typedef struct served_model {
    const char *name; /* in requests */
    /* how it is opened; NULL: the main model, which the server's owner opens */
    const quire_options *options;
    int32_t number; /* among the models; 0: the main one */
    /* loaded at the start; leaves neither for idleness nor for another, and takes no place
     * of max_loaded */
    bool is_pinned;
    /* open from READY to UNLOADED; who holds the model may use it */
    quire_engine *engine;

    /* the rest is the models' own, under their lock */
    model_state state;
    bool is_wanted;            /* LEAVING: it is to be loaded again */
    bool needs_room;           /* LOADING: there was no memory, and another one leaves for it */
    int32_t n_holds, n_queues; /* requests that have it; loops that have a queue of it */
    int64_t used_us;           /* when the last hold was dropped (clock_us) */
    int64_t wanted_us;         /* since when it is to be loaded */
    /* for which tenant it is to be loaded, and was, the last time; "": none */
    char wanted_for[QUIRE_TENANT_BYTES + 1], loaded_for[QUIRE_TENANT_BYTES + 1];
    bool is_opening;   /* LOADING: the thread does it now */
    bool is_cancelled; /* the same, and it is not wanted any more */
    double progress;   /* of a copy (models_look), LOADING: the part of its weights that is loaded */
    /* without use it leaves after so long; MODEL_STAYS: it does not for that */
    int64_t keep_us;
    int64_t ready_us;          /* when it was loaded, the last time */
    bool is_fresh;             /* loaded, and not yet taken by those that waited for it */
    int64_t load_us;           /* how long it took to load, the last time; 0: never loaded */
    int32_t max_model_len;     /* as the engine had it then; 0: never loaded */
    bool gives_rows;           /* likewise: it gives embeddings or scores, no text */
    uint32_t n_failures;       /* attempts to load it, or to read its facts, that failed */
    quire_error error;         /* of the last one */
    bool wants_facts;          /* they are to be read */
    char *facts;               /* quire_inspect's JSON, since it was last loaded; NULL: not read */
} served_model;

#define MODEL_STAYS INT64_MAX

/* What a request that waits for a model keeps. */
typedef struct model_ticket {
    model_state found;   /* as the request came */
    bool is_asleep;      /* the models sleep: it is not loaded */
    uint32_t n_failures; /* of the model then */
} model_ticket;

/* How much sleeping models give back: the memory of their caches, or the others too. */
typedef enum sleep_level { SLEEP_NONE, SLEEP_CACHES, SLEEP_OTHERS } sleep_level;

typedef struct models_options {
    const model_spec *others;
    int32_t n_others;
    int32_t max_loaded; /* of others at once that are not pinned; 0: any number */
    int64_t idle_us;    /* an other that nobody used for so long is unloaded; 0: never */
    /* where max_loaded are in use without a pause, one that was loaded so long ago leaves
     * for one that was wanted for so long */
    int64_t patience_us;
    /* called without the lock after a state has changed: wakes the loops */
    void (*changed)(void *context);
    /* a new engine, before it is used */
    void (*opened)(void *context, quire_engine *e);
    void *context;
} models_options;

/* Opens the models, without the main one. QUIRE_NO_MEMORY. */
quire_err models_open(const models_options *o, models **out);
/* The main model is there, under that name, which is borrowed. */
void models_attach(models *all, const char *name, quire_engine *main);
/* Starts the thread that loads others, if there are some, the pinned ones now: `changed` may
 * be called from now on. QUIRE_NO_MEMORY: it does not start. */
quire_err models_start(models *all);
/* Ends the thread: a load is cut short, and none begins any more. A second call does
 * nothing. NULL is allowed. */
void models_stop(models *all);
/* The same, and unloads all others. No loop has a queue, and no request a hold. NULL is
 * allowed. */
void models_close(models *all);

int32_t models_count(const models *all);
served_model *models_at(models *all, int32_t number);
/* The model beside the main one that has this name, with or without ":latest"; NULL: there
 * is none. */
served_model *models_find(models *all, str name);

/* Takes a hold of a model: true. False: it is loaded first, unless the models sleep, and
 * `changed` is called when that has ended; it has failed if models_failed says so of *t then.
 * Those that are wanted are loaded in turns of tenants, and in the order of each one's
 * requests. The main model is always there. Any thread. */
bool models_take(models *all, served_model *m, const char *tenant, model_ticket *t);
/* Whether loading m, or reading its facts, has failed since t was drawn; its error then. */
bool models_failed(models *all, const served_model *m, const model_ticket *t, quire_error *err);
/* Writes what a model's file says (quire_inspect) to *out: true. False: it is read first,
 * without loading the model, as in models_take. */
bool models_facts(models *all, served_model *m, model_ticket *t, strbuf *out);
/* One more hold, by who has one. Any thread, as models_drop. */
void models_hold(models *all, served_model *m);
void models_drop(models *all, served_model *m);
/* A loop that holds m opens its queue of m, or has closed it. */
void models_count_queue(models *all, served_model *m, int32_t n);
/* Takes a hold of a loaded model for a moment, also of one that leaves and is in use, which
 * does not count as use; false: it is not loaded. models_end_visit gives it up. Any thread. */
bool models_visit(models *all, served_model *m);
void models_end_visit(models *all, served_model *m);
/* Whether m leaves: loops without holds of it are to close their queues. */
bool models_leaves(models *all, const served_model *m);

/* Loads an other, without a hold: false where it is there or on its way. */
bool models_load(models *all, served_model *m);
/* Lets an other leave as soon as its requests have ended. False: it is not loaded. */
bool models_unload(models *all, served_model *m);
/* Lets an other, whose hold the caller has, leave once it was without use for keep_us, until
 * it is loaded again. */
void models_keep(models *all, served_model *m, int64_t keep_us);
/* Puts all models to sleep, or deeper: none is loaded from now on. Once no request holds any
 * the prefix caches are dropped. */
void models_sleep(models *all, sleep_level level);
/* Ends that; pinned ones are loaded again. */
void models_wake_up(models *all);
/* Lock-free; any thread. */
sleep_level models_sleeping(const models *all);
/* Whether all that the sleep gives back is given: `changed` is called when it is. */
bool models_are_at_rest(models *all);
/* A copy of what is known of a model, without its facts: for lists. Any thread. */
served_model models_look(models *all, const served_model *m);
const char *model_state_name(model_state s);

#endif
