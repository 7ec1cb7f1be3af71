#include "cli/dispatch.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "cli/help_json.h"
#include "cli/read_flags.h"

int dispatch_count_words(const char *name, int argc, char **argv) {
    int n = 0;
    for (const char *p = name; *p; n++) {
        size_t length = strcspn(p, " ");
        if (n >= argc || strlen(argv[n]) != length || strncmp(argv[n], p, length) != 0) {
            return 0;
        }
        p += length + (p[length] == ' ');
    }
    return n;
}

static void print_command_help(const command *c, bool all) {
    printf("usage: %s\n%s\n\n", c->usage, c->summary);
    read_flags_help(c, all);
    printf("\nexamples:\n%s", c->examples);
}

/* Runs c with options that have been read; the exit status. */
static int run_command(const command *c, const cli_options *o) {
    quire_error err = {.code = QUIRE_OK, .position = -1};
    if (o->help || o->help_all) {
        print_command_help(c, o->help_all);
        return 0;
    }
    quire_err e = c->run(o, &err);
    if (e == QUIRE_OK) {
        return 0;
    }
    log_line(LOG_ERROR, "%s", err.message[0] ? err.message : quire_err_text(e));
    return e == QUIRE_INVALID ? 2 : 1;
}

/* Parses the flags and runs the command; returns the exit status. */
static int read_and_run(const program *p, const command *c, int argc, char **argv) {
    quire_error err = {.code = QUIRE_OK, .position = -1};
    cli_options *o = mem_new(1, c->options_size);
    if (!o) {
        log_line(LOG_ERROR, "out of memory");
        return 1;
    }
    cli_options_init(o);
    o->environment = p->environment;
    if (c->defaults) {
        c->defaults(o);
    }
    int status = 2;
    if (read_flags(o, c, p->commands, p->others, argc, argv, &err) == QUIRE_OK) {
        if (o->without_effect.n && !o->quiet && !o->help && !o->help_all) {
            log_line(LOG_INFO, "%s: taken without effect (docs/flags.md says why)", o->without_effect.p);
        }
        status = run_command(c, o);
    } else {
        log_line(LOG_ERROR, "%s", err.message);
    }
    cli_options_deinit(o);
    mem_free(o);
    return status;
}

void dispatch_list(const command *const *commands) {
    for (; *commands; commands++) {
        printf("  %-16s %s\n", (*commands)->name, (*commands)->summary);
    }
}

/* The command whose name the arguments begin with, or NULL. */
static const command *find_command(const program *p, int argc, char **argv) {
    const command *found = NULL;
    for (const command *const *c = p->commands; *c; c++) {
        found = dispatch_count_words((*c)->name, argc, argv) > 0 ? *c : found; /* the last: that of two words */
    }
    return found;
}

static int unknown_command(const program *p, const char *name) {
    nearest near = {.wanted = str_of(name)};
    for (const command *const *c = p->commands; *c; c++) {
        nearest_offer(&near, str_of((*c)->name));
    }
    for (const command *const *c = p->others; c && *c; c++) {
        nearest_offer(&near, str_of((*c)->name));
    }
    log_line(LOG_ERROR, "%s: no such command; %s%.*s%s`%s help all` lists them", name, near.best.n ? "did you mean " : "",
             (int)near.best.n, near.best.n ? near.best.p : "", near.best.n ? "? " : "", p->name);
    return 2;
}

/* `help`, `help all` and `help COMMAND`: argv is what follows. */
static int print_help_of(const program *p, int argc, char **argv) {
    bool all = argc > 0 && strcmp(argv[0], "all") == 0;
    const command *found = find_command(p, argc, argv);
    if (argc > 0 && !all && !found) {
        return unknown_command(p, argv[0]);
    }
    if (found) {
        print_command_help(found, false);
    } else {
        p->help(all);
    }
    return 0;
}

int dispatch(const program *p, int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "--help";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        p->help(false);
        return argc > 1 ? 0 : 2;
    }
    if (strcmp(name, "help") == 0 && argc > 2 && strcmp(argv[2], "--json") == 0) {
        return help_json_print(p->commands) == QUIRE_OK ? 0 : 1;
    }
    if (strcmp(name, "help") == 0) {
        return print_help_of(p, argc - 2, argv + 2);
    }
    if (strcmp(name, "--version") == 0) {
        printf("%s %s\n", p->name, quire_version());
        return 0;
    }
    const command *found = find_command(p, argc - 1, argv + 1);
    if (!found) {
        return unknown_command(p, name);
    }
    int n_words = 1 + dispatch_count_words(found->name, argc - 1, argv + 1);
    return read_and_run(p, found, argc - n_words, argv + n_words);
}
