/* Profiles from a trace of ops: the stage each op belongs to, the passes that count, and
 * the time left between ops. */
#include <math.h>
#include <string.h>

#include "lab/bench/op_profile.h"
#include "test.h"

enum { PASS_OPS = 2 + 2 * 6 };

/* A pass of two layers from start_ns on: op i takes (i + 1) * unit ns, a tenth of it for
 * rows where it is a product. The end is given back. */
static int64_t put_pass(op_time *ops, int32_t n_rows, int64_t start_ns, int64_t unit) {
    static const op_kind layer[] = {OP_NORM_LINEARS, OP_ROPE_STORE,   OP_ATTENTION,
                                    OP_LINEAR_ADD,   OP_FEED_FORWARD, OP_LINEAR_ADD};
    for (int32_t i = 0; i < PASS_OPS; i++) {
        op_kind kind = i == 0 ? OP_EMBED : i == PASS_OPS - 1 ? OP_HEAD : layer[(i - 1) % 6];
        int64_t ns = (i + 1) * unit;
        bool is_product =
            kind == OP_NORM_LINEARS || kind == OP_LINEAR_ADD || kind == OP_FEED_FORWARD || kind == OP_HEAD;
        ops[i] = (op_time){.kind = kind,
                           .n_rows = n_rows,
                           .start_ns = start_ns,
                           .ns = ns,
                           .rows_ns = is_product ? ns / 10 : 0,
                           .bytes = is_product ? 100 : 0,
                           .operations = is_product ? 7 : 0};
        start_ns += ns;
    }
    return start_ns;
}

static void assert_us(double a, double b) {
    if (fabs(a - b) > 1e-9 * fabs(b) + 1e-12) {
        fail_msg("%.17g is not %.17g", a, b);
    }
}

TEST(every_op_counts_for_its_stage_and_layer) {
    op_time ops[PASS_OPS];
    stage_cost layers[2 * N_STAGES] = {{0, 0, 0}};
    step_costs c = {.n_rows = 4, .layers = layers, .n_layers = 2};
    put_pass(ops, 4, 0, 1000); /* us: 1; 2 3 4 5 6 7; 8 9 10 11 12 13; 14 */
    op_profile_add(ops, PASS_OPS, &c);
    op_profile_finish(&c, 1.5, 2.5, 0.5);
    assert_int_equal(c.n_steps, 1);
    assert_us(c.stages[STAGE_EMBED].us, 1);
    assert_us(c.stages[STAGE_QKV_ROWS].us, 0.2 + 0.8);
    assert_us(c.stages[STAGE_QKV].us, 1.8 + 7.2);
    assert_us(c.stages[STAGE_ROPE_STORE].us, 3 + 9);
    assert_us(c.stages[STAGE_ATTENTION].us, 4 + 10);
    assert_us(c.stages[STAGE_OUTPUT].us, 0.9 * (5 + 11));
    assert_us(c.stages[STAGE_GATE_UP].us, 0.9 * (6 + 12));
    assert_us(c.stages[STAGE_DOWN].us, 0.9 * (7 + 13));
    assert_us(c.stages[STAGE_DOWN_ROWS].us, 0.1 * (7 + 13));
    assert_us(c.stages[STAGE_HEAD].us, 0.9 * 14);
    assert_us(c.stages[STAGE_QKV].bytes, 200);
    assert_us(c.stages[STAGE_HEAD].operations, 7);
    assert_us(layers[N_STAGES + STAGE_OUTPUT].us, 0.9 * 11);
    assert_us(layers[N_STAGES + STAGE_HEAD].us, 0);
    assert_us(c.stages[STAGE_PLAN].us, 1.5);
    assert_us(c.stages[STAGE_BETWEEN].us, 0);
    assert_us(c.us, 105 + 4.5);
    double share = op_profile_share(&c, STAGE_IS_PRODUCT) + op_profile_share(&c, STAGE_IS_ATTENTION) +
                   op_profile_share(&c, STAGE_IS_SAMPLING) + op_profile_share(&c, STAGE_IS_OTHER);
    assert_us(share, 1);
    assert_us(op_profile_share(&c, STAGE_IS_ATTENTION), 14 / c.us);
    assert_us(op_profile_share(&c, STAGE_IS_SAMPLING), 2.5 / c.us);
}

/* Norms after attention and feed-forward, an output gate, a router: products are told
 * apart by what stands around them. */
