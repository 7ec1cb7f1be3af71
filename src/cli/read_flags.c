#include "cli/read_flags.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/set_flag.h"

static const flag *find_flag(str name, const command *c) {
    for (const flag *const *group = c->flags; group && *group; group++) {
        for (const flag *f = *group; f->names; f++) {
            if (flag_is(f, name)) {
                return f;
            }
        }
    }
    return NULL;
}

/* The first command of a list that has the flag, or NULL. */
static const command *find_owner(str name, const command *const *commands) {
    for (; commands && *commands; commands++) {
        if (find_flag(name, *commands)) {
            return *commands;
        }
    }
    return NULL;
}

static quire_err unknown_flag(str name, const command *c, const command *owner, quire_error *err) {
    if (owner) {
        return err_set(err, QUIRE_INVALID, -1,
                       "%.*s: a flag of `quire %s`, not of `quire %s`; `quire %s --help` lists those",
                       (int)name.n, name.p, owner->name, c->name, c->name);
    }
    nearest near = {.wanted = name};
    for (const flag *const *group = c->flags; *group; group++) {
        for (const flag *f = *group; f->names; f++) {
            nearest_offer_all(&near, f->type < FLAG_LATER ? f->names : "");
        }
    }
    return err_set(err, QUIRE_INVALID, -1, "%.*s: no such flag; %s%.*s%s`quire %s --help%s` lists them",
                   (int)name.n, name.p, near.best.n ? "did you mean " : "", (int)near.best.n,
                   near.best.p ? near.best.p : "", near.best.n ? "? " : "", c->name,
                   find_flag(str_of("--help-all"), c) ? "-all" : "");
}

/* --chat-template: reads the file, unless the value itself looks like a template. */
static quire_err resolve_template(cli_options *o, quire_error *err) {
    if (!o->chat_template) {
        return QUIRE_OK;
    }
    if (strchr(o->chat_template, '{')) {
        o->engine.chat_template = o->chat_template;
        return QUIRE_OK;
    }
    quire_err e = files_read_text(o->chat_template, &o->template_text, err);
    if (e != QUIRE_OK) {
        return err_prefix(err, e, "--chat-template (a file, or a template's text)");
    }
    o->engine.chat_template = o->template_text.n ? o->template_text.p : "";
    return QUIRE_OK;
}

/* --public-prefix: reads the text of each file, or the ids of a .json file. */
static quire_err resolve_prefixes(cli_options *o, quire_error *err) {
    for (int32_t i = 0; i < o->engine.n_public_prefixes; i++) {
        const char *path = o->prefix_files[i];
        size_t n = strlen(path);
        bool is_json = n > 5 && strcmp(path + n - 5, ".json") == 0;
        quire_err e = is_json ? id_list_read(path, &o->prefix_ids[i], err)
                              : files_read_text(path, &o->prefix_texts[i], err);
        if (e != QUIRE_OK) {
            return err_prefix(err, e, "--public-prefix");
        }
        const strbuf *text = &o->prefix_texts[i];
        o->prefixes[i] =
            (quire_prefix){text->n ? text->p : "", text->n, o->prefix_ids[i].ids, o->prefix_ids[i].n};
    }
    o->engine.public_prefixes = o->prefixes;
    return QUIRE_OK;
}

/* The flag's name in an argument: the part before the '=' of a long flag. */
static str flag_name(const char *arg) {
    const char *equals = strncmp(arg, "--", 2) == 0 ? strchr(arg, '=') : NULL;
    return (str){arg, equals ? (size_t)(equals - arg) : strlen(arg)};
}

/* Reads argument *i, which is flag f with this name, and moves *i to the last argument of
 * its value. */
static quire_err parse_flag(cli_options *o, const flag *f, str name, int argc, char **argv, int *i,
                            quire_error *err) {
    const char *equals = name.p[name.n] == '=' ? name.p + name.n : NULL;
    char label[64];
    snprintf(label, sizeof label, "%.*s", (int)name.n, name.p);
    bool is_switch = flag_is_switch(f);
    if (f->type == FLAG_LATER || f->type == FLAG_REFUSED) {
        return set_flag(o, f, label, NULL, err);
    }
    if (is_switch && equals) {
        return err_set(err, QUIRE_INVALID, -1, "%s: takes no value", label);
    }
    const char *value = equals ? equals + 1 : NULL;
    bool may_lack =
        f->type == FLAG_TAKEN_CHOICE && (*i + 1 >= argc || !flag_choice_find(f->choices, argv[*i + 1]));
    if (!is_switch && !value && !may_lack) {
        if (*i + 1 >= argc) {
            return err_set(err, QUIRE_INVALID, -1, "%s: needs a value: %s", label,
                           f->value ? f->value : f->meaning);
        }
        value = argv[++*i];
    }
    TRY(set_flag(o, f, label, value, err));
    while (*i + 1 < argc && set_flag_takes(f, argv[*i + 1])) {
        TRY(set_flag(o, f, label, argv[++*i], err));
    }
    return QUIRE_OK;
}

