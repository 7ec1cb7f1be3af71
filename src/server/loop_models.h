/* A loop's part of a server's models: for each one that the loop's requests use, a queue
 * of its engine (models.h).
 *
 * A connection has its request's model from the end of the body on (conn_model.h); the
 * response takes it over. Owner: the loop's thread. */
#ifndef SERVER_LOOP_MODELS_H
#define SERVER_LOOP_MODELS_H

#include "server/loop.h"
#include "server/models.h"

typedef struct loop_model {
    loop *l;
    served_model *m;
    quire_queue *queue; /* NULL: not open */
    struct event *on_queue;
    struct quire_programs *programs; /* NULL before the first program */
    struct event *on_programs;
    int32_t n_holds;         /* connections and responses that use it */
    bool is_draining;        /* these are gone; their hold is kept until the queue is idle */
    token_text *token_texts; /* [n_token_texts] by id; NULL before a request needs log-probabilities */
    int32_t n_token_texts;
} loop_model;

/* Opens a loop's part of the models, and the queue of the main one, which is loaded. */
quire_err loop_models_open(loop *l);
/* Closes all queues. No response is left. */
void loop_models_close(loop *l);
/* Closes the queues of leaving models that none of the loop's requests uses. */
void loop_models_close_leaving(loop *l);

/* Opens the queue of a model that the caller holds, unless it is open.
 * QUIRE_NO_MEMORY. */
quire_err loop_model_open(loop_model *p);
/* Opens the runner of programs of a model that the caller holds, unless it is open.
 * QUIRE_NO_MEMORY. */
quire_err loop_model_open_programs(loop_model *p);
/* Call when programs have run for a turn: those with more to do continue after the
 * loop's other events. */
void loop_model_await_programs(loop_model *p);
/* Drops a request's hold of a model. The last one is kept until released streams are
 * over, so that closing the queue does not wait. */
void loop_model_drop(loop_model *p);
/* Call after events of the queue or of programs were read: drops the hold that
 * loop_model_drop kept, if no more events are to come. */
void loop_model_look(loop_model *p);

#endif