TEST(products_are_known_where_other_ops_stand_between) {
    static const op_kind kinds[] = {OP_EMBED, OP_NORM_LINEARS, /* queries, keys, values */
                                    /* output */
                                    OP_NORM_ROWS, OP_ROPE_STORE, OP_ATTENTION, OP_MULTIPLY, OP_NORM_LINEARS,
                                    /* a router */
                                    OP_NORM_ADD, OP_NORM_LINEARS,
                                    /* down */
                                    OP_FEED_FORWARD, OP_NORM_LINEARS,
                                    /* the second layer's */
                                    OP_NORM_ADD, OP_SCALE_ROWS, OP_NORM_LINEARS, OP_ROPE_STORE, OP_ATTENTION,
                                    OP_LINEAR_ADD, OP_FEED_FORWARD, OP_LINEAR_ADD, OP_HEAD};
    enum { N_KINDS = sizeof kinds / sizeof *kinds };
    op_time ops[N_KINDS];
    stage_cost layers[2 * N_STAGES] = {{0, 0, 0}};
    step_costs c = {.n_rows = 2, .layers = layers, .n_layers = 2};
    for (int32_t i = 0; i < N_KINDS; i++) {
        ops[i] = (op_time){
            .kind = kinds[i], .n_rows = 2, .start_ns = 1 << (i + 10), .ns = 1000 * ((int64_t)1 << i)};
    }
    op_profile_add(ops, N_KINDS, &c);
    op_profile_finish(&c, 0, 0, 0);
    assert_us(c.stages[STAGE_QKV].us, (1 << 1) + (1 << 13));
    assert_us(c.stages[STAGE_OUTPUT].us, (1 << 6) + (1 << 16));
    assert_us(c.stages[STAGE_GATE_UP].us, (1 << 8) + (1 << 9) + (1 << 17));
    assert_us(c.stages[STAGE_DOWN].us, (1 << 10) + (1 << 18));
    assert_us(c.stages[STAGE_ELEMENTS].us, (1 << 2) + (1 << 5) + (1 << 7) + (1 << 11) + (1 << 12));
    assert_us(c.stages[STAGE_HEAD].us, 1 << 19);
    assert_us(layers[STAGE_QKV].us, 1 << 1);
    assert_us(layers[STAGE_ELEMENTS].us, (1 << 2) + (1 << 5) + (1 << 7) + (1 << 11) + (1 << 12));
    assert_us(layers[N_STAGES + STAGE_QKV].us, 1 << 13);
    assert_us(layers[N_STAGES + STAGE_ELEMENTS].us, 0);
}

TEST(only_passes_of_the_asked_rows_count_and_of_those_the_faster_half) {
    op_time ops[6 * PASS_OPS + 3];
    int64_t at = 0;
    static const struct {
        int32_t n_rows;
        int64_t unit;
    } passes[] = {{1, 10}, {8, 100}, {8, 9000}, {8, 200}, {8, 100}, {3, 100}};
    for (int32_t i = 0; i < 6; i++) {
        /* 50 us after each */
        at = put_pass(ops + i * PASS_OPS, passes[i].n_rows, at, passes[i].unit) + 50000;
    }
    op_time last[PASS_OPS];
    put_pass(last, 8, at, 1);
    memcpy(ops + (size_t)6 * PASS_OPS, last, 3 * sizeof *last); /* cut short: no pass */
    assert_int_equal(op_profile_most_rows(ops, 6 * PASS_OPS + 3), 8);
    step_costs c = {.n_rows = 8}, held_up = c;
    op_profile_add(ops, 6 * PASS_OPS + 3, &c);
    assert_int_equal(c.n_steps, 2); /* both of unit 100 */
    assert_int_equal(c.n_gaps, 1);  /* after the second of them stands a pass of three rows */
    op_profile_finish(&c, 10, 20, 5);
    assert_us(c.stages[STAGE_BETWEEN].us, 50 - 35);
    assert_us(c.us, 10.5 + 50);
    op_profile_add(ops, 6 * PASS_OPS + 3, &held_up);
    /* means with a step in them that others held up: the gap of 50 was not that long */
    op_profile_finish(&held_up, 900, 60, 40);
    assert_us(held_up.stages[STAGE_PLAN].us, 45);
    assert_us(held_up.stages[STAGE_SAMPLE].us, 3);
    assert_us(held_up.stages[STAGE_COMMIT].us, 2);
    assert_us(held_up.stages[STAGE_BETWEEN].us, 0);
    assert_us(held_up.us, 10.5 + 50);
}

TEST(a_chunk_of_a_prompt_whose_logits_nobody_wants_is_a_pass_too) {
    op_time ops[2 * PASS_OPS];
    int64_t at = put_pass(ops, 512, 0, 100);
    put_pass(ops + PASS_OPS - 1, 64, at, 100); /* where the head of the first would be */
    assert_int_equal(op_profile_most_rows(ops, 2 * PASS_OPS - 1), 512);
    step_costs c = {.n_rows = 512};
    op_profile_add(ops, 2 * PASS_OPS - 1, &c);
    op_profile_finish(&c, 0, 0, 0);
    assert_int_equal(c.n_steps, 1);
    assert_us(c.stages[STAGE_HEAD].us, 0);
    assert_us(c.us, 0.1 * 91);
}

TEST(a_trace_without_a_pass_has_no_rows) {
    op_time ops[PASS_OPS];
    put_pass(ops, 5, 0, 10);
    assert_int_equal(op_profile_most_rows(ops, PASS_OPS - 1), 0);
    assert_int_equal(op_profile_most_rows(ops, 0), 0);
    step_costs c = {.n_rows = 0};
    op_profile_add(ops, PASS_OPS - 1, &c);
    op_profile_finish(&c, 0, 0, 0);
    assert_int_equal(c.n_steps, 0);
    assert_us(op_profile_share(&c, STAGE_IS_OTHER), 0);
}

TEST_MAIN(NULL, NULL)
