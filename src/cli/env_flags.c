#include "cli/env_flags.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/set_flag.h"

#define PREFIX   "QUIRE_"
#define N_PREFIX (sizeof PREFIX - 1)

bool env_flags_name(str spelling, strbuf *to, quire_err *e) {
    if (!str_begins(spelling, "--")) {
        return false;
    }
    if (*e == QUIRE_OK) {
        *e = strbuf_add(to, PREFIX, N_PREFIX);
    }
    for (size_t i = 2; i < spelling.n && *e == QUIRE_OK; i++) {
        char c = spelling.p[i] == '-' ? '_' : (char)toupper((unsigned char)spelling.p[i]);
        *e = strbuf_add(to, &c, 1);
    }
    return true;
}

/* Whether variable, "QUIRE_X" of n bytes, belongs to the spelling. */
static bool is_variable_of(const char *variable, size_t n, str spelling) {
    bool same = str_begins(spelling, "--") && n == N_PREFIX + spelling.n - 2;
    for (size_t i = 2; same && i < spelling.n; i++) {
        char c = variable[N_PREFIX + i - 2];
        same = c == (spelling.p[i] == '-' ? '_' : (char)toupper((unsigned char)spelling.p[i]));
    }
    return same;
}

/* A flag of quire's own; those about the help page, and other servers' flags, have no
 * variables. */
static bool has_variable(const flag *f) {
    return f->type < FLAG_TAKEN && f != flags_help && f != flags_help_all;
}

/* The variable of a flag's first spelling that has one with a value, or NULL. */
static char *find_variable(const flag *f, char **environment) {
    for (const char *names = f->names; *names;) {
        str spelling = flag_next_name(&names);
        for (char **v = environment; *v; v++) {
            size_t n = strcspn(*v, "=");
            if (strncmp(*v, PREFIX, N_PREFIX) == 0 && (*v)[n] == '=' && (*v)[n + 1] != 0 &&
                is_variable_of(*v, n, spelling)) {
                return *v;
            }
        }
    }
    return NULL;
}

/* Kubernetes sets QUIRE_PORT=tcp://10.0.0.1:80 and others for a service that is called
 * quire. */
static bool is_service_link(const char *variable, const char *value) {
    static const char port[] = PREFIX "PORT", service[] = PREFIX "SERVICE_";
    return strncmp(variable, service, sizeof service - 1) == 0 ||
           (strncmp(variable, port, sizeof port - 1) == 0 &&
            (variable[sizeof port - 1] == '_' || strncmp(value, "tcp://", 6) == 0 ||
             strncmp(value, "udp://", 6) == 0));
}

/* Whether the type's value is at the flag's offset. */
static bool has_offset(const flag *f) {
    return f->type <= FLAG_PREFIX || f->type == FLAG_NAMES || f->type == FLAG_PINNED;
}

static bool set_the_same(const flag *a, const flag *b) {
    if (a == b) {
        return true;
    }
    return a->field && b->field ? strcmp(a->field, b->field) == 0
                                : has_offset(a) && has_offset(b) && a->offset == b->offset && a->of == b->of;
}

static bool env_flags_is_given(const flag *f, const flag *const *given) {
    bool found = false;
    for (; *given; given++) {
        found = found || set_the_same(f, *given);
    }
    return found;
}

/* Copies a secret into o, and erases the original. */
static quire_err take_secret(cli_options *o, const char *name, char **value, quire_error *err) {
    size_t n = strlen(*value);
    char *copy = mem_dup(*value, n);
    if (!copy || o->n_secrets == CLI_MAX_SECRETS) {
        mem_free(copy);
        return err_set(err, QUIRE_NO_MEMORY, -1, "%s: out of memory", name);
    }
    memset(*value, 0, n);
    o->secrets[o->n_secrets++] = copy;
    *value = copy;
    return QUIRE_OK;
}

/* Erases all that is left of a flag's variables. */
static void erase(const flag *f, char **environment) {
    for (char *v = find_variable(f, environment); v; v = find_variable(f, environment)) {
        char *value = v + strcspn(v, "=") + 1;
        memset(value, 0, strlen(value));
    }
}

