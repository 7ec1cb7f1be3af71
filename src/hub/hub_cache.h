/* A model's repository in the cache of the Hugging Face hub. huggingface_hub and programs
 * built on it share this cache:
 *
 *   CACHE/models--ORG--NAME/blobs/ID               content of a file; gets this name only
 *                                                  once its hash is verified to be ID
 *                           blobs/ID.incomplete    an unfinished download of it; only the
 *                                                  holder of its lock appends
 *                           snapshots/COMMIT/PATH  a link to a blob
 *                           refs/REVISION          the commit of a branch or tag
 *   CACHE/.locks/models--ORG--NAME/ID.lock         flock, held by the writer of the blob
 *                                  quire.lock      flock: shared by pulls, exclusive for
 *                                                  a removal
 *
 * Any process may die at any time, so links are made only when all blobs of a model
 * exist, and the reference comes last. */
#ifndef HUB_CACHE_H
#define HUB_CACHE_H

#include "hub/hub_choose.h"

typedef struct hub_repo {
    char *dir, *locks; /* owned */
} hub_repo;

/* Sets the paths of a repository, "ORG/NAME"; creates nothing. Call hub_repo_deinit in
 * any case. */
quire_err hub_repo_init(const char *cache, const char *repo, hub_repo *out, quire_error *err);
void hub_repo_deinit(hub_repo *r);
/* Creates the repository's directories if they are missing. */
quire_err hub_repo_make(const hub_repo *r, quire_error *err);

/* Append a path to out: hub_repo_blob that of a blob followed by suffix, hub_repo_file
 * that of a file in a snapshot, or of the snapshot itself if path is NULL. */
quire_err hub_repo_blob(const hub_repo *r, const char *id, const char *suffix, strbuf *out, quire_error *err);
quire_err hub_repo_file(const hub_repo *r, const char *commit, const char *path, strbuf *out,
                        quire_error *err);

/* Finds the commit of a revision or commit. False: it is not in the cache. */
bool hub_repo_commit(const hub_repo *r, const char *revision, char commit[41]);
/* Sets the reference of a revision to a commit, by an atomic rename. IO; NO_MEMORY. */
quire_err hub_repo_set_ref(const hub_repo *r, const char *revision, const char *commit, quire_error *err);

/* Lists a snapshot's files whose blobs exist. NOT_FOUND, without a message: no such
 * snapshot. */
quire_err hub_repo_list(const hub_repo *r, const char *commit, hub_listing *out, quire_error *err);
/* Creates the snapshot's link to f, whose blob exists. */
quire_err hub_repo_link(const hub_repo *r, const char *commit, const hub_file *f, quire_error *err);
/* Records that a file was used now, by setting the times of its link. The blob's times
 * stay, because they are part of the key of its packed form (pack_cache.h). */
void hub_repo_touch(const hub_repo *r, const char *commit, const char *path);

typedef enum hub_lock_mode { HUB_LOCK_SHARED, HUB_LOCK_EXCLUSIVE } hub_lock_mode;

/* Takes the lock of this name (a blob's id, or "quire") without waiting. *fd is passed to
 * hub_unlock; it is -1 after a failure. BUSY, without a message: another process or
 * thread holds it. */
quire_err hub_lock(const hub_repo *r, const char *name, hub_lock_mode mode, int *fd, quire_error *err);
/* Releases a lock and closes fd; -1 does nothing. */
void hub_unlock(int fd);

/* ---- the repositories and snapshots in the cache, for its list and for removals ---- */

/* Calls visit for every entry of a directory except "." and "..". Stops at the first
 * error of visit and returns it. A missing directory has no entries. IO: the directory
 * cannot be read; err names it. */
typedef quire_err (*hub_visit)(void *user, const char *name);
quire_err hub_visit_all(const char *directory, hub_visit visit, void *user, quire_error *err);

/* Sets repo to "ORG/NAME" for "models--ORG--NAME". False: another kind of directory. */
bool hub_repo_of_directory(const char *directory, char repo[194]);

/* Writes the name of a branch or tag that points to the commit, preferably "main"; if
 * there is none, the commit itself. */
void hub_repo_name_commit(const hub_repo *r, const char *commit, char out[256]);

/* Appends the path of the repository's directory "snapshots", "refs" or "blobs". */
quire_err hub_repo_directory(const hub_repo *r, const char *name, strbuf *out);

#endif
