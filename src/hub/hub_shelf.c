#include "hub/hub_shelf.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>

static quire_err hub_shelf_failed(const char *directory, quire_error *err) {
    return err_set(err, QUIRE_IO, -1, "%s: %s", directory, strerror(errno));
}

quire_err hub_visit_all(const char *directory, hub_visit visit, void *user, quire_error *err) {
    quire_err e = QUIRE_OK;
    struct dirent *entry;
    DIR *d = opendir(directory);
    if (d == NULL) {
        return errno == ENOENT ? QUIRE_OK : hub_shelf_failed(directory, err);
    }
    errno = 0;
    while (e == QUIRE_OK && (entry = readdir(d)) != NULL) {
        const char *name = entry->d_name;
        e = strcmp(name, ".") != 0 && strcmp(name, "..") != 0 ? visit(user, name) : QUIRE_OK;
        errno = 0; /* readdir sets it if it fails */
    }
    e = e == QUIRE_OK && errno != 0 ? hub_shelf_failed(directory, err) : e;
    (void)closedir(d);
    return e;
}

bool hub_repo_of_directory(const char *directory, char repo[194]) {
    hub_name name;
    const char *rest = strncmp(directory, "models--", 8) == 0 ? directory + 8 : "",
               *dashes = strstr(rest, "--");
    if (dashes == NULL || snprintf(repo, 194, "%.*s/%s", (int)(dashes - rest), rest, dashes + 2) >= 194) {
        return false;
    }
    return hub_name_parse(repo, &name, NULL) == QUIRE_OK && strcmp(name.repo, repo) == 0;
}

quire_err hub_repo_directory(const hub_repo *r, const char *name, strbuf *out) {
    return strbuf_addf(out, "%s/%s", r->dir, name);
}

typedef struct ref_search {
    const hub_repo *repo;
    const char *commit;
    char *out;
} ref_search;

static quire_err hub_shelf_visit_ref(void *user, const char *name) {
    const ref_search *x = user;
    char commit[41];
    bool is_it = hub_path_is_safe(str_of(name)) && hub_repo_commit(x->repo, name, commit) &&
                 strcmp(commit, x->commit) == 0;
    bool is_better =
        is_it && (hub_is_hex(str_of(x->out), 40) || strcmp(name, "main") == 0) && strcmp(x->out, "main") != 0;
    if (is_better) {
        (void)snprintf(x->out, 256, "%s", name);
    }
    return QUIRE_OK;
}

void hub_repo_name_commit(const hub_repo *r, const char *commit, char out[256]) {
    strbuf path = {0};
    ref_search x = {r, commit, out};
    (void)snprintf(out, 256, "%s", commit);
    if (hub_repo_directory(r, "refs", &path) == QUIRE_OK) {
        (void)hub_visit_all(path.p, hub_shelf_visit_ref, &x, NULL);
    }
    strbuf_deinit(&path);
}
