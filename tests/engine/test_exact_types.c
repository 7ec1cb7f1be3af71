/* The determinism rule for a model of each type of blocks: its logits are the same bytes
 * in every way of running, plain or by the machine's instructions, packed or not. */
#include <stdio.h>

#include "exact_ways.h"
#include "model/make_types.h"
#include "model/pack_model.h"
#include "test.h"

/* Writes the model, and packed, to a directory of its own. */
static temp_dir write_model(int type, bool has_experts, compute_mode compute) {
    model_plan blocks, floats;
    temp_dir d = temp_new();
    strbuf b = {0};
    plan_wide(&blocks, has_experts);
    set_u32(&blocks, "llama.context_length", 2048);
    floats = blocks;
    fill_plans(type, &blocks, &floats);
    put_plan(&b, &blocks);
    write_file(temp_path(&d, "m.gguf"), b.p, b.n);
    plan_file file = plan_open(&blocks);
    pack_model(file.f, compute, temp_path(&d, "m.quire"));
    plan_close(&file);
    free_plan(&blocks);
    free_plan(&floats);
    strbuf_deinit(&b);
    return d;
}

static void all_isas(harness_options o) {
    outcome base;
    o.isa = equal_isas[0];
    run_way(&o, false, false, &base);
    for (int i = 1; i < n_equal_isas(o.compute); i++) {
        o.isa = equal_isas[i];
        if (runs_here(o.isa)) {
            compare(&base, &o, true, true, o.isa, 0);
        }
    }
    mem_free(base.logits);
}

static void check(int type, bool has_experts, compute_mode compute) {
    temp_dir d = write_model(type, has_experts, compute);
    harness_options o = harness_defaults;
    outcome base;
    o.path = temp_path(&d, "m.gguf");
    o.compute = compute;
    o.kv = DTYPE_F16;
    all_ways(&o, &base);
    all_isas(o);
    o.path = temp_path(&d, "m.quire");
    compare(&base, &o, true, false, "packed", 0);
    mem_free(base.logits);
    temp_delete(&d, (const char *[]){"m.gguf", "m.quire", NULL});
}

TEST(logits_of_every_type_do_not_depend_on_how_they_were_run) {
    for (int i = 0; i < N_WEIGHT_TYPES; i++) {
        print_message("%s\n", dtype_name(weight_types[i]));
        check((int)weight_types[i], false, COMPUTE_INT8);
    }
}

TEST(nor_do_those_of_experts_of_mixed_types) {
    check(MIXED, true, COMPUTE_INT8);
    check(MIXED, true, COMPUTE_F32);
    check(MIXED, false, COMPUTE_BF16);
}

int main(void) {
    uint64_t seed = rng_os_seed();
    printf("seed %llu\n", (unsigned long long)seed);
    random_prompts(N_VOCAB, seed);
    return tests_run(NULL, NULL);
}
