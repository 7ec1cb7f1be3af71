/* How the wants of an adapter_store are answered, and the thread that loads what they
 * lack. */
#ifndef SETUP_ADAPTER_ANSWER_H
#define SETUP_ADAPTER_ANSWER_H

#include "setup/adapter_entries.h"

/* Answers w, whose entries are set, if all of them are resident and take holders. Under
 * the lock. */
bool adapters_answer(adapter_store *s, adapter_want *w);
/* Appends w to the waiting, or answers it at once if nothing has to be loaded. Under
 * the lock. */
bool adapters_queue(adapter_store *s, adapter_want *w);
/* Releases w's entries. Under the lock. */
void adapters_release_want(adapter_want *w);
/* The thread. */
void *adapters_run(void *store);

#endif
