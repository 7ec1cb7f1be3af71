/* The file tier stores records in slots of equal size, in two files of a directory, which
 * the next process start adopts.
 *
 *   quire-VERSION.heads  a block that describes the files, then a head a slot
 *   quire-VERSION.pages  a body a slot
 *
 * A record is written body first, then head; files are never renamed or synchronised.
 * Both parts carry checksums. So whenever the process dies, each slot holds either a
 * whole record or bytes that are recognised as no record. Files are named by a hash of
 * version and shape, and contain both in full; files of another model are left alone. One
 * process at a time uses them.
 *
 * The directory is kept in memory, in the order of use; after a start, in the order of
 * writing. Owner: the engine thread. */
#ifndef KV_TIER_FILE_H
#define KV_TIER_FILE_H

#include "kv/tier_dir.h"
#include "kv/tier_io.h"

typedef struct kv_file kv_file;

typedef struct kv_file_options {
    const char *path;  /* the directory; created if needed */
    int64_t bytes;     /* both files together */
    int32_t hash_bits; /* as kv_dir_open */
    kv_io_way way;
    const kv_io_calls *calls; /* as kv_io_open */
    size_t most;              /* most queued transfers; a power of two */
} kv_file_options;

/* Opens the files of this shape and adopts their records. QUIRE_INVALID when bytes do not
 * hold one record; QUIRE_BUSY when another process has them open; QUIRE_IO. err says
 * which file and why. */
quire_err kv_file_open(const kv_record_shape *shape, const kv_file_options *o, kv_io_done done, kv_file **out,
                       quire_error *err);
/* Finishes the submitted transfers and closes the files. */
void kv_file_close(kv_file *f);

const kv_dir *kv_file_dir(const kv_file *f);
/* The largest stamp of the adopted records. */
uint64_t kv_file_last_stamp(const kv_file *f);
int64_t kv_file_bytes(const kv_file *f);
/* Makes the slot's record the most recently used. */
void kv_file_touch(kv_file *f, int32_t slot);

/* Starts to write frame's record, whose head is intact. False: there is no room, or the
 * file has just failed. */
bool kv_file_write(kv_file *f, int32_t frame, unsigned char *head, unsigned char *body);
/* Starts to read the body of a slot in the directory; the slot's head is copied to
 * `head`. False: there is no room. */
bool kv_file_read(kv_file *f, int32_t slot, int32_t frame, unsigned char *head, unsigned char *body);
/* Updates the directory after a job of this file has finished. job->result is QUIRE_OK,
 * QUIRE_IO, or QUIRE_BAD_FILE for a body that does not match its head; such a slot is
 * free then. */
void kv_file_finish(kv_file *f, kv_job *job);

#endif