/* Finds the model once all flags are read. positional: the argument that is not a flag,
 * or NULL. */
static quire_err read_flags_resolve_model(cli_options *o, const command *c, const char *positional,
                                          quire_error *err) {
    /* --served-model-name NAME MODEL */
    if (!positional && !o->engine.model && !o->hf_repo && o->server.n_served_model_names > 1) {
        positional = o->served_names[--o->server.n_served_model_names];
    }
    if (o->hf_repo && (positional || o->engine.model)) {
        return err_set(err, QUIRE_INVALID, -1, "%s: the model is given twice (the other is -hf %s)",
                       positional ? positional : o->engine.model, o->hf_repo);
    }
    o->engine.model = o->hf_repo ? o->hf_repo : o->engine.model;
    if (positional && o->engine.model) {
        return err_set(err, QUIRE_INVALID, -1, "%s: the model is given twice (the other is --model %s)",
                       positional, o->engine.model);
    }
    if (positional) {
        o->engine.model = positional;
    }
    if (c->argument == ARGUMENT_MODEL_OR_NONE) {
        return QUIRE_OK;
    }
    if (!o->engine.model && (c->argument == ARGUMENT_MODEL || c->argument == ARGUMENT_MODEL_FILE ||
                             (c->argument == ARGUMENT_MODELS && !o->model_dir))) {
        return err_set(err, QUIRE_INVALID, -1,
                       "quire %s needs a MODEL: a .gguf file, a Hugging Face directory, a packed model, "
                       "builtin, or ORG/NAME of the hub",
                       c->name);
    }
    if (!o->engine.model) {
        o->engine.model = "builtin";
    }
    o->server.api_keys = o->api_keys;
    o->server.served_model_names = o->served_names;
    TRY(resolve_template(o, err));
    return resolve_prefixes(o, err);
}

static quire_err second_argument(const command *c, const char *arg, const char *first, quire_error *err) {
    const char *what = c->argument == ARGUMENT_TRACE        ? "TRACE"
                       : c->argument == ARGUMENT_NAME       ? "NAME"
                       : c->argument == ARGUMENT_MODEL_FILE ? "FILE"
                                                            : "MODEL";
    return err_set(err, QUIRE_INVALID, -1, "%s: one %s is enough (it is %s)%s", arg, what, first,
                   c->argument == ARGUMENT_MODEL_OR_BUILTIN ? "; a prompt goes after -p" : "");
}

/* A parsed command line: its flags, and its arguments that are not flags. */
typedef struct command_line {
    const flag **given; /* see cli_options.given */
    int n_given;
    const char *positional; /* the first argument that is not a flag; NULL: none */
    const char *file;       /* the second one, for ARGUMENT_MODEL_FILE; NULL: none */
} command_line;

static quire_err read_arguments(cli_options *o, const command *c, const command *const *commands,
                                const command *const *others, int argc, char **argv, command_line *line,
                                quire_error *err) {
    for (int i = 0; i < argc; i++) {
        if (argv[i][0] == '-' && argv[i][1] != 0) {
            str name = flag_name(argv[i]);
            const flag *f = find_flag(name, c);
            if (!f) {
                const command *owner = find_owner(name, others);
                return unknown_flag(name, c, owner ? owner : find_owner(name, commands), err);
            }
            line->given[line->n_given++] = f;
            TRY(parse_flag(o, f, name, argc, argv, &i, err));
        } else if (c->argument == ARGUMENT_NONE) {
            return err_set(err, QUIRE_INVALID, -1, "%s: `quire %s` takes flags only", argv[i], c->name);
        } else if (line->positional && c->argument == ARGUMENT_MODEL_FILE && !line->file) {
            line->file = argv[i];
        } else if (line->positional && c->argument == ARGUMENT_MODELS && o->n_more_models < CLI_MAX_MODELS) {
            o->more_models[o->n_more_models++] = argv[i];
        } else if (line->positional) {
            return second_argument(c, argv[i], line->file ? line->file : line->positional, err);
        } else {
            line->positional = argv[i];
        }
    }
    return QUIRE_OK;
}

