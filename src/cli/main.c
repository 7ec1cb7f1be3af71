/* quire COMMAND ...: --help and --version, its own commands, and those of quire-lab, which it starts. */
#include <locale.h>
#include <stdio.h>

#include "cli/commands.h"
#include "cli/dispatch.h"
#include "cli/lab_start.h"
#include "cli/standard_files.h"

static void print_help(void) {
    printf("quire %s: runs and serves language models\n\nusage: quire COMMAND [MODEL] [flags]\n\n", quire_version());
    dispatch_list(quire_commands);
    lab_print_commands();
    printf("\nMODEL is a .gguf file, a Hugging Face directory, a packed model (quire pack), or `builtin`, a tiny model in here.\n"
           "`quire COMMAND --help` lists a command's flags; `quire --version` prints the version.\n\n"
           "  quire run -p \"The prince looked at her and\"    the built-in model goes on\n"
           "  quire run model.gguf                           chat\n"
           "  quire serve model.gguf                         OpenAI's API on http://127.0.0.1:8000\n");
}

int main(int argc, char **argv) {
    const program quire = {"quire", quire_commands, NULL, print_help};
    setlocale(LC_CTYPE, "");
    standard_files_open();
    return standard_files_finish(lab_has_command(argc - 1, argv + 1) ? lab_start(argv) : dispatch(&quire, argc, argv));
}
