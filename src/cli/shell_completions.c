/* Makes completions for bash, zsh and fish from the rows of commands and flags. */
#include "cli/dispatch.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "cli/commands.h"
#include "cli/set_flag.h"

/* A script being written. After the first failure, which `e` keeps, nothing is appended.
 * lists: the commands to complete. */
typedef struct script {
    strbuf *to;
    quire_err e;
    const command *const *lists[2]; /* each ends with NULL; the second may be NULL */
} script;

typedef enum completed { COMPLETED_NONE, COMPLETED_WORDS, COMPLETED_FILES } completed;

static void script_add(script *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void completions_bash(script *s);
static void completions_zsh(script *s);
static void completions_fish(script *s);

static void script_add(script *s, const char *format, ...) {
    char text[4096];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (s->e == QUIRE_OK) {
        s->e = n < 0 || (size_t)n >= sizeof text ? QUIRE_TOO_LARGE : strbuf_add(s->to, text, (size_t)n);
    }
}

/* Appends text for use inside single quotes: each ' is replaced by `quote`. */
static void script_add_quoted(script *s, const char *text, const char *quote) {
    for (; *text; text++) {
        if (*text == '\'') {
            script_add(s, "%s", quote);
        } else {
            script_add(s, "%c", *text);
        }
    }
}

/* Appends the words that a flag's value may be, as in --help, separated by spaces. */
static void script_add_words(script *s, const flag *f) {
    const char *between = "";
    for (const flag_choice *c = f->choices; c->spelling; c++) {
        if (flag_choice_is_shown(f, c)) {
            script_add(s, "%s%s", between, c->spelling);
            between = " ";
        }
    }
}

static bool names_a_file(const char *value) {
    static const char *const words[] = {"FILE", "DIR", "PATH", "MODEL", "TRACE"};
    bool is = false;
    for (size_t i = 0; value && i < sizeof words / sizeof *words; i++) {
        is = is || strstr(value, words[i]) != NULL;
    }
    return is;
}

static completed script_completed(const flag *f) {
    return f->type == FLAG_CHOICE || f->type == FLAG_NAME || f->type == FLAG_FIELD_CHOICE ? COMPLETED_WORDS
           : names_a_file(f->value)                                                       ? COMPLETED_FILES
                                                                                          : COMPLETED_NONE;
}

/* Whether a command's argument is a file. */
static bool script_takes_file(const command *c) {
    return c->argument >= ARGUMENT_MODEL || c->argument == ARGUMENT_TRACE;
}

/* The i-th command, or NULL after the last. */
static const command *script_command(const script *s, int i) {
    for (size_t k = 0; k < sizeof s->lists / sizeof *s->lists; k++) {
        for (const command *const *c = s->lists[k]; c && *c; c++, i--) {
            if (i == 0) {
                return *c;
            }
        }
    }
    return NULL;
}

/* The i-th of a command's own flags, or NULL after the last. */
static const flag *script_flag(const command *c, int i) {
    for (const flag *const *group = c->flags; group && *group; group++) {
        for (const flag *f = *group; f->names; f++) {
            if (flag_is_own(f) && i-- == 0) {
                return f;
            }
        }
    }
    return NULL;
}

/* A command's name with underscores, in buf: "bench_kv" for "bench kv". */
static const char *script_function(const command *c, char buf[64]) {
    (void)snprintf(buf, 64, "%s", c->name);
    for (char *p = buf; *p; p++) {
        *p = *p == ' ' ? '_' : *p;
    }
    return buf;
}

quire_err completions_write(const char *shell, const command *const *commands, const command *const *others,
                            strbuf *to, quire_error *err) {
    static const struct {
        const char *name;
        void (*write)(script *s);
    } shells[] = {{"bash", completions_bash}, {"zsh", completions_zsh}, {"fish", completions_fish}};
    script s = {.to = to, .lists = {commands, others}};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
        if (strcmp(shells[i].name, shell) == 0) {
            shells[i].write(&s);
            return err_set(err, s.e, -1, "out of memory");
        }
    }
    return err_set(err, QUIRE_INVALID, -1, "--completions %s: must be one of bash, zsh, fish", shell);
}

