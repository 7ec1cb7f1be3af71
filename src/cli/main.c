/* quire COMMAND ...: --help and --version, its own commands, and those of quire-lab, which it starts. */
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/dispatch.h"
#include "cli/lab_start.h"
#include "cli/standard_files.h"

static void print_help(void) {
    printf("quire %s: runs and serves language models\n\nusage: quire COMMAND [MODEL] [flags]\n\n", quire_version());
    for (const command *const *c = quire_commands; *c; c++) {
        printf("  %-12s %s\n", (*c)->name, (*c)->summary);
    }
    lab_print_commands();
    printf("\nMODEL is a .gguf file, a Hugging Face directory, a packed model (quire pack), or `builtin`, a tiny model in here.\n"
           "`quire COMMAND --help` lists a command's flags; `quire --version` prints the version.\n\n"
           "  quire run -p \"The prince looked at her and\"    the built-in model goes on\n"
           "  quire run model.gguf                           chat\n"
           "  quire serve model.gguf                         OpenAI's API on http://127.0.0.1:8000\n");
}

static int run_main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "--help";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help();
        return argc > 1 ? 0 : 2;
    }
    if (strcmp(name, "--version") == 0) {
        printf("quire %s\n", quire_version());
        return 0;
    }
    if (lab_has_command(argc - 1, argv + 1)) {
        return lab_start(argv);
    }
    int status = dispatch(quire_commands, NULL, argc - 1, argv + 1);
    if (status < 0) {
        log_line(LOG_ERROR, "%s: no such command; `quire --help` lists them", name);
        return 2;
    }
    return status;
}

int main(int argc, char **argv) {
    setlocale(LC_CTYPE, "");
    standard_files_open();
    return standard_files_finish(run_main(argc, argv));
}
