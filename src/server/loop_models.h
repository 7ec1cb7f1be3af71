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
    struct quire_programs *programs; /* NULL until the first program of a request */
    struct event *on_programs;
    int32_t n_holds;         /* connections and responses that have it */
    bool is_draining;        /* they are gone, and their hold is kept until the queue is idle */
    token_text *token_texts; /* [n_token_texts] by id; NULL until a request needs log-probabilities */
    int32_t n_token_texts;
} loop_model;

/* Opens a loop's parts, and the queue of the main model, which is there. */
quire_err loop_models_open(loop *l);
/* Closes all queues. No response is left. */
void loop_models_close(loop *l);
/* Closes the queues of models that leave and that none of the loop's requests has. */
void loop_models_close_leaving(loop *l);

/* Opens the queue of a model that the caller has, unless it is open. QUIRE_NO_MEMORY. */
quire_err loop_model_open(loop_model *p);
/* Opens what runs the programs of a model that the caller has, unless it is open.
 * QUIRE_NO_MEMORY. */
quire_err loop_model_open_programs(loop_model *p);
/* Programs have run for a turn: those that have more to do go on behind the loop's other
 * events. */
void loop_model_await_programs(loop_model *p);
/* Gives up a request's hold of a model: the last one once the streams that were released
 * are over, so that nothing of them comes later, and closing the queue does not wait. */
void loop_model_drop(loop_model *p);
/* Events of the queue or of programs were read: gives up what loop_model_drop kept, if nothing
 * more is to come. */
void loop_model_look(loop_model *p);

#endif
