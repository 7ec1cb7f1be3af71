/* The file tier stores records in slots of equal size, in two files of a directory, which
 * the next process adopts.
 *
 *   quire-VERSION.heads  a block that describes the files, then one head for each slot
 *   quire-VERSION.pages  one body for each slot
 *
 * A record is written body first, then head; files are never renamed or synchronised.
 * Both parts carry checksums. So whenever the process dies, each slot holds either a
 * whole record or bytes that are recognised as no record. Files are named by a hash of
 * version and shape, and contain both in full; files of another model are not touched.
 * One process at a time uses them.
 *
 * The directory is kept in memory, in the order of use; after a start, in the order of
 * writing. Owner: the engine thread. */
#ifndef KV_TIER_FILE_H
#define KV_TIER_FILE_H

#include "kv/tier_dir.h"
#include "kv/tier_io.h"

typedef struct kv_file kv_file;

typedef struct kv_file_options {
    const char *path;  /* path of the directory, which is created if needed */
    int64_t bytes;     /* most bytes of both files together */
    int32_t hash_bits; /* as in kv_dir_open */
    kv_io_way way;
    const kv_io_calls *calls; /* as in kv_io_open */
    size_t most;              /* most transfers in the queue, a power of two */
} kv_file_options;

/* Opens the files of this shape and adopts their records. QUIRE_INVALID: `bytes` is less
 * than one record. QUIRE_BUSY: another process has them open. QUIRE_IO. err names the
 * file and the reason. */
quire_err kv_file_open(const kv_record_shape *shape, const kv_file_options *o, kv_io_done done, kv_file **out,
                       quire_error *err);
/* Waits for the submitted transfers, and closes the files. */
void kv_file_close(kv_file *f);

const kv_dir *kv_file_dir(const kv_file *f);
/* Largest stamp of the adopted records. */
uint64_t kv_file_last_stamp(const kv_file *f);
int64_t kv_file_bytes(const kv_file *f);
/* Makes the slot's record the most recently used. */
void kv_file_touch(kv_file *f, int32_t slot);

/* Starts to write a frame's record, whose head must be valid. False: there is no room, or
 * a write has just failed. */
bool kv_file_write(kv_file *f, int32_t frame, unsigned char *head, unsigned char *body);
/* Starts to read the body of a filled slot, and copies the slot's head to `head`. False:
 * there is no room. */
bool kv_file_read(kv_file *f, int32_t slot, int32_t frame, unsigned char *head, unsigned char *body);
/* Updates the directory after a job of this file has finished. job->result becomes
 * QUIRE_OK, QUIRE_IO, or QUIRE_BAD_FILE if a body does not match its head; the slot is
 * then free. */
void kv_file_finish(kv_file *f, kv_job *job);

#endif
