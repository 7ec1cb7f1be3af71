/* LoRA adapters in lists of models and in metrics. Any thread. */
#ifndef SERVER_ADAPTER_LIST_H
#define SERVER_ADAPTER_LIST_H

#include "server/loop.h"
#include "json/json_out.h"

/* Whether requests may name an adapter of this name. */
bool adapter_list_knows(const server *s, str name);
/* Calls `write` for each adapter that requests may name, as an item of the array that o
 * is in. A failure is left in o. */
void adapter_list_each(const server *s, void (*write)(const server *s, const quire_adapter *a, json_out *o),
                       json_out *o);
/* The same for the adapter with this name; false if there is none. */
bool adapter_list_one(const server *s, str name,
                      void (*write)(const server *s, const quire_adapter *a, json_out *o), json_out *o);
/* Appends the metrics of adapters; nothing if the engine was opened without adapters. */
quire_err adapter_list_metrics(const quire_engine *e, strbuf *out);

#endif
