/* Completions for zsh, by its _arguments. */
#include <string.h>

#include "cli/set_flag.h"
#include "cli/shell_script.h"

#define QUOTE "'\\''"

/* Text of a specification: brackets and colons end parts of it. */
static void shell_completions_zsh_add_text(script *s, const char *text) {
    for (; *text; text++) {
        if (strchr("[]:\\", *text)) {
            script_add(s, "\\%c", *text);
        } else {
            script_add_quoted(s, (const char[]){*text, 0}, QUOTE);
        }
    }
}

/* A specification for each name, which excludes the others. */
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

/* Entries of _describe: the first words, or the second ones after `first`. */
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

void completions_zsh(script *s) {
    script_add(s, "#compdef quire\n"
                  "# zsh completion of quire, made by `quire help --completions zsh`\n\n"
                  "_quire() {\n    local -a commands benches\n    local command=$words[2]\n    integer "
                  "name_words=1\n    commands=(\n");
    add_entries(s, NULL);
    script_add(s, "        'help:lists a command'" QUOTE "s flags'\n    )\n    benches=(\n");
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
