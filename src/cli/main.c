/* quire COMMAND ...: --help and --version, its own commands, and those of quire-lab, which it starts. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/dispatch.h"
#include "cli/lab_start.h"
#include "cli/standard_files.h"

static void print_help(bool all) {
    const command *const usual[] = {&command_run, &command_serve, &command_inspect, &command_pack, &command_tokenize, lab_rows[0], NULL};
    printf("quire %s: runs and serves language models\n\nusage: quire COMMAND [MODEL] [flags]\n\n", quire_version());
    dispatch_list(all ? quire_commands : usual);
    if (all) {
        dispatch_list(lab_rows);
    }
    printf("\nMODEL is a .gguf file, a Hugging Face directory, a packed model (quire pack), or `builtin`, a tiny model in here.\n"
           "`quire help COMMAND` lists a command's flags, `quire help all` all commands; `quire --version` prints the version.\n\n"
           "  quire run -p \"The prince looked at her and\"    the built-in model goes on\n"
           "  quire run model.gguf                           chat\n"
           "  quire serve model.gguf                         OpenAI's API on http://127.0.0.1:8000\n"
           "  quire inspect model.gguf                       what it holds and the memory it needs\n");
}

/* Characters are UTF-8, also where nothing is said about them: in a container the locale is often C. */
static void use_locale(void) {
    const char *name = setlocale(LC_CTYPE, ""); /* NULL: one that is not installed */
    if (!name || strcmp(name, "C") == 0 || strcmp(name, "POSIX") == 0) {
        (void)setlocale(LC_CTYPE, "C.UTF-8");
    }
}

static environment read_environment(void) {
    static char path[4096];
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME"), *term = getenv("TERM");
    bool by_state = state && state[0] == '/'; /* others are to be ignored */
    int n = by_state ? snprintf(path, sizeof path, "%s/quire/history", state)
                     : snprintf(path, sizeof path, "%s/.local/state/quire/history", home ? home : "");
    bool good = (by_state || (home && home[0] == '/')) && n > 0 && (size_t)n < sizeof path;
    return (environment){.history_file = good ? path : NULL, .plain_terminal = !term || !term[0] || strcmp(term, "dumb") == 0};
}

int main(int argc, char **argv) {
    const program quire = {"quire", quire_commands, lab_rows, print_help, read_environment()};
    int n_before = argc > 1 && strcmp(argv[1], "help") == 0 ? 2 : 1; /* words before a command's name */
    use_locale();
    standard_files_open();
    bool is_lab = argc > n_before && lab_has_command(argc - n_before, argv + n_before);
    return standard_files_finish(is_lab ? lab_start(argv, argv[n_before]) : dispatch(&quire, argc, argv));
}
