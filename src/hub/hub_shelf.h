/* The repositories and snapshots that lie in the cache, for its list and for removals. */
#ifndef HUB_SHELF_H
#define HUB_SHELF_H

#include "hub/hub_cache.h"

/* Calls visit for every entry of a directory but "." and "..", until it fails: then with
 * that error. A directory that is not there has none. IO: the directory cannot be read;
 * err names it. */
typedef quire_err (*hub_visit)(void *user, const char *name);
quire_err hub_visit_all(const char *directory, hub_visit visit, void *user, quire_error *err);

/* "ORG/NAME" of a directory "models--ORG--NAME"; false: it is no model's. */
bool hub_repo_of_directory(const char *directory, char repo[194]);

/* Writes the branch or tag that is at a commit, "main" before others; else the commit
 * itself. */
void hub_repo_name_commit(const hub_repo *r, const char *commit, char out[256]);

/* The place of a directory of the repository: NAME is "snapshots", "refs" or "blobs". */
quire_err hub_repo_directory(const hub_repo *r, const char *name, strbuf *out);

#endif
