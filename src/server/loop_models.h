/* A loop's part of a server's models: for each one that the loop's requests use, a queue
 * of its engine, and which request has which model (models.h).
 *
 * A connection has its request's model from the end of the body on; the response takes it
 * over. Owner: the loop's thread. */
#ifndef SERVER_LOOP_MODELS_H
#define SERVER_LOOP_MODELS_H

#include "server/conn.h"
#include "server/models.h"

typedef struct loop_model {
    loop *l;
    served_model *m;
    quire_queue *queue; /* NULL: not open */
    struct event *on_queue;
    int32_t n_holds;         /* connections and responses that have it */
    token_text *token_texts; /* [n_token_texts] by id; NULL until a request needs log-probabilities */
    int32_t n_token_texts;
} loop_model;

/* Opens a loop's parts, and the queue of the main model, which is there. */
quire_err loop_models_open(loop *l);
/* Closes all queues. No response is left. */
void loop_models_close(loop *l);
/* After a wake: goes on with requests whose model is there, fails those whose model could
 * not be loaded, and closes the queues of models that leave. */
void loop_models_look(loop *l);

/* Gives c the model that its body names, the main one if it names none of the others.
 * True: it has it. False: c was answered, or waits for the model and go_on(c) follows. */
bool conn_take_model(conn *c, void (*go_on)(conn *c));
/* Gives c a model of which the caller has a hold, which c takes over. False: c was answered,
 * since there is no memory. */
bool conn_give_model(conn *c, served_model *m);
/* Gives it back; nothing where c has none. */
void conn_drop_model(conn *c);
/* Takes c's model over: c has none then. */
loop_model *conn_hand_model(conn *c);
void loop_model_drop(loop_model *p);

/* The engine of c's model, or the main one. */
quire_engine *conn_engine(const conn *c);
/* The loop's queue of that engine. */
quire_queue *conn_queue(const conn *c);
/* The engine that generates a response. */
quire_engine *response_engine(const struct response *a);
/* The name of the model that does, as its fields `model` have it. */
const char *response_model(const struct response *a);

#endif
