/* Completions for bash 4 and later. `=` ends a word there: "--compute=in" is three of
 * them. */
#include <stdio.h>
#include <string.h>

#include "cli/set_flag.h"
#include "cli/shell_script.h"

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

/* All spellings of a command's flags that are completed in one way, as a pattern of case;
 * whether there are any. Of words: those of one flag. */
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

/* The first names of all flags, or all other names. */
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

/* The second words of commands that begin with the first. */
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

/* The commands of two words: which the first two of a line name, and what may follow the
 * first. */
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

void completions_bash(script *s) {
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