static const char head[] = //
    "# bash completion of quire, made by `quire help --completions bash`\n"
    "\n"
    "_quire_among() { # WORDS: those that go on from what is typed\n"
    "    mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$cur\")\n"
    "}\n"
    "_quire_files() {\n"
    "    compopt -o filenames 2>/dev/null\n"
    "    mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
    "}\n"
    "_quire_model() {\n"
    "    _quire_files\n"
    "    [[ builtin == \"$cur\"* ]] && COMPREPLY+=(builtin)\n"
    "}\n"
    "_quire_flags() { # OWN OTHERS: names of flags, and further names of the same, offered where none of the "
    "first goes on\n"
    "    _quire_among \"$1\"\n"
    "    [[ ${#COMPREPLY[@]} -gt 0 ]] || _quire_among \"$2\"\n"
    "}\n";

static const char main_begin[] = //
    "_quire() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} helps= command\n"
    "    if [[ $cur == = ]]; then\n"
    "        cur=\n"
    "    elif [[ $prev == = ]]; then\n"
    "        prev=${COMP_WORDS[COMP_CWORD-2]}\n"
    "    fi\n"
    "    COMPREPLY=()\n"
    "    local before=(\"${COMP_WORDS[@]:1:COMP_CWORD-1}\")\n"
    "    if [[ ${before[0]} == help ]]; then\n"
    "        helps=1\n"
    "        before=(\"${before[@]:1}\")\n"
    "    fi\n"
    "    if [[ ${#before[@]} -eq 0 ]]; then\n"
    "        _quire_among \"";

/* Writes a `case` pattern of all spellings of a command's flags that are completed as
 * `how`; of flag `only`, if that is not NULL. False: there are none. */
static bool add_pattern(script *s, const command *c, completed how, const flag *only) {
    bool any = false;
    for (int i = 0; script_flag(c, i); i++) {
        const flag *f = script_flag(c, i);
        if (flag_is_switch(f) || script_completed(f) != how || (only && f != only)) {
            continue;
        }
        for (const char *names = f->names; *names; any = true) {
            str name = flag_next_name(&names);
            script_add(s, "%s%.*s", any ? "|" : "    ", (int)name.n, name.p);
        }
    }
    return any;
}

static void add_values(script *s, const command *c) {
    script_add(s, "    case $prev in\n");
    for (int i = 0; script_flag(c, i); i++) {
        const flag *f = script_flag(c, i);
        if (script_completed(f) == COMPLETED_WORDS && add_pattern(s, c, COMPLETED_WORDS, f)) {
            script_add(s, ") _quire_among '");
            script_add_words(s, f);
            script_add(s, "'; return ;;\n");
        }
    }
    if (add_pattern(s, c, COMPLETED_FILES, NULL)) {
        script_add(s, ") _quire_files; return ;;\n");
    }
    if (add_pattern(s, c, COMPLETED_NONE, NULL)) {
        script_add(s, ") return ;;\n");
    }
    script_add(s, "    esac\n");
}

/* Appends the first names of all flags, or all other names. */
static void add_names(script *s, const command *c, bool first) {
    const char *between = "";
    for (int i = 0; script_flag(c, i); i++) {
        const char *names = script_flag(c, i)->names;
        for (int k = 0; *names; k++) {
            str name = flag_next_name(&names);
            if ((k == 0) == first) {
                script_add(s, "%s%.*s", between, (int)name.n, name.p);
                between = " ";
            }
        }
    }
}

static void add_function(script *s, const command *c) {
    char name[64];
    script_add(s, "_quire_%s() {\n", script_function(c, name));
    if (script_flag(c, 0)) {
        add_values(s, c);
        script_add(s, "    if [[ $cur == -* ]]; then\n        _quire_flags '");
        add_names(s, c, true);
        script_add(s, "' '");
        add_names(s, c, false);
        script_add(s, "'\n        return\n    fi\n");
    }
    script_add(s, "    %s\n}\n",
               c->argument >= ARGUMENT_MODEL ? "_quire_model"
               : script_takes_file(c)        ? "_quire_files"
                                             : "return 0");
}

/* Appends the second words of the commands whose first word is `first`. */
static void add_second_words(script *s, const char *first) {
    size_t n = strlen(first);
    const char *between = "";
    for (int i = 0; script_command(s, i); i++) {
        const char *name = script_command(s, i)->name;
        if (strncmp(name, first, n) == 0 && name[n] == ' ') {
            script_add(s, "%s%s", between, name + n + 1);
            between = " ";
        }
    }
}

/* Handles commands of two words: finds the one that a line begins with, and completes the
 * second word. */
