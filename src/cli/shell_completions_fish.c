/* Completions for fish: a line for each flag of each command. */
#include <string.h>

#include "cli/set_flag.h"
#include "cli/shell_script.h"

#define QUOTE "\\'"

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
    script_add_quoted(s, f->meaning, QUOTE);
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
    script_add_quoted(s, c->summary, QUOTE);
    script_add(s, "'\n");
    for (int i = 0; script_flag(c, i); i++) {
        shell_completions_fish_add_flag(s, c, script_flag(c, i));
    }
    if (script_takes_file(c)) {
        script_add(s, "complete -c quire -n '__quire_is %s' -F\n", c->name);
    }
}

void completions_fish(script *s) {
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
                  "complete -c quire -n '__quire_is' -a help -d 'lists a command" QUOTE "s flags'\n");
    for (int i = 0; script_command(s, i); i++) {
        shell_completions_fish_add_command(s, script_command(s, i));
    }
}
