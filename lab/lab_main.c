/* quire-lab COMMAND ...: benches, experiments, demonstrations and the simulator. `quire`
 * starts it for those commands. */
#include <locale.h>
#include <stdio.h>

#include "base/mem.h"
#include "cli/commands.h"
#include "cli/dispatch.h"
#include "cli/text_out.h"
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
                                          &command_bench_text,
                                          &command_bench_kernels,
                                          &command_bench_experts,
                                          &command_bench_speculation,
                                          &command_bench_stall,
                                          &command_bench_start,
                                          &command_bench_pages,
                                          &command_bench_sharing,
                                          &command_bench_prefix,
                                          &command_bench_workload,
                                          &command_bench_ablation,
                                          &command_bench_headline,
                                          &command_bench_scenario,
                                          &command_bench_tiers,
                                          &command_bench_latency,
                                          &command_bench_resident,
                                          &command_bench_grammar,
                                          &command_bench_json,
                                          &command_bench_quality,
                                          &command_perplexity,
                                          &command_demo,
                                          NULL};

static void print_help(bool all) {
    (void)all; /* there is one page */
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
                   /* no variables of flags: only the command line decides what is
                          * measured */
                   .help = print_help};
    mem_separate_large();
    setlocale(LC_CTYPE, "");
    environment_read_hub(&lab.environment);
    standard_files_open();
    return standard_files_finish(dispatch(&lab, argc, argv));
}
