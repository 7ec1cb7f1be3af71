/* A model's repository in the cache of the Hugging Face hub, which huggingface_hub and
 * programs over it share:
 *
 *   CACHE/models--ORG--NAME/blobs/ID               a file's content; it has this name
 *                                                  only once its hash is ID
 *                           blobs/ID.incomplete    the beginning of one, which the holder
 *                                                  of its lock appends to
 *                           snapshots/COMMIT/PATH  a link to a blob
 *                           refs/REVISION          the commit of a branch or tag
 *   CACHE/.locks/models--ORG--NAME/ID.lock         flock: who writes the blob
 *                                  quire.lock      flock: shared by pulls, exclusive for
 *                                                  a removal
 *
 * Any process may die at any time: links are made once all blobs of a model exist, and
 * the reference comes last. */
#ifndef HUB_CACHE_H
#define HUB_CACHE_H

#include "hub/hub_choose.h"

typedef struct hub_repo {
    char *dir, *locks; /* owned */
} hub_repo;

/* The paths of a repository, "ORG/NAME". Nothing is made. Call hub_repo_deinit in any
 * case. */
quire_err hub_repo_init(const char *cache, const char *repo, hub_repo *out, quire_error *err);
void hub_repo_deinit(hub_repo *r);
/* Makes its directories if they are missing. */
quire_err hub_repo_make(const hub_repo *r, quire_error *err);

/* Appends the path of a blob, of its beginning, or of a snapshot's file (path NULL: the
 * snapshot). */
quire_err hub_repo_blob(const hub_repo *r, const char *id, const char *suffix, strbuf *out, quire_error *err);
quire_err hub_repo_file(const hub_repo *r, const char *commit, const char *path, strbuf *out,
                        quire_error *err);

/* The commit of a revision, or the revision itself if it is a commit; false: not in the
 * cache. */
bool hub_repo_commit(const hub_repo *r, const char *revision, char commit[41]);
quire_err hub_repo_set_ref(const hub_repo *r, const char *revision, const char *commit, quire_error *err);

/* Lists a snapshot's files whose blobs exist. NOT_FOUND, without a message: no such
 * snapshot. */
quire_err hub_repo_list(const hub_repo *r, const char *commit, hub_listing *out, quire_error *err);
/* Makes the link of a file whose blob exists. */
quire_err hub_repo_link(const hub_repo *r, const char *commit, const hub_file *f, quire_error *err);
/* Records that a file was used now, in the times of its link, because the blob's times
 * are part of the key of its packed form (pack_cache.h). */
void hub_repo_touch(const hub_repo *r, const char *commit, const char *path);

typedef enum hub_lock_mode { HUB_LOCK_SHARED, HUB_LOCK_EXCLUSIVE } hub_lock_mode;

/* Takes the lock of this name (a blob's id, or "quire"), without waiting. BUSY, without a
 * message: another process holds it. *fd: for hub_unlock; -1 after a failure. A thread's
 * lock excludes other threads, too. */
quire_err hub_lock(const hub_repo *r, const char *name, hub_lock_mode mode, int *fd, quire_error *err);
void hub_unlock(int fd);

/* ---- the repositories and snapshots in the cache, for its list and for removals ---- */

/* Calls visit for every entry of a directory but "." and "..", until it fails: then
 * with that error. A missing directory has no entries. IO: the directory cannot be
 * read; err names it. */
typedef quire_err (*hub_visit)(void *user, const char *name);
quire_err hub_visit_all(const char *directory, hub_visit visit, void *user, quire_error *err);

/* "ORG/NAME" of a directory "models--ORG--NAME"; false: it is not a model's. */
bool hub_repo_of_directory(const char *directory, char repo[194]);

/* Writes the branch or tag at a commit, preferably "main"; otherwise the commit
 * itself. */
void hub_repo_name_commit(const hub_repo *r, const char *commit, char out[256]);

/* The place of a directory of the repository: NAME is "snapshots", "refs" or "blobs". */
quire_err hub_repo_directory(const hub_repo *r, const char *name, strbuf *out);

#endif
