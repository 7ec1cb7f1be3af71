/* The file tier: records in slots of equal size, in two files of a directory, which the next start adopts.
 *
 *   quire-VERSION.heads: a block that says what these files hold, then a head a slot        quire-VERSION.pages: a body a slot
 *
 * A record is written body first, then head; nothing is ever renamed or synchronised. Both parts carry checksums, so that whatever moment
 * the process dies at, each slot holds a whole record or something that is no record, whether old, new or a mixture. Files are named by a
 * hash of version and shape, and say both in full: those of another model lie beside and are left alone. One process at a time has them.
 *
 * The directory is kept in memory, in the order of use; after a start, in the order of writing. Owner: the engine thread. */
#ifndef KV_TIER_FILE_H
#define KV_TIER_FILE_H

#include "kv/tier_dir.h"
#include "kv/tier_io.h"

typedef struct kv_file kv_file;

typedef struct kv_file_options {
    const char *path;  /* of the directory; made if need be */
    int64_t bytes;     /* both files together */
    int32_t hash_bits; /* as kv_dir_open */
    kv_io_way way;
    const kv_io_calls *calls; /* as kv_io_open */
    size_t most;              /* transfers that may wait; a power of two */
} kv_file_options;

/* Opens the files of this shape and adopts what they hold. QUIRE_INVALID when bytes do not hold one record; QUIRE_BUSY when another process
 * has them; QUIRE_IO. err says which file and why. */
quire_err kv_file_open(const kv_record_shape *shape, const kv_file_options *o, kv_io_done done, kv_file **out, quire_error *err);
/* Finishes what was submitted. */
void kv_file_close(kv_file *f);

const kv_dir *kv_file_dir(const kv_file *f);
/* The largest stamp of a record that was adopted. */
uint64_t kv_file_last_stamp(const kv_file *f);
int64_t kv_file_bytes(const kv_file *f);
kv_io_way kv_file_way(const kv_file *f);
/* The record was of use. */
void kv_file_touch(kv_file *f, int32_t slot);

/* Starts writing frame's record, whose head is intact. false: no room, or the file failed a moment ago. */
bool kv_file_write(kv_file *f, int32_t frame, unsigned char *head, unsigned char *body);
/* Starts reading the body of a slot that the directory holds; head gets the slot's head. false: no room. */
bool kv_file_read(kv_file *f, int32_t slot, int32_t frame, unsigned char *head, unsigned char *body);
/* A job of this file has come back: brings the directory up to date. job->result is QUIRE_OK, QUIRE_IO, or QUIRE_BAD_FILE for a body that
 * is not what the head says; such a slot is free then. */
void kv_file_finish(kv_file *f, kv_job *job);

#endif