static quire_err read_variable(cli_options *o, const flag *f, const char *name, char *value,
                               quire_error *err) {
    if (flag_is_switch(f)) {
        bool on = false;
        TRY(flag_parse_switch(name, value, &on, err));
        return on ? set_flag(o, f, name, NULL, err) : QUIRE_OK;
    }
    if (f->secret) {
        TRY(take_secret(o, name, &value, err));
    }
    return set_flag(o, f, name, value, err);
}

static quire_err env_flags_read_flag(cli_options *o, const flag *f, char **environment, quire_error *err) {
    char *variable = find_variable(f, environment), name[64];
    size_t n = variable ? strcspn(variable, "=") : 0;
    if (!variable || n >= sizeof name || is_service_link(variable, variable + n + 1)) {
        return QUIRE_OK;
    }
    memcpy(name, variable, n);
    name[n] = 0;
    TRY(read_variable(o, f, name, variable + n + 1, err));
    return err_set(err, strbuf_addf(&o->from_environment, "%s%s", o->from_environment.n ? ", " : "", name),
                   -1, "%s: out of memory", name);
}

quire_err env_flags_read(cli_options *o, const command *c, const flag *const *given, char **environment,
                         quire_error *err) {
    assert(c != NULL);
    for (const flag *const *group = c->flags; environment && *group; group++) {
        for (const flag *f = *group; f->names; f++) {
            bool is_read = has_variable(f) && !env_flags_is_given(f, given);
            if (is_read) {
                TRY(env_flags_read_flag(o, f, environment, err));
            }
            if (f->secret) {
                erase(f, environment); /* the flag was given too */
            }
        }
    }
    return QUIRE_OK;
}

/* ---- variables of no flag ---- */

/* Offers all flags of some commands to near, whose wanted is a spelling; whether one of
 * them is it. */
static bool look_for(const command *const *commands, nearest *near) {
    bool found = false;
    for (; commands && *commands; commands++) {
        for (const flag *const *group = (*commands)->flags; group && *group; group++) {
            for (const flag *f = *group; f->names; f++) {
                if (has_variable(f)) {
                    nearest_offer_all(near, f->names);
                }
            }
        }
        found = found || (near->best.n > 0 && near->distance == 0);
    }
    return found;
}

/* Variables of this repository's tests and tools. */
static bool is_of_tests(const char *variable, size_t n) {
    static const char *const names[] = {"SHARED", "BIN", "FUZZ"};
    str rest = {variable + N_PREFIX, n - N_PREFIX};
    bool is = str_begins(rest, "TEST_");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        is = is || str_is(rest, names[i]);
    }
    return is;
}

static void warn(const command *const *commands, const command *const *others, const char *variable,
                 size_t n) {
    char spelling[EDIT_MAX + 1] = "--";
    size_t length = n - N_PREFIX + 2;
    nearest near = {.wanted = {spelling, length}};
    for (size_t i = 2; i < length && length <= EDIT_MAX; i++) {
        char c = variable[N_PREFIX + i - 2];
        spelling[i] = c == '_' ? '-' : (char)tolower((unsigned char)c);
    }
    if (length <= EDIT_MAX && (look_for(commands, &near) || look_for(others, &near))) {
        return;
    }
    strbuf best = {0};
    quire_err e = QUIRE_OK;
    bool is_near =
        length <= EDIT_MAX && near.best.n > 0 && env_flags_name(near.best, &best, &e) && e == QUIRE_OK;
    log_line(LOG_WARN, "%.*s: a variable of no flag, without effect%s%s%s", (int)n, variable,
             is_near ? "; did you mean " : "", is_near ? best.p : "", is_near ? "?" : "");
    strbuf_deinit(&best);
}

void env_flags_warn(const command *const *commands, const command *const *others, char **environment) {
    for (char **v = environment; v && *v; v++) {
        size_t n = strcspn(*v, "=");
        if (strncmp(*v, PREFIX, N_PREFIX) == 0 && (*v)[n] == '=' && !is_of_tests(*v, n) &&
            !is_service_link(*v, *v + n + 1)) {
            warn(commands, others, *v, n);
        }
    }
}