static quire_err read_flags_read_all(cli_options *o, const command *c, const read_flags_from *from,
                                     command_line *line, quire_error *err) {
    TRY(read_arguments(o, c, from->commands, from->others, from->argc, from->argv, line, err));
    if (o->help || o->help_all) {
        return QUIRE_OK;
    }
    if (c->argument == ARGUMENT_MODEL_FILE && o->engine.model && !line->file) { /* --model MODEL FILE */
        line->file = line->positional;
        line->positional = NULL;
    }
    const flag *model =
        line->positional && c->argument >= ARGUMENT_MODEL ? find_flag(str_of("--model"), c) : NULL;
    if (model) {
        line->given[line->n_given++] = model;
    }
    TRY(env_flags_read(o, c, line->given, from->variables, err));
    if (c->argument == ARGUMENT_NAME || c->argument == ARGUMENT_TRACE) {
        o->argument = line->positional;
    } else if (c->argument == ARGUMENT_MODEL_FILE) {
        o->argument = line->file;
    }
    return c->argument >= ARGUMENT_MODEL ? read_flags_resolve_model(o, c, line->positional, err) : QUIRE_OK;
}

quire_err read_flags(cli_options *o, const command *c, const read_flags_from *from, quire_error *err) {
    assert(o != NULL && from != NULL);
    o->n_arguments = from->argc;
    o->arguments = from->argv;
    /* room for each argument, the model and NULL */
    command_line line = {.given = mem_new((size_t)from->argc + 2, sizeof *line.given)};
    quire_err e = line.given ? read_flags_read_all(o, c, from, &line, err)
                             : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    o->given = line.given;
    return e;
}

bool read_flags_gave(const cli_options *o, const char *name) {
    assert(o != NULL);
    bool gave = false;
    for (const flag *const *f = o->given; f && *f; f++) {
        gave = gave || flag_is(*f, str_of(name));
    }
    return gave;
}

enum { HELP_COLUMN = 36 }; /* width of the column with a flag's names and value */

/* Prints a flag: short name, Quire's name and value ("-n, --max-tokens N"), then its
 * meaning and default. */
static void print_flag(const flag *f, cli_options *defaults) {
    char meaning[COMMAND_MEANING_BYTES];
    char out[128];
    size_t n = sizeof out, own = strcspn(f->names, " "), used = 0;
    const char *brief = strstr(f->names, " -");
    while (brief && brief[2] == '-') {
        brief = strstr(brief + 1, " -");
    }
    if (brief) {
        used = (size_t)snprintf(out, n, "%.*s, ", (int)strcspn(brief + 1, " "), brief + 1);
    }
    used += (size_t)snprintf(out + used, n - used, "%.*s ", (int)own, f->names);
    for (const flag_choice *c = f->choices; c && c->spelling && used < n; c++) {
        if (flag_choice_is_shown(f, c)) {
            used += (size_t)snprintf(out + used, n - used, "%s%s", c == f->choices ? "" : "|", c->spelling);
        }
    }
    if (f->value && used < n) {
        snprintf(out + used, n - used, "%s", f->value);
    }
    command_meaning(defaults, f, meaning, sizeof meaning);
    printf("  %-*s %s%s\n", HELP_COLUMN, out, strlen(out) > HELP_COLUMN ? " " : "", meaning);
}

void read_flags_help(const command *c, bool all) {
    assert(c != NULL);
    cli_options *defaults = command_options_new(c);
    int n_left_out = 0;
    for (const flag *const *group = c->flags; *group; group++) {
        for (const flag *f = *group; f->names; f++) {
            if (!flag_is_own(f)) {
                continue;
            }
            if (f->rare && !all) {
                n_left_out++;
                continue;
            }
            print_flag(f, defaults);
        }
    }
    if (n_left_out > 1) { /* more flags than --help-all itself are left out */
        printf("  %-*s these and %d more\n", HELP_COLUMN, "--help-all", n_left_out - 1);
    }
    command_options_free(defaults);
}

/* ---- flags that change nothing ---- */

enum { LONGEST_NAME = 48 };

/* The modes of `quire run`. */
enum { RUN_PROMPT = 1, RUN_BATCH = 2, RUN_CHAT = 4, RUN_LINES = 8, RUN_ROWS = 16, RUN_PROGRAM = 32 };
enum { RUN_TEXT = RUN_PROMPT | RUN_BATCH | RUN_CHAT | RUN_LINES };

