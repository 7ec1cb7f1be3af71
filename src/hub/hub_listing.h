/* The files of one commit of a repository: as the hub's answer lists them, or as a
 * snapshot in the cache holds them. Plain data. */
#ifndef HUB_LISTING_H
#define HUB_LISTING_H

#include "hub/hub_name.h"

#define HUB_MAX_FILES 100000

typedef struct hub_file {
    char *path;                /* owned; safe (hub_name.h) */
    char id[HUB_DIGEST_BYTES]; /* of its blob: the SHA-256 of large files, else the SHA-1 that git gives it */
    int64_t n_bytes;
    int64_t used_unix_s; /* in a snapshot: when it was used last */
} hub_file;

/* Zero-initialised is empty. */
typedef struct hub_listing {
    char commit[41];
    char base[194];  /* the model that it was made from, by its card; empty: unknown, or a snapshot */
    hub_file *files; /* sorted by path */
    size_t n, cap;
} hub_listing;

/* Reads the answer of /api/models/REPO/revision/REVISION?blobs=true. Names that begin
 * with a dot are left out. BAD_FILE: it is not such an answer, or a name in it leads out
 * of the directory. Call hub_listing_deinit in any case. */
quire_err hub_listing_parse(str json, const char *repo, hub_listing *out, quire_error *err);
/* Adds a file, whose path must be safe. NO_MEMORY, or TOO_LARGE past HUB_MAX_FILES. */
quire_err hub_listing_add(hub_listing *l, str path, str id, int64_t n_bytes);
/* Sorts by path; to be called once all are added. */
void hub_listing_sort(hub_listing *l);
/* The index of the file at this path, or -1; O(log n). */
int32_t hub_listing_find(const hub_listing *l, str path);
void hub_listing_deinit(hub_listing *l);

#endif