static void add_two_words(script *s) {
    char first[64] = "";
    script_add(s, "    case \"$command ${before[1]}\" in\n");
    for (int i = 0; script_command(s, i); i++) {
        const char *name = script_command(s, i)->name;
        if (strchr(name, ' ')) {
            script_add(s, "    '%s') command='%s' ;;\n", name, name);
            (void)snprintf(first, sizeof first, "%.*s", (int)strcspn(name, " "), name);
        }
    }
    script_add(s, "    esac\n");
    if (first[0]) {
        script_add(
            s,
            "    if [[ $command == %s && ${#before[@]} -eq 1 && $cur != -* ]]; then\n        _quire_among '",
            first);
        add_second_words(s, first);
        script_add(
            s, "'\n        [[ $helps || ${#COMPREPLY[@]} -gt 0 ]] || _quire_model\n        return\n    fi\n");
    }
}

static void completions_bash(script *s) {
    script_add(s, "%s", head);
    for (int i = 0; script_command(s, i); i++) {
        add_function(s, script_command(s, i));
    }
    script_add(s, "%s", main_begin);
    for (int i = 0; script_command(s, i); i++) {
        const char *name = script_command(s, i)->name;
        script_add(s, "%s%s", strchr(name, ' ') ? "" : name, strchr(name, ' ') ? "" : " ");
    }
    script_add(s,
               "\"\n        [[ $helps ]] || COMPREPLY+=($(compgen -W 'help --help --version' -- \"$cur\"))\n"
               "        return\n    fi\n    command=${before[0]}\n");
    add_two_words(s);
    script_add(s, "    case $command in\n    ");
    for (int i = 0; script_command(s, i); i++) {
        script_add(s, "%s'%s'", i ? "|" : "", script_command(s, i)->name);
    }
    script_add(s, ") [[ $helps ]] || \"_quire_${command// /_}\" ;;\n    esac\n}\ncomplete -F _quire quire\n");
}

#define FISH_QUOTE "\\'"

static void shell_completions_fish_add_flag(script *s, const command *c, const flag *f) {
    script_add(s, "complete -c quire -n '__quire_is %s'", c->name);
    for (const char *names = f->names; *names;) {
        str name = flag_next_name(&names);
        bool is_long = str_begins(name, "--");
        script_add(s, " %s %.*s",
                   is_long       ? "-l"
                   : name.n == 2 ? "-s"
                                 : "-o",
                   (int)name.n - 1 - is_long, name.p + 1 + is_long);
    }
    if (script_completed(f) == COMPLETED_WORDS) {
        script_add(s, " -x -a '");
        script_add_words(s, f);
        script_add(s, "'");
    } else if (!flag_is_switch(f)) {
        script_add(s, "%s", script_completed(f) == COMPLETED_FILES ? " -r -F" : " -x");
    }
    script_add(s, " -d '");
    script_add_quoted(s, f->meaning, FISH_QUOTE);
    script_add(s, "'\n");
}

static void shell_completions_fish_add_command(script *s, const command *c) {
    const char *space = strchr(c->name, ' ');
    script_add(s, "complete -c quire -n '");
    if (space) {
        script_add(s, "__quire_is %.*s", (int)(space - c->name), c->name);
    } else {
        script_add(s, "__quire_is; or __quire_is help");
    }
    script_add(s, "' -f -a '%s' -d '", space ? space + 1 : c->name);
    script_add_quoted(s, c->summary, FISH_QUOTE);
    script_add(s, "'\n");
    for (int i = 0; script_flag(c, i); i++) {
        shell_completions_fish_add_flag(s, c, script_flag(c, i));
    }
    if (script_takes_file(c)) {
        script_add(s, "complete -c quire -n '__quire_is %s' -F\n", c->name);
    }
}

static void completions_fish(script *s) {
    script_add(s, "# fish completion of quire, made by `quire help --completions fish`\n\n"
                  "function __quire_is # whether these words are the command that is typed\n"
                  "    set -l words (commandline -opc)\n"
                  "    set -e words[1]\n"
                  "    set -l two \"$words[1..2]\"\n"
                  "    if contains -- \"$two\"");
    for (int i = 0; script_command(s, i); i++) {
        if (strchr(script_command(s, i)->name, ' ')) {
            script_add(s, " '%s'", script_command(s, i)->name);
        }
    }
    script_add(s, "\n        test \"$two\" = \"$argv\"\n"
                  "    else\n"
                  "        test \"$words[1]\" = \"$argv\"\n"
                  "    end\n"
                  "end\n\n"
                  "complete -c quire -f\n"
                  "complete -c quire -n '__quire_is' -a help -d 'lists a command" FISH_QUOTE "s flags'\n");
    for (int i = 0; script_command(s, i); i++) {
        shell_completions_fish_add_command(s, script_command(s, i));
    }
}

