/* What a hub answers: a list of files, what is chosen of it, and an index of shards. The
 * first line is what is asked for, the rest up to a 0 byte the list, what follows the
 * index. */
#include <string.h>

#include "fuzz.h"
#include "hub/hub_choose.h"
#include "hub/hub_name.h"

static void check_choice(const hub_listing *l, const hub_choice *c) {
    for (size_t i = 0; i < c->n; i++) {
        fuzz_check(c->files[i] >= 0 && (size_t)c->files[i] < l->n);
        str path = str_of(l->files[c->files[i]].path);
        fuzz_check(hub_path_is_safe(path) && !str_ends(path, ".bin") && !str_ends(path, ".pt") &&
                   !str_ends(path, ".pth"));
    }
    fuzz_check(c->first < (int32_t)l->n);
}

static void choose(const hub_listing *l, const char *pick, str index) {
    quire_error err;
    hub_choice c;
    if (hub_choose(l, "org/name", pick, &c, &err) == QUIRE_OK) {
        fuzz_check(c.n > 0);
        if (c.index >= 0) {
            (void)hub_choose_shards(l, "org/name", index, &c, &err);
        }
        check_choice(l, &c);
    }
    hub_choice_deinit(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data, *line = memchr(data, '\n', size);
    char whole[800] = "org/name";
    hub_name name;
    hub_listing l;
    quire_error err;
    size_t n_line = line != NULL ? (size_t)(line - text) : 0;
    if (n_line > 700) {
        return 0;
    }
    memcpy(whole + strlen(whole), text, n_line);
    str rest = line != NULL ? (str){line + 1, size - n_line - 1} : (str){text, size};
    const char *end = rest.n > 0 ? memchr(rest.p, 0, rest.n) : NULL;
    str json = {rest.p, end != NULL ? (size_t)(end - rest.p) : rest.n};
    str index = end != NULL ? (str){end + 1, rest.n - json.n - 1} : (str){"", 0};
    bool is_name = hub_name_parse(whole, &name, &err) == QUIRE_OK;
    if (hub_listing_parse(json, "org/name", &l, &err) == QUIRE_OK) {
        for (size_t i = 0; i < l.n; i++) {
            fuzz_check(hub_path_is_safe(str_of(l.files[i].path)) && hub_is_digest(str_of(l.files[i].id)) &&
                       l.files[i].n_bytes >= 0);
            fuzz_check(hub_listing_find(&l, str_of(l.files[i].path)) == (int32_t)i);
        }
        choose(&l, is_name ? name.pick : "", index);
    }
    hub_listing_deinit(&l);
    return 0;
}
