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

int main(int argc, char **argv) {
    const program quire = {.name = "quire",
                           .commands = quire_commands,
                           .others = lab_rows,
                           .help = print_help,
                           .home = getenv("HOME"),
                           .cache_home = getenv("XDG_CACHE_HOME")};
    int n_before = argc > 1 && strcmp(argv[1], "help") == 0 ? 2 : 1; /* words before a command's name */
    setlocale(LC_CTYPE, "");
    standard_files_open();
    bool is_lab = argc > n_before && lab_has_command(argc - n_before, argv + n_before);
    return standard_files_finish(is_lab ? lab_start(argv, argv[n_before]) : dispatch(&quire, argc, argv));
}
