/* Writes LoRA adapters into lists of models and metrics. Any thread. */
#ifndef SERVER_ADAPTER_LIST_H
#define SERVER_ADAPTER_LIST_H

#include "server/loop.h"
#include "json/json_out.h"

/* Whether an adapter that requests may name has this name. */
bool adapter_list_knows(const server *s, str name);
/* Calls `write` for each adapter that requests may name, to add an item to the array open
 * in o. Errors are kept in o. */
void adapter_list_each(const server *s, void (*write)(const server *s, const quire_adapter *a, json_out *o),
                       json_out *o);
/* Calls `write` for the adapter with this name, if requests may name it; false: none. */
bool adapter_list_one(const server *s, str name,
                      void (*write)(const server *s, const quire_adapter *a, json_out *o), json_out *o);
/* Appends the metrics of adapters; nothing if the engine was opened without adapters.
 * QUIRE_NO_MEMORY: *out may have some of them. */
quire_err adapter_list_metrics(const quire_engine *e, strbuf *out);

#endif
