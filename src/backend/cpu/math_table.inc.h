/* The table of the functions of math_kernels.inc.h, attention_kernels.inc.h,
 * state_kernels.inc.h and adapter_kernels.inc.h, under the name MATH_TABLE. PROGRAM_RUNNER
 * runs attention programs. */
#include "backend/cpu/adapter_kernels.inc.h"
#include "backend/cpu/state_kernels.inc.h"

const math_kernels MATH_TABLE = {
    .exp = exp_kernel,
    .tanh = tanh_kernel,
    .activate = activate_kernel,
    .gate_up = gate_up_kernel,
    .xielu = xielu_kernel,
    .scale_cap = scale_cap_kernel,
    .largest = largest_kernel,
    .add_scaled = add_scaled_kernel,
    .add_to_rows = add_to_rows_kernel,
    .stream_rows = stream_rows_kernel,
    .norm_rms = norm_rms_kernel,
    .norm_layer = norm_layer_kernel,
    .rotate = rotate_kernel,
    .narrow = narrow_kernel,
    .narrow_int8 = narrow_int8_kernel,
    .unpack_int4 = unpack_int4_kernel,
    .values_of_keys = values_of_keys_kernel,
    .attention_tile = attention_tile_kernel,
    .attention_products = attention_products_kernel,
    .attention_merge = attention_merge_kernel,
    .attention_finish = attention_finish_kernel,
    .state_decays = state_decays_kernel,
    .state_query = state_query_kernel,
    .state_key = state_key_kernel,
    .state_rows = state_rows_kernel,
    .state_scan = state_scan_kernel,
    .state_conv = state_conv_kernel,
    .state_lru = state_lru_kernel,
    .shrink = shrink_kernel,
    .expand = expand_kernel,
    .run_program = PROGRAM_RUNNER,
};
