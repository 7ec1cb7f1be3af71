/* quire-lab COMMAND ...: benches, experiments, demonstrations and the simulator. `quire`
 * starts it for those commands. */
#include <locale.h>
#include <stdio.h>

#include "base/mem.h"
#include "cli/commands.h"
#include "cli/dispatch.h"
#include "cli/files.h"
#include "lab/commands/lab_commands.h"

#define LAB_COMMAND_ROW(id) &command_##id
static const command *const commands[] = {LAB_COMMANDS(LAB_COMMAND_ROW), NULL};

static void print_help(bool all) {
    (void)all; /* there is only one page */
    printf("quire-lab %s: measures and shows what quire does\n\nusage: quire COMMAND [flags]\n\n",
           quire_version());
    dispatch_list(commands);
    printf("\n`quire COMMAND --help` lists a command's flags; `quire-lab --version` prints the version.\n");
}

int main(int argc, char **argv) {
    program lab = {.name = "quire-lab",
                   .summary = "measures and shows what quire does",
                   .commands = commands,
                   .others = quire_commands,
                   /* flags have no environment variables: only the command line decides
                    * what is measured */
                   .help = print_help};
    mem_separate_large();
    setlocale(LC_CTYPE, "");
    environment_read_hub(&lab.environment);
    standard_files_open();
    return standard_files_finish(dispatch(&lab, argc, argv));
}
