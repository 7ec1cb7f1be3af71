#include "cli/dispatch.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/hub.h"
#include "cli/other_models.h"
#include "cli/read_flags.h"
#include "cli/set_flag.h"
#include "json/json_out.h"

/* A program's commands and flags as JSON: `quire help --json`. */

static void write_names(json_out *o, const char *names) {
    json_begin(o, '[');
    while (*names) {
        str name = flag_next_name(&names);
        json_text(json_item(o), name.p, name.n);
    }
    json_end(o, ']');
}

static void write_flag(json_out *o, const flag *f, cli_options *defaults) {
    char value[128];
    static const char *const kinds[] = {"notice", "notice", "notice", "later", "refused"};
    json_begin(o, '{');
    write_names(json_name(o, "names"), f->names);
    json_cstr(json_name(o, "here"), f->type < FLAG_TAKEN ? "works" : kinds[f->type - FLAG_TAKEN]);
    json_cstr(json_name(o, "value"), f->value);
    json_begin(json_name(o, "choices"), '[');
    for (const flag_choice *c = f->choices; c && c->spelling; c++) {
        json_cstr(json_item(o), c->spelling);
    }
    json_end(o, ']');
    json_cstr(json_name(o, "meaning"), f->meaning);
    json_cstr(json_name(o, "default"), command_default(defaults, f, value, sizeof value) ? value : NULL);
    json_cstr(json_name(o, "field"), f->field);
    json_end(o, '}');
}

/* Appends
 * {"commands":[{"name","summary","flags":[{"names":[..],"here","value","choices":[..],"meaning","field"}]}]}.
 * "here" is works, notice (taken without effect), later or refused. NO_MEMORY. */
static quire_err help_json_write(const command *const *commands, strbuf *to) {
    json_out writer = {.to = to}, *o = &writer;
    json_begin(o, '{');
    json_begin(json_name(o, "commands"), '[');
    for (; *commands; commands++) {
        json_begin(json_item(o), '{');
        json_cstr(json_name(o, "name"), (*commands)->name);
        json_cstr(json_name(o, "summary"), (*commands)->summary);
        cli_options *defaults = command_options_new(*commands);
        json_begin(json_name(o, "flags"), '[');
        for (const flag *const *group = (*commands)->flags; *group; group++) {
            for (const flag *f = *group; f->names; f++) {
                json_item(o);
                write_flag(o, f, defaults);
            }
        }
        json_end(o, ']');
        json_end(o, '}');
        command_options_free(defaults);
    }
    json_end(o, ']');
    json_end(o, '}');
    json_raw(o, "\n");
    return o->err;
}

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

