/* Lists of the models that a server has, and commands to load and unload them. */
#ifndef SERVER_MODEL_ROUTES_H
#define SERVER_MODEL_ROUTES_H

#include "server/conn.h"

/* GET /v1/models and /models. */
void models_list(conn *c);
/* GET /v1/models/NAME. */
void models_one(conn *c);
/* POST /models/load and /models/unload, as llama.cpp's router has them: {"model": NAME}. The
 * answer comes at once; the list shows when it is done. The operator's. */
void models_post_load(conn *c);
void models_post_unload(conn *c);
/* vLLM's POST /sleep?level=1|2&mode=abort|wait, answered once all models sleep, POST /wake_up
 * and GET /is_sleeping. The operator's. */
void models_post_sleep(conn *c);
void models_post_wake_up(conn *c);
void models_get_sleeping(conn *c);

#endif
