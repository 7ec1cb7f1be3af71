/* The models of a server: the main one, which is there as long as the server, and others
 * beside it, which are loaded when a request names them and unloaded when they are idle.
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
#include "json/json_out.h"
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
    int64_t wanted_us;         /* since when it is to be loaded: they are loaded in this order */
    int64_t ready_us;          /* when it was loaded, the last time */
    bool is_fresh;             /* loaded, and not yet taken by those that waited for it */
    int64_t load_us;           /* how long it took to load, the last time; 0: never loaded */
    int32_t max_model_len;     /* as the engine had it then; 0: never loaded */
    bool gives_rows;           /* likewise: it gives embeddings or scores, no text */
    uint32_t n_failures;       /* attempts to load it that failed */
    quire_error error;         /* of the last one */
} served_model;

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
/* Unloads all others. No loop has a queue, and no request a hold. NULL is allowed. */
void models_close(models *all);

int32_t models_count(const models *all);
served_model *models_at(models *all, int32_t number);
/* The model beside the main one that has this name, with or without ":latest"; NULL: there
 * is none. */
served_model *models_find(models *all, str name);

/* Takes a hold of a model: true. False: it is loaded first, and `changed` is called when
 * that has ended; it has failed if models_failed says so of *n_failures then. The main model
 * is always there. Any thread. */
bool models_take(models *all, served_model *m, uint32_t *n_failures);
/* Whether loading m has failed since n_failures was read; its error then. */
bool models_failed(models *all, const served_model *m, uint32_t n_failures, quire_error *err);
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
/* A copy of what is known of a model: for lists. Any thread. */
served_model models_look(models *all, const served_model *m);
const char *model_state_name(model_state s);

#endif
