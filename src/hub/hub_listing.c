#include "hub/hub_listing.h"

#include <stdlib.h>

#include "base/mem.h"
#include "file/show.h"
#include "json/json.h"

static const json_limits limits = {.max_depth = 64,
                                   .max_values = 4000000,
                                   .max_containers = 1000000,
                                   .max_names = 4000000,
                                   .names = JSON_NAMES_LAST};

void hub_listing_deinit(hub_listing *l) {
    for (size_t i = 0; i < l->n; i++) {
        mem_free(l->files[i].path);
    }
    mem_free(l->files);
    *l = (hub_listing){.n = 0};
}

quire_err hub_listing_add(hub_listing *l, str path, str id, int64_t n_bytes) {
    if (l->n == HUB_MAX_FILES) {
        return QUIRE_TOO_LARGE;
    }
    TRY(mem_grow(&l->files, &l->cap, l->n + 1, sizeof *l->files));
    hub_file f = {.path = mem_dup(path.p, path.n), .n_bytes = n_bytes};
    TRY(mem_check(f.path));
    memcpy(f.id, id.p, id.n < sizeof f.id ? id.n : sizeof f.id - 1);
    l->files[l->n++] = f;
    return QUIRE_OK;
}

static int hub_listing_compare(const void *a, const void *b) {
    return strcmp(((const hub_file *)a)->path, ((const hub_file *)b)->path);
}

void hub_listing_sort(hub_listing *l) {
    if (l->n > 0) {
        qsort(l->files, l->n, sizeof *l->files, hub_listing_compare);
    }
}

int32_t hub_listing_find(const hub_listing *l, str path) {
    size_t low = 0, high = l->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        str there = str_of(l->files[middle].path);
        int order = memcmp(there.p, path.p, there.n < path.n ? there.n : path.n);
        order = order != 0 ? order : (there.n > path.n) - (there.n < path.n);
        if (order == 0) {
            return (int32_t)middle;
        }
        low = order < 0 ? middle + 1 : low;
        high = order < 0 ? high : middle;
    }
    return -1;
}

/* ---- the hub's answer ---- */

static quire_err hub_listing_bad(const char *repo, const char *what, quire_error *err) {
    return err_set(err, QUIRE_BAD_FILE, -1, "%s: the hub's list of files %s", repo, what);
}

/* One of "siblings": {"rfilename", "size", "blobId", "lfs": {"sha256"}}. */
static quire_err add_sibling(hub_listing *l, const json_value *v, const char *repo, quire_error *err) {
    str path = json_get_str(v, "rfilename"), sha256 = json_get_str(json_get(v, "lfs"), "sha256");
    str id = sha256.n > 0 ? sha256 : json_get_str(v, "blobId");
    int64_t n_bytes = 0;
    if (hub_path_is_hostile(path)) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%s: the hub's list names a file %s, which would leave the cache; nothing was fetched",
                       repo, show_name(path).text);
    }
    if (!hub_path_is_safe(path)) {
        return QUIRE_OK;
    }
    if (!hub_is_digest(id) || (sha256.n > 0 && id.n != 64) || !json_whole(json_get(v, "size"), &n_bytes) ||
        n_bytes < 0) {
        return err_set(
            err, QUIRE_BAD_FILE, -1,
            "%s: the hub's list has no size or no hash of %s, so it could not be proved; is HF_ENDPOINT a "
            "hub?",
            repo, show_name(path).text);
    }
    quire_err e = hub_listing_add(l, path, id, n_bytes);
    return e == QUIRE_OK ? e
                         : err_set(err, e, -1, "%s: %s", repo,
                                   e == QUIRE_TOO_LARGE ? "more files than any model has" : "out of memory");
}

/* "cardData": {"base_model": "ORG/NAME" or a list of such}. */
static void hub_listing_read_base(const json_value *root, char out[194]) {
    const json_value *base = json_get(json_get(root, "cardData"), "base_model");
    str text = json_str(json_is(base, JSON_KIND_ARRAY) ? json_at(base, 0) : base);
    hub_name name;
    if (text.n > 0 && text.n < 194 && hub_name_parse(text.p, &name, NULL) == QUIRE_OK &&
        strlen(name.repo) == text.n) {
        memcpy(out, name.repo, text.n + 1);
    }
}

static quire_err read_answer(const json_value *root, const char *repo, hub_listing *out, quire_error *err) {
    str commit = json_get_str(root, "sha");
    const json_value *files = json_get(root, "siblings");
    if (!hub_is_hex(commit, 40) || !json_is(files, JSON_KIND_ARRAY)) {
        return hub_listing_bad(repo, "has no commit or no files; is HF_ENDPOINT a hub?", err);
    }
    memcpy(out->commit, commit.p, commit.n);
    hub_listing_read_base(root, out->base);
    for (size_t i = 0; i < json_length(files); i++) {
        TRY(add_sibling(out, json_at(files, i), repo, err));
    }
    hub_listing_sort(out);
    for (size_t i = 1; i < out->n; i++) {
        if (strcmp(out->files[i - 1].path, out->files[i].path) == 0) {
            return hub_listing_bad(repo, "names a file twice", err);
        }
    }
    return QUIRE_OK;
}

quire_err hub_listing_parse(str json, const char *repo, hub_listing *out, quire_error *err) {
    json_value *root = NULL;
    json_fault fault;
    *out = (hub_listing){.n = 0};
    quire_err e = json_read(json, &limits, JSON_WIDE_REAL, &root, &fault);
    if (e != QUIRE_OK) {
        return err_set(err, e, (int64_t)fault.at,
                       "%s: the hub's list of files is not JSON at byte %s: %s; is HF_ENDPOINT a hub?", repo,
                       show_count(fault.at).text, fault.what);
    }
    e = read_answer(root, repo, out, err);
    json_drop(root);
    return e;
}
