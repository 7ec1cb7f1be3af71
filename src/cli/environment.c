#include "cli/environment.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Writes the path of `name` in the directory that `variable` has, else in ~/fallback.
 * NULL: there is neither, or the path is too long. */
static const char *environment_find_place(const char *variable, const char *fallback, const char *name,
                                          char path[4096]) {
    const char *place = getenv(variable), *home = getenv("HOME");
    bool by_place = place && place[0] == '/'; /* relative paths are ignored */
    int n = by_place ? snprintf(path, 4096, "%s/%s", place, name)
                     : snprintf(path, 4096, "%s/%s/%s", home ? home : "", fallback, name);
    return (by_place || (home && home[0] == '/')) && n > 0 && n < 4096 ? path : NULL;
}

/* A variable's value; NULL if it is missing or empty. */
static const char *environment_value_of(const char *variable) {
    const char *value = getenv(variable);
    return value && value[0] ? value : NULL;
}

/* The path in a variable, with a leading ~ or ~/ replaced by the home directory; NULL:
 * the variable is missing or empty. */
static const char *environment_path_of(const char *variable, char path[4096]) {
    const char *value = environment_value_of(variable), *home = environment_value_of("HOME");
    bool is_at_home = value && home && value[0] == '~' && (value[1] == 0 || value[1] == '/');
    int n = is_at_home ? snprintf(path, 4096, "%s%s", home, value + 1) : -1;
    return n > 0 && n < 4096 ? path : value;
}

/* Whether huggingface_hub reads the value as true. */
static bool is_on(const char *value) {
    static const char *const words[] = {"1", "on", "yes", "true"};
    bool on = false;
    for (size_t i = 0; value && i < sizeof words / sizeof *words; i++) {
        on = on || strcasecmp(words[i], value) == 0;
    }
    return on;
}

/* Writes directory/name. NULL: there is no directory, or the path is too long. */
static const char *environment_join(const char *directory, const char *name, char path[4096]) {
    int n = directory ? snprintf(path, 4096, "%s/%s", directory, name) : -1;
    return n > 0 && n < 4096 ? path : NULL;
}

void environment_read_hub(cli_environment *out) {
    static char own_home[4096], given_home[4096], cache[4096], given_cache[4096], token_file[4096],
        given_token_file[4096];
    const char *home = environment_path_of("HF_HOME", given_home);
    home = home ? home : environment_find_place("XDG_CACHE_HOME", ".cache", "huggingface", own_home);
    out->hub_cache = environment_path_of("HF_HUB_CACHE", given_cache);
    out->hub_cache = out->hub_cache ? out->hub_cache : environment_join(home, "hub", cache);
    out->hub_token = environment_value_of("HF_TOKEN");
    out->hub_token_file = environment_path_of("HF_TOKEN_PATH", given_token_file);
    out->hub_token_file =
        out->hub_token_file ? out->hub_token_file : environment_join(home, "token", token_file);
    out->hub_endpoint = environment_value_of("HF_ENDPOINT");
    out->hub_ca_file = environment_value_of("SSL_CERT_FILE");
    out->hub_timeout = environment_value_of("HF_HUB_DOWNLOAD_TIMEOUT");
    out->hub_offline = is_on(environment_value_of("HF_HUB_OFFLINE"));
}

void environment_read(cli_environment *out) {
    assert(out != NULL);
    static char history[4096], cache[4096];
    const char *term = getenv("TERM");
    out->history_file = environment_find_place("XDG_STATE_HOME", ".local/state", "quire/history", history);
    out->pack_cache = environment_find_place("XDG_CACHE_HOME", ".cache", "quire", cache);
    out->plain_terminal = !term || !term[0] || strcmp(term, "dumb") == 0;
    out->openai_key = environment_value_of("OPENAI_API_KEY");
    environment_read_hub(out);
}
