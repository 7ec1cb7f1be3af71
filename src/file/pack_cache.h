/* The pack cache: a directory of packed models, each made from a model that was loaded
 * before and named by what identifies that model's files.
 *
 *   DIR/KEY.quire       an entry. Its mtime is the time of its last use
 *   DIR/KEY.quire.part  an entry being written; the writer holds a lock on it
 *
 * Any number of processes may share it. An entry appears whole, by a rename. A process
 * that has an entry mapped keeps its bytes when another process removes it. A .part file
 * without a lock was left by a killed process; the next writer removes it. Other files
 * are not touched.
 *
 * Trust: the directory and its entries are used only if they belong to the process's user
 * and nobody else may write to them. Checksums protect an entry against damage; the
 * caller checks them (packed.h) before it uses a byte of the data. */
#ifndef FILE_PACK_CACHE_H
#define FILE_PACK_CACHE_H

#include "file/packed_image.h"

#define PACK_KEY_BYTES 33 /* 32 hexadecimal digits and a 0 byte */

typedef struct pack_cache {
    char *dir;
    int64_t max_bytes; /* limit on all entries together */
} pack_cache;

/* Opens dir, and creates it with its parents if it is missing. QUIRE_IO: it cannot be
 * created or read; QUIRE_UNSUPPORTED: it belongs to another user, or others may write
 * there. Close *out in any case. */
quire_err pack_cache_open(const char *dir, int64_t max_bytes, pack_cache *out, quire_error *err);
void pack_cache_close(pack_cache *c);

/* Computes the name of source's packed form, a digest of `form`, of the source's
 * overrides, and of each file's size, inode, times of change, first bytes and samples of
 * the rest. form: everything else on which the packed form depends. False: the source is
 * not a file. */
bool pack_cache_key(const model_file *source, const char *form, char key[PACK_KEY_BYTES]);
/* Whether any later change of source's files would show in their times. False if a file
 * was written so shortly before it was opened that another change may leave its times the
 * same. */
bool pack_cache_can_name(const model_file *source);

/* Opens the entry and records its use; does not check its checksums. QUIRE_NOT_FOUND:
 * there is none. Other errors: the entry cannot be used and was removed; err has the
 * reason. */
quire_err pack_cache_find(const pack_cache *c, const char *key, model_file **out, quire_error *err);
/* An entry as shown in lists. */
typedef struct pack_form {
    char key[PACK_KEY_BYTES];
    int64_t n_bytes, used_unix_s;
} pack_form;
/* Removes the entry if it exists. */
void pack_cache_remove(const pack_cache *c, const char *key);

/* An entry being written. One thread at a time. */
typedef struct pack_entry pack_entry;

/* Begins an entry of n_bytes. Removes the entries used least recently until it fits under
 * the cache's limit and leaves PACK_FREE_BYTES or a tenth of the disk free, whichever is
 * less. QUIRE_NO_ROOM: it cannot fit, and nothing was removed. QUIRE_BUSY: another
 * process is writing this entry. */
#define PACK_FREE_BYTES ((int64_t)10 << 30)
quire_err pack_entry_open(const pack_cache *c, const char *key, int64_t n_bytes, pack_entry **out,
                          quire_error *err);
/* Appends the image's bytes [from, from + n). */
quire_err pack_entry_write(pack_entry *e, const packed_image *image, uint64_t from, uint64_t n,
                           quire_error *err);
/* Renames the entry to its final name, and frees e even after a failure. */
quire_err pack_entry_finish(pack_entry *e, quire_error *err);
/* Frees e and removes its file; NULL does nothing. */
void pack_entry_discard(pack_entry *e);

#endif
