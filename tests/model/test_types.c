/* Weights of every block type, alone and mixed, in products, experts, embeddings and the
 * head: logits equal those of the same values stored as F32. */
#include "run_model.h"

#include <math.h>

#include "make_types.h"

static float *plan_logits(const model_plan *p, compute_mode compute, size_t *n) {
    plan_file file = plan_open(p);
    float *out = logits_of(file.f, compute, n);
    free(file.bytes);
    return out;
}

static void check_type(int type, bool has_experts) {
    model_plan blocks, floats;
    plan_wide(&blocks, has_experts);
    floats = blocks;
    fill_plans(type, &blocks, &floats);
    size_t n, n_want;
    for (compute_mode mode = COMPUTE_F32; mode <= COMPUTE_INT8; mode++) {
        float *got = plan_logits(&blocks, mode, &n),
              *want = plan_logits(&floats, mode == COMPUTE_INT8 ? COMPUTE_F32 : mode, &n_want);
        double apart = 0.0, size = 0.0;
        assert_true(n == n_want && n == (size_t)N * N_VOCAB);
        for (size_t i = 0; i < n; i++) {
            assert_true(isfinite(got[i]));
            apart += (double)(got[i] - want[i]) * (double)(got[i] - want[i]);
            size += (double)want[i] * (double)want[i];
        }
        if (mode != COMPUTE_INT8 && memcmp(got, want, n * sizeof *got) != 0) {
            fail_msg("%s, experts %d, compute %d: other logits than those of F32",
                     type == MIXED ? "all types" : dtype_name((dtype)type), has_experts, (int)mode);
        }
        if (!(sqrt(apart) <= 0.1 * sqrt(size))) { /* of int8: rows are rounded */
            fail_msg("%s, experts %d: %g apart of %g", type == MIXED ? "all types" : dtype_name((dtype)type),
                     has_experts, sqrt(apart), sqrt(size));
        }
        mem_free(got);
        mem_free(want);
    }
    free_plan(&blocks);
    free_plan(&floats);
}

TEST(logits_of_every_type_are_those_of_its_values) {
    for (int i = 1; i < N_WEIGHT_TYPES; i++) {
        check_type((int)weight_types[i], false);
        check_type((int)weight_types[i], true);
    }
}

TEST(so_they_are_where_every_tensor_has_another_type) {
    check_type(MIXED, false);
    check_type(MIXED, true);
}

TEST_MAIN(NULL, NULL)