#define ZSH_QUOTE "'\\''"

/* Appends text inside a specification: escapes brackets and colons, which have a meaning
 * there. */
static void shell_completions_zsh_add_text(script *s, const char *text) {
    for (; *text; text++) {
        if (strchr("[]:\\", *text)) {
            script_add(s, "\\%c", *text);
        } else {
            script_add_quoted(s, (const char[]){*text, 0}, ZSH_QUOTE);
        }
    }
}

/* Appends a specification for each name of a flag; each excludes the others. */
static void shell_completions_zsh_add_flag(script *s, const flag *f) {
    for (const char *names = f->names; *names;) {
        str name = flag_next_name(&names);
        bool is_long = str_begins(name, "--");
        script_add(s, "            '*%.*s%s[", (int)name.n, name.p,
                   flag_is_switch(f) ? ""
                   : is_long         ? "="
                   : name.n == 2     ? "+"
                                     : "");
        shell_completions_zsh_add_text(s, f->meaning);
        script_add(s, "]");
        if (!flag_is_switch(f)) {
            script_add(s, ":");
            shell_completions_zsh_add_text(s, f->value ? f->value : "value");
            script_add(s, ":");
        }
        if (script_completed(f) == COMPLETED_WORDS) {
            script_add(s, "(");
            script_add_words(s, f);
            script_add(s, ")");
        } else if (script_completed(f) == COMPLETED_FILES) {
            script_add(s, "_files");
        }
        script_add(s, "' \\\n");
    }
}

static void shell_completions_zsh_add_command(script *s, const command *c) {
    script_add(s, "    '%s')\n        _arguments -S \\\n", c->name);
    for (int i = 0; script_flag(c, i); i++) {
        shell_completions_zsh_add_flag(s, script_flag(c, i));
    }
    script_add(s, "            %s ;;\n", script_takes_file(c) ? "'*:MODEL:_files'" : "&& return");
}

/* Appends entries of _describe: first words of commands or, if `first` is not NULL, the
 * second words after it. */
static void add_entries(script *s, const char *first) {
    size_t n = first ? strlen(first) : 0;
    for (int i = 0; script_command(s, i); i++) {
        const command *c = script_command(s, i);
        bool fits = first ? strncmp(c->name, first, n) == 0 && c->name[n] == ' ' : !strchr(c->name, ' ');
        if (fits) {
            script_add(s, "        '%s:", c->name + (first ? n + 1 : 0));
            shell_completions_zsh_add_text(s, c->summary);
            script_add(s, "'\n");
        }
    }
}

static void completions_zsh(script *s) {
    script_add(s, "#compdef quire\n"
                  "# zsh completion of quire, made by `quire help --completions zsh`\n\n"
                  "_quire() {\n    local -a commands benches\n    local command=$words[2]\n    integer "
                  "name_words=1\n    commands=(\n");
    add_entries(s, NULL);
    script_add(s, "        'help:lists a command'" ZSH_QUOTE "s flags'\n    )\n    benches=(\n");
    add_entries(s, "bench");
    script_add(s, "    )\n"
                  "    if (( CURRENT == 2 )) || [[ $command == help ]]; then\n"
                  "        _describe command commands\n        return\n    fi\n"
                  "    if [[ $command == bench && $words[CURRENT] != -* ]] && (( CURRENT == 3 )); then\n"
                  "        _describe bench benches\n        _files\n        return\n    fi\n"
                  "    if [[ $command == bench ]] && (( ${benches[(I)$words[3]:*]} )); then\n"
                  "        command=\"bench $words[3]\"\n        name_words=2\n    fi\n"
                  "    shift name_words words\n    (( CURRENT -= name_words ))\n"
                  "    case $command in\n");
    for (int i = 0; script_command(s, i); i++) {
        shell_completions_zsh_add_command(s, script_command(s, i));
    }
    script_add(s, "    esac\n}\n\n_quire \"$@\"\n");
}
