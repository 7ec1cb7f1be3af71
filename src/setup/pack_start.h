/* What a start loads from: the model's own files or, where the pack cache has it, their
 * packed form. */
#ifndef SETUP_PACK_START_H
#define SETUP_PACK_START_H

#include "backend/backend.h"
#include "file/pack_cache.h"
#include "quire.h"
#include "text/tokenizer.h"

/* ---- keeping a packed form ---- */

/* Keeps the packed form of a model that was loaded in the pack cache: writes it on a
 * thread of its own, which the system runs when the processor is otherwise idle, so that
 * neither the first token nor later ones wait for it. */

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

/* ---- what a start loads from ---- */

/* All zero: closed. */
typedef struct pack_start {
    model_file *source, *file; /* shared: the model's own files, and the file to load */
    packed_image *image;       /* if not NULL, loading adds the tensors to be kept here */
    pack_cache cache;
    char key[PACK_KEY_BYTES];
    bool is_quick; /* the model loads so fast that a packed form would gain nothing */
    pack_keeper *keeper;
} pack_start;

/* Finds the packed form of source, whose description is d, for b in the cache that o
 * names. Every checksum of a found one is checked on b's threads; a damaged one is
 * removed. Without a cache, or where anything is wrong with it, the source is loaded: a
 * line on stderr gives the reason. */
void pack_start_find(const quire_options *o, model_file *source, const model_desc *d, backend *b,
                     pack_start *out);
/* Says how long loading took, text and weights. What loads in less than least_us is not
 * kept. */
void pack_start_loaded(pack_start *s, int64_t load_us, int64_t least_us);
/* Begins to write the packed form of what was loaded, if it is to be kept. t: the
 * source's tokenizer, or NULL; it and b must stay until the close. */
void pack_start_keep(pack_start *s, const tokenizer *t);
/* Ends the keeping and closes the files. Before t, and before b. */
void pack_start_close(pack_start *s);

#endif
