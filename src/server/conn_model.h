/* The model of a request: found by its body, awaited while it loads, and given to the
 * response. The loop's thread. */
#ifndef SERVER_CONN_MODEL_H
#define SERVER_CONN_MODEL_H

#include "server/conn.h"
#include "server/loop.h"

/* Gives c the model that its body names, or else the main one. True: done. False: c was
 * answered, or waits for the model, and go_on(c) is called later. */
bool conn_take_model(conn *c, void (*go_on)(conn *c));
/* The model that c's body names, or the main one, without a hold. */
served_model *conn_named_model(const conn *c);
/* Writes the facts in the file of a model that is not loaded (models_facts): true.
 * False: c was answered, or waits for them, and go_on(c) is called later. */
bool conn_read_facts(conn *c, served_model *m, strbuf *out, void (*go_on)(conn *c));
/* Whether c waits for its model to be loaded. */
bool conn_waits_for_model(const conn *c);
/* Answers c once all models are asleep. */
void conn_await_sleep(conn *c);
/* Gives c a model with the caller's hold. False: c was answered, for lack of memory. */
bool conn_give_model(conn *c, served_model *m);
/* Sets how long c's model, if any, stays loaded without use, as the request says.
 * Honoured only for the operator, or for everyone on a server without keys. */
void conn_keep_model(const conn *c, const quire_request_more *more);
/* Takes over c's model, and leaves c without one. */
loop_model *conn_hand_model(conn *c);
/* Refuses a request because the models sleep. */
void conn_refuse_asleep(conn *c);
/* After a wake of the loop: continues requests whose model is loaded, fails those
 * whose model could not be loaded or sleeps, and closes the queues of leaving models. */
void conns_look_for_models(loop *l);

/* The engine of c's model, or the main one. */
quire_engine *conn_engine(const conn *c);
/* The loop's queue of that engine. */
quire_queue *conn_queue(const conn *c);

#endif