/* For each mode: why a flag has no effect in it, and what to do. */
static const struct {
    int way;
    const char *reason;
} reasons[] = {
    {RUN_PROMPT, "without effect on a single prompt, which is completed as it stands; leave it out, or chat: "
                 "on a terminal without a prompt, or with messages in --prompts"},
    {RUN_BATCH, "without effect on --prompts; leave it out: each line is a request with its own messages and "
                "fields (docs/batch.md)"},
    {RUN_CHAT, "without effect in a chat; leave it out, or give a prompt with -p or -f"},
    {RUN_LINES, "without effect where --complete has each line completed by itself; leave one of them out"},
    {RUN_PROGRAM, "without effect on --program; leave it out: its steps have their own fields "
                  "(docs/programs.md)"},
    {RUN_ROWS, "without effect on --embed, which gives rows in place of text; leave it out"},
};

/* The modes in which flags have an effect; flags that are not listed have one in all
 * modes. --complete is allowed with a prompt, which is completed anyway. */
static const struct {
    const char *name;
    int ways;
} effects[] = {
    {"--system", RUN_CHAT},
    {"--complete", RUN_PROMPT | RUN_LINES},
    {"--no-history", RUN_CHAT | RUN_LINES},
    {"--echo", RUN_PROMPT},
    {"--out", RUN_PROMPT | RUN_BATCH | RUN_ROWS},
    {"--resume", RUN_TEXT}, /* batch_file_check requires --prompts with it */
    {"--prompts", RUN_TEXT | RUN_ROWS},
    {"--program", RUN_PROGRAM},
    {"--api", RUN_PROGRAM},
    {"--api-speculation", RUN_PROGRAM},
    {"--chat-template", RUN_BATCH | RUN_CHAT | RUN_PROGRAM},
    {"--special-tokens-in-messages", RUN_BATCH | RUN_CHAT | RUN_PROGRAM},
    {"--generation-config", RUN_TEXT | RUN_PROGRAM},
};

/* Groups of flags that affect generated text only. */
static const flag *const of_text[] = {flags_sampling, flags_more_sampling, flags_rules, flags_ending};

static str own_name(const flag *f) {
    return (str){f->names, strcspn(f->names, " ")};
}

static int ways_of(const flag *f) {
    for (size_t i = 0; i < sizeof effects / sizeof *effects; i++) {
        if (str_is(own_name(f), effects[i].name)) {
            return effects[i].ways;
        }
    }
    for (size_t i = 0; i < sizeof of_text / sizeof *of_text; i++) {
        for (const flag *other = of_text[i]; other->names; other++) {
            if (other == f) {
                return RUN_TEXT;
            }
        }
    }
    return RUN_TEXT | RUN_ROWS | RUN_PROGRAM;
}

static quire_err cli_unused_flags_refuse(const flag *f, int way, quire_error *err) {
    str name = own_name(f);
    const char *reason = "";
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        reason = reasons[i].way == way ? reasons[i].reason : reason;
    }
    return err_set(err, QUIRE_INVALID, -1, "%.*s: %s", (int)name.n, name.p, reason);
}

quire_err unused_flags_refuse(const cli_options *o, const char *names, const char *why, quire_error *err) {
    for (const char *at = names; *at != '\0'; at += strspn(at, " ")) {
        char name[LONGEST_NAME];
        size_t n = strcspn(at, " ");
        (void)snprintf(name, sizeof name, "%.*s", (int)n, at);
        if (read_flags_gave(o, name)) {
            return err_set(err, QUIRE_INVALID, -1, "%s does nothing %s", name, why);
        }
        at += n;
    }
    return QUIRE_OK;
}

quire_err unused_flags_check_run(const cli_options *o, bool has_prompt, quire_error *err) {
    assert(o != NULL);
    int way = o->embed      ? RUN_ROWS
              : o->program  ? RUN_PROGRAM
              : o->prompts  ? RUN_BATCH
              : has_prompt  ? RUN_PROMPT
              : o->complete ? RUN_LINES
                            : RUN_CHAT;
    for (const flag *const *f = o->given; f && *f; f++) {
        if ((ways_of(*f) & way) == 0) {
            TRY(cli_unused_flags_refuse(*f, way, err));
        }
    }
    return QUIRE_OK;
}

quire_err unused_flags_check_tokenize(const cli_options *o, quire_error *err) {
    TRY(unused_flags_refuse(o, "--override-kv --hf-overrides",
                            "here, where the tokenizer is taken as its file has it; leave it out", err));
    return o->ids ? unused_flags_refuse(o, "--ids",
                                        "beside --decode, which prints a text; leave one of them out", err)
                  : QUIRE_OK;
}
