/* Finds the model that a request's body names, waits while it loads, and passes its hold
 * to the response. The loop's thread. */
#ifndef SERVER_CONN_MODEL_H
#define SERVER_CONN_MODEL_H

#include "server/conn.h"
#include "server/loop.h"

/* Gives c a hold of the model that its body names, or of the main one if it names none.
 * False: c was answered, or waits for the model, and go_on(c) is called later. */
bool conn_take_model(conn *c, void (*go_on)(conn *c));
/* The model that c's body names, or the main one; takes no hold. */
served_model *conn_named_model(const conn *c);
/* Writes the facts of a model that is not loaded, read from its file (models_facts).
 * False: c was answered, or waits for them, and go_on(c) is called later. */
bool conn_read_facts(conn *c, served_model *m, strbuf *out, void (*go_on)(conn *c));
/* Whether c waits for its model to load. */
bool conn_waits_for_model(const conn *c);
/* Answers c once all models are asleep. */
void conn_await_sleep(conn *c);
/* Gives c the model m with the caller's hold. False: out of memory; c was answered. */
bool conn_give_model(conn *c, served_model *m);
/* Sets how long c's model, if any, stays loaded without use, as the request asks. Only
 * the operator may ask, or on a server without keys anyone. */
void conn_keep_model(const conn *c, const quire_request_more *more);
/* Moves c's model and its hold to the caller. */
loop_model *conn_hand_model(conn *c);
/* Answers c with an error: the models sleep. */
void conn_refuse_asleep(conn *c);
/* Call when the loop was woken: continues requests whose model has loaded, fails those
 * whose model failed to load or sleeps, and closes the queues of leaving models. */
void conns_look_for_models(loop *l);

/* The engine of c's model, or of the main model. */
quire_engine *conn_engine(const conn *c);
/* The loop's queue of that engine. */
quire_queue *conn_queue(const conn *c);

#endif
