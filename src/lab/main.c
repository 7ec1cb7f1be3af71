/* quire-lab COMMAND ...: benches, experiments, demonstrations and the simulator. `quire` starts it for those commands. */
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/dispatch.h"
#include "cli/standard_files.h"
#include "lab/commands/lab_commands.h"

static const command *const commands[] = {&command_bench,
                                          &command_sim,
                                          &command_bench_speed,
                                          &command_bench_roofline,
                                          &command_bench_profile,
                                          &command_bench_kv,
                                          &command_bench_engine,
                                          &command_bench_memory,
                                          &command_bench_preempt,
                                          &command_bench_attention,
                                          &command_bench_serving,
                                          &command_bench_calibrate,
                                          &command_bench_sampler,
                                          &command_bench_kernels,
                                          &command_bench_stall,
                                          &command_bench_start,
                                          &command_bench_pages,
                                          &command_bench_sharing,
                                          &command_bench_prefix,
                                          &command_bench_workload,
                                          &command_bench_ablation,
                                          &command_bench_scenario,
                                          &command_bench_tiers,
                                          &command_demo,
                                          NULL};

static void print_help(void) {
    printf("quire-lab %s: measures and shows what quire does\n\nusage: quire COMMAND [flags]\n\n", quire_version());
    for (const command *const *c = commands; *c; c++) {
        printf("  %-12s %s\n", (*c)->name, (*c)->summary);
    }
    printf("\n`quire COMMAND --help` lists a command's flags; `quire-lab --version` prints the version.\n");
}

static int run_main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "--help";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help();
        return argc > 1 ? 0 : 2;
    }
    if (strcmp(name, "--version") == 0) {
        printf("quire-lab %s\n", quire_version());
        return 0;
    }
    int status = dispatch(commands, quire_commands, argc - 1, argv + 1);
    if (status < 0) {
        log_line(LOG_ERROR, "%s: no such command of quire-lab; `quire-lab --help` lists them", name);
        return 2;
    }
    return status;
}

int main(int argc, char **argv) {
    setlocale(LC_CTYPE, "");
    standard_files_open();
    return standard_files_finish(run_main(argc, argv));
}