/* Runs c with options that were read; returns the exit status. */
static int dispatch_run_command(const command *c, const cli_options *o) {
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

/* Logs which flags had no effect, and which variables were read or are unknown. */
static void say_what_was_taken(const program *p, const cli_options *o) {
    cli_options_set_log(o);
    env_flags_warn(p->commands, p->others, p->variables);
    if (o->from_environment.n && !o->quiet) {
        log_line(LOG_INFO, "from the environment: %s", o->from_environment.p);
    }
    if (o->without_effect.n && !o->quiet) {
        log_line(LOG_INFO, "%s: accepted without effect (docs/flags.md has the reason)", o->without_effect.p);
    }
}

/* Replaces --pack-cache auto by the cache's directory, and none by NULL. */
static void find_pack_cache(const command *c, cli_options *o) {
    const char *given = o->engine.pack_cache;
    if (given && strcmp(given, "auto") == 0) {
        o->engine.pack_cache = o->environment.pack_cache;
        if (!o->engine.pack_cache && c->argument >= ARGUMENT_MODEL) {
            log_line(LOG_WARN, "--pack-cache auto: neither XDG_CACHE_HOME nor HOME names a directory; the "
                               "model starts without a pack cache");
        }
    } else if (given && strcmp(given, "none") == 0) {
        o->engine.pack_cache = NULL;
    }
}

/* Calls c->begin, then fetches models given by name and replaces the names by paths. */
static quire_err fetch_models(const command *c, cli_options *o, quire_error *err) {
    hub_name_server(o);
    if (c->begin) {
        TRY(c->begin(o, err));
    }
    TRY(hub_resolve_models(o, err));
    return other_models_fetch(o, err);
}

/* Runs c after replacing models' names by paths; returns the exit status. */
static int resolve_and_run(const command *c, cli_options *o) {
    quire_error err = {.code = QUIRE_OK, .position = -1};
    quire_err e = QUIRE_OK;
    if (c->argument >= ARGUMENT_MODEL && !o->help && !o->help_all) {
        e = fetch_models(c, o, &err);
    }
    if (e == QUIRE_OK) {
        return dispatch_run_command(c, o);
    }
    log_line(LOG_ERROR, "%s", err.message[0] ? err.message : quire_err_text(e));
    return e == QUIRE_INVALID ? 2 : 1;
}

/* Parses the flags and runs the command; returns the exit status. */
static int dispatch_read_and_run(const program *p, const command *c, int argc, char **argv) {
    quire_error err = {.code = QUIRE_OK, .position = -1};
    cli_options *o = command_options_new(c);
    if (o == NULL) {
        log_line(LOG_ERROR, "out of memory");
        return 1;
    }
    o->environment = p->environment;
    int status = 2;
    const read_flags_from from = {argc, argv, p->variables, p->commands, p->others};
    if (read_flags(o, c, &from, &err) == QUIRE_OK) {
        if (!o->help && !o->help_all) {
            say_what_was_taken(p, o);
        }
        find_pack_cache(c, o);
        status = resolve_and_run(c, o);
    } else {
        log_line(LOG_ERROR, "%s", err.message);
    }
    command_options_free(o);
    return status;
}

void dispatch_list(const command *const *commands) {
    for (; *commands; commands++) {
        printf("  %-17s %s\n", (*commands)->name, (*commands)->summary);
    }
}

/* The command whose name the arguments begin with, or NULL. */
static const command *dispatch_find_command(const program *p, int argc, char **argv) {
    const command *found = NULL;
    for (const command *const *c = p->commands; *c; c++) {
        /* commands of two words come last, so they take precedence */
        found = dispatch_count_words((*c)->name, argc, argv) > 0 ? *c : found;
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
    log_line(LOG_ERROR, "%s: no such command; %s%.*s%s`%s help all` lists them", name,
             near.best.n ? "did you mean " : "", (int)near.best.n, near.best.n ? near.best.p : "",
             near.best.n ? "? " : "", p->name);
    return 2;
}

/* Reports an argument after a command that takes none; returns exit status 2. */
static int refuse_rest(const char *rest, const char *before) {
    log_line(LOG_ERROR, "%s: %s takes no arguments", rest, before);
    return 2;
}

/* Prints `help`, `help all` or `help COMMAND`. argv: the arguments after `help`. */
static int print_help_of(const program *p, int argc, char **argv) {
    bool all = argc > 0 && strcmp(argv[0], "all") == 0;
    const command *found = dispatch_find_command(p, argc, argv);
    if (argc > 0 && !all && !found) {
        return unknown_command(p, argv[0]);
    }
    int n_words = found ? dispatch_count_words(found->name, argc, argv) : all;
    if (argc > n_words) {
        return refuse_rest(argv[n_words], found ? found->name : "all");
    }
    if (found) {
        print_command_help(found, false);
    } else {
        p->help(all);
    }
    return 0;
}

/* Prints `help --json`, `help --man [all|COMMAND]` or `help --completions SHELL`. argv:
 * the arguments after `help`. */
static int print_made_of_rows(const program *p, int argc, char **argv) {
    quire_error err = {.code = QUIRE_OK, .position = -1};
    strbuf text = {0};
    quire_err e;
    if (strcmp(argv[0], "--json") == 0) {
        e = help_json_write(p->commands, &text);
    } else if (strcmp(argv[0], "--man") == 0) {
        bool all = argc > 1 && strcmp(argv[1], "all") == 0;
        const command *found = argc > 1 && !all ? dispatch_find_command(p, argc - 1, argv + 1) : NULL;
        if (argc > 1 && !all && !found) {
            return unknown_command(p, argv[1]);
        }
        e = found ? man_page_command(p, found, &text) : man_page_program(p, all, &text);
    } else if (strcmp(argv[0], "--completions") == 0) {
        e = completions_write(argc > 1 ? argv[1] : "", p->commands, p->others, &text, &err);
    } else {
        e = err_set(&err, QUIRE_INVALID, -1,
                    "help %s: must be help COMMAND, all, --json, --man or --completions", argv[0]);
    }
    if (e == QUIRE_OK) {
        printf("%s", text.p);
    } else {
        log_line(LOG_ERROR, "%s", err.message[0] ? err.message : quire_err_text(e));
    }
    strbuf_deinit(&text);
    return e == QUIRE_OK ? 0 : e == QUIRE_INVALID ? 2 : 1;
}

int dispatch(const program *p, int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "--help";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        p->help(false);
        return argc > 1 ? 0 : 2;
    }
    if (strcmp(name, "help") == 0) {
        return argc > 2 && argv[2][0] == '-' ? print_made_of_rows(p, argc - 2, argv + 2)
                                             : print_help_of(p, argc - 2, argv + 2);
    }
    if (strcmp(name, "--version") == 0) {
        if (argc > 2) {
            return refuse_rest(argv[2], name);
        }
        printf("%s %s\n", p->name, quire_version());
        return 0;
    }
    const command *found = dispatch_find_command(p, argc - 1, argv + 1);
    if (!found) {
        return unknown_command(p, name);
    }
    int n_words = 1 + dispatch_count_words(found->name, argc - 1, argv + 1);
    return dispatch_read_and_run(p, found, argc - n_words, argv + n_words);
}
