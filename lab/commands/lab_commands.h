/* quire-lab's commands: one row a command, each in the file of its name. */
#ifndef LAB_COMMANDS_LAB_COMMANDS_H
#define LAB_COMMANDS_LAB_COMMANDS_H

#include "cli/command.h"

extern const command command_bench, command_sim, command_perplexity, command_demo;
extern const command command_bench_speed, command_bench_roofline, command_bench_profile, command_bench_kv,
    command_bench_engine;
extern const command command_bench_memory, command_bench_preempt, command_bench_attention,
    command_bench_serving, command_bench_calibrate;
extern const command command_bench_sampler, command_bench_kernels, command_bench_stall, command_bench_start,
    command_bench_tiers;
extern const command command_bench_experts, command_bench_speculation, command_bench_headline;
/* experiments */
extern const command command_bench_pages, command_bench_sharing, command_bench_prefix, command_bench_workload;
extern const command command_bench_ablation, command_bench_scenario;
extern const command command_bench_latency, command_bench_resident, command_bench_text, command_bench_grammar,
    command_bench_json;
extern const command command_bench_quality;

#endif
