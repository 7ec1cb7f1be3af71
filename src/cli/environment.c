#include "cli/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes the path of `name` in the directory that the variable names or, where it names none, in ~/fallback. NULL: there is neither. */
static const char *find_place(const char *variable, const char *fallback, const char *name, char path[4096]) {
    const char *place = getenv(variable), *home = getenv("HOME");
    bool by_place = place && place[0] == '/'; /* others are to be ignored */
    int n = by_place ? snprintf(path, 4096, "%s/%s", place, name) : snprintf(path, 4096, "%s/%s/%s", home ? home : "", fallback, name);
    return (by_place || (home && home[0] == '/')) && n > 0 && n < 4096 ? path : NULL;
}

/* A variable's value; NULL where it is missing or empty. */
static const char *value_of(const char *variable) {
    const char *value = getenv(variable);
    return value && value[0] ? value : NULL;
}

/* Writes directory/name. NULL: there is no directory, or the path is too long. */
static const char *join(const char *directory, const char *name, char path[4096]) {
    int n = directory ? snprintf(path, 4096, "%s/%s", directory, name) : -1;
    return n > 0 && n < 4096 ? path : NULL;
}

void environment_read_hub(cli_environment *out) {
    static char own_home[4096], cache[4096], token_file[4096];
    const char *home = value_of("HF_HOME"), *offline = value_of("HF_HUB_OFFLINE");
    home = home ? home : find_place("XDG_CACHE_HOME", ".cache", "huggingface", own_home);
    out->hub_cache = value_of("HF_HUB_CACHE");
    out->hub_cache = out->hub_cache ? out->hub_cache : join(home, "hub", cache);
    out->hub_token = value_of("HF_TOKEN");
    out->hub_token_file = value_of("HF_TOKEN_PATH");
    out->hub_token_file = out->hub_token_file ? out->hub_token_file : join(home, "token", token_file);
    out->hub_endpoint = value_of("HF_ENDPOINT");
    out->hub_ca_file = value_of("SSL_CERT_FILE");
    out->hub_timeout = value_of("HF_HUB_DOWNLOAD_TIMEOUT");
    out->hub_offline = offline && strchr("1tTyYoO", offline[0]) != NULL && strcmp(offline, "off") != 0 && strcmp(offline, "OFF") != 0;
}

void environment_read(cli_environment *out) {
    static char history[4096], cache[4096];
    const char *term = getenv("TERM");
    out->history_file = find_place("XDG_STATE_HOME", ".local/state", "quire/history", history);
    out->pack_cache = find_place("XDG_CACHE_HOME", ".cache", "quire", cache);
    out->plain_terminal = !term || !term[0] || strcmp(term, "dumb") == 0;
    environment_read_hub(out);
}
