/* Which of the server's models a request has: found by its body, awaited while it is loaded,
 * and given to the response. The loop's thread. */
#ifndef SERVER_CONN_MODEL_H
#define SERVER_CONN_MODEL_H

#include "server/conn.h"
#include "server/loop_models.h"

/* Gives c the model that its body names, the main one if it names none of the others.
 * True: it has it. False: c was answered, or waits for the model and go_on(c) follows. */
bool conn_take_model(conn *c, void (*go_on)(conn *c));
/* The model that c's body names, or the main one; nobody gives it to c. */
served_model *conn_named_model(const conn *c);
/* Writes what the file of a model says that is not loaded (models_facts): true. False: c was
 * answered, or waits for it and go_on(c) follows. */
bool conn_read_facts(conn *c, served_model *m, strbuf *out, void (*go_on)(conn *c));
/* Whether c waits for its model to be loaded. */
bool conn_waits_for_model(const conn *c);
/* Answers c once all models have given back what their sleep gives. */
void conn_await_sleep(conn *c);
/* Gives c a model of which the caller has a hold, which c takes over. False: c was answered,
 * since there is no memory. */
bool conn_give_model(conn *c, served_model *m);
/* Sets how long c's model, if it has one, stays without use, as its request says: the
 * operator's, and, where nobody needs a key, anybody's. */
void conn_keep_model(const conn *c, const quire_request_more *more);
/* Takes c's model over: c has none then. */
loop_model *conn_hand_model(conn *c);
/* Refuses a request, since the models sleep. */
void conn_refuse_asleep(conn *c);
/* After a wake of the loop: goes on with requests whose model is there, fails those whose
 * model could not be loaded or sleeps, and closes the queues of models that leave. */
void conns_look_for_models(loop *l);

/* The engine of c's model, or the main one. */
quire_engine *conn_engine(const conn *c);
/* The loop's queue of that engine. */
quire_queue *conn_queue(const conn *c);

#endif
