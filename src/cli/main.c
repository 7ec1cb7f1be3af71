/* quire COMMAND ...: --help and --version, its own commands, and those of quire-lab,
 * which it starts. */
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/commands.h"
#include "cli/dispatch.h"
#include "cli/lab_start.h"
#include "cli/standard_files.h"

extern char **environ;

static void main_print_help(bool all) {
    const command *const usual[] = {
        &command_run,  &command_serve, &command_inspect, &command_pack, &command_tokenize,
        &command_pull, &command_list,  &command_rm,      lab_rows[0],   NULL};
    printf("quire %s: runs and serves language models\n\nusage: quire COMMAND [MODEL] [flags]\n\n",
           quire_version());
    dispatch_list(all ? quire_commands : usual);
    if (all) {
        dispatch_list(lab_rows);
    }
    printf("\nMODEL is a .gguf file, a Hugging Face directory, a packed model (quire pack), `builtin`, a "
           "tiny model in it, or\n"
           "ORG/NAME[:QUANT] of the Hugging Face hub, which is fetched if it is not there yet.\n"
           "`quire help COMMAND` lists a command's flags, `quire help all` all commands; `quire --version` "
           "prints the version.\n"
           "A flag can be a variable too: QUIRE_MAX_NUM_SEQS=8 is --max-num-seqs 8 (man quire).\n\n"
           "  quire run -p \"The prince looked at her and\"    the built-in model goes on\n"
           "  quire run model.gguf                           chat\n"
           "  quire serve model.gguf                         OpenAI's API on http://127.0.0.1:8000\n"
           "  quire inspect model.gguf                       what it holds and the memory it needs\n");
}

/* Characters are UTF-8, also without a locale for them: in a container it is often C. */
static void use_locale(void) {
    const char *name = setlocale(LC_CTYPE, ""); /* NULL: one that is not installed */
    if (!name || strcmp(name, "C") == 0 || strcmp(name, "POSIX") == 0) {
        (void)setlocale(LC_CTYPE, "C.UTF-8");
    }
}

int main(int argc, char **argv) {
    program quire = {"quire",
                     "runs and serves language models",
                     quire_commands,
                     lab_rows,
                     main_print_help,
                     environ,
                     {.history_file = NULL}};
    int n_before = argc > 1 && strcmp(argv[1], "help") == 0 ? 2 : 1; /* words before a command's name */
    mem_separate_large();
    use_locale();
    environment_read(&quire.environment);
    standard_files_open();
    bool is_lab = argc > n_before && lab_has_command(argc - n_before, argv + n_before);
    return standard_files_finish(is_lab ? lab_start(argv, argv[n_before]) : dispatch(&quire, argc, argv));
}
