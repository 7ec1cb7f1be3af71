/* The pack cache: a directory of packed models, each made of a model that was loaded
 * before and named by what identifies that model's files.
 *
 *   DIR/KEY.quire       an entry. Its mtime is when it was used last
 *   DIR/KEY.quire.part  an entry that is being written; the writer holds a lock on it
 *
 * Any number of processes may share it. An entry appears whole, by a rename, and a
 * process that has one mapped keeps its bytes when another process removes it. A .part
 * file without a lock was left by a process that was killed; the next writer removes it.
 * Other files stay untouched.
 *
 * Trust: only a directory and entries that belong to the process's user and that nobody
 * else may write are used. Against damage an entry has checksums, which the caller checks
 * (packed.h) before it uses a byte of the data. */
#ifndef FILE_PACK_CACHE_H
#define FILE_PACK_CACHE_H

#include "file/packed_image.h"

#define PACK_KEY_BYTES 33 /* 32 hexadecimal digits and a 0 byte */

typedef struct pack_cache {
    char *dir;
    int64_t max_bytes; /* of all entries together */
} pack_cache;

/* Opens dir and makes it, with its parents, if it is not there. QUIRE_IO where it cannot
 * be made or read; QUIRE_UNSUPPORTED where it is another user's, or others may write
 * there. Close *out in any case. */
quire_err pack_cache_open(const char *dir, int64_t max_bytes, pack_cache *out, quire_error *err);
void pack_cache_close(pack_cache *c);

/* The name of source's packed form. form: everything else on which the packed form
 * depends. It is a digest of form, of the source's overrides, and of each file's size,
 * inode and times of change, its first bytes and samples of the others. False: the source
 * is not a file. */
bool pack_cache_key(const model_file *source, const char *form, char key[PACK_KEY_BYTES]);
/* Whether every later change of source's files shows in their times. False if a file was
 * written so shortly before it was opened that a change since then may not have changed
 * its times. */
bool pack_cache_can_name(const model_file *source);

/* Opens the entry and records its use. Its checksums have not been checked.
 * QUIRE_NOT_FOUND: there is none. Other errors: there is one, which cannot be used and
 * was removed, for the reason in err. */
quire_err pack_cache_find(const pack_cache *c, const char *key, model_file **out, quire_error *err);
/* An entry, for people. */
typedef struct pack_form {
    char key[PACK_KEY_BYTES];
    int64_t n_bytes, used_unix_s;
} pack_form;
/* Removes the entry if it exists. */
void pack_cache_remove(const pack_cache *c, const char *key);

/* An entry that is being written. One thread at a time. */
typedef struct pack_entry pack_entry;

/* Begins an entry of n_bytes, and removes entries that were used least recently until it
 * fits, under the cache's limit and beside PACK_FREE_BYTES or a tenth of the disk,
 * whichever is less. QUIRE_NO_ROOM: it cannot fit, and nothing was removed. QUIRE_BUSY:
 * another process is writing this entry. */
#define PACK_FREE_BYTES ((int64_t)10 << 30)
quire_err pack_entry_open(const pack_cache *c, const char *key, int64_t n_bytes, pack_entry **out,
                          quire_error *err);
/* Appends image's bytes from..from+n. */
quire_err pack_entry_write(pack_entry *e, const packed_image *image, uint64_t from, uint64_t n,
                           quire_error *err);
/* Puts the entry in place and frees e, also after a failure. */
quire_err pack_entry_finish(pack_entry *e, quire_error *err);
/* Frees e and removes its file. NULL is allowed. */
void pack_entry_discard(pack_entry *e);

#endif
