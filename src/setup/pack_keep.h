/* Keeps the packed form of a model that was loaded in the pack cache: writes it on a
 * thread of its own, which the system runs when the processor is otherwise idle, so that
 * neither the first token nor later ones wait for it. */
#ifndef SETUP_PACK_KEEP_H
#define SETUP_PACK_KEEP_H

#include "file/pack_cache.h"
#include "text/tokenizer.h"

typedef struct pack_keeper pack_keeper;

/* What is kept. All is borrowed until pack_keeper_close. */
typedef struct pack_keep {
    const pack_cache *cache;
    const char *key;
    packed_image *image;      /* with the tensors, without metadata */
    const model_file *source; /* source of the metadata */
    const tokenizer *t;       /* the source's tokenizer; NULL: the vocabulary is kept as it is */
} pack_keep;

/* Starts the thread. NULL: there is no memory or no thread for it, and nothing will be
 * kept. */
pack_keeper *pack_keeper_open(const pack_keep *what);
/* Ends the thread. What is not written then is written now if it is at most
 * PACK_LEFT_BYTES, else given up. NULL is allowed. */
#define PACK_LEFT_BYTES ((uint64_t)2 << 30)
void pack_keeper_close(pack_keeper *k);

#endif
