/* Trace files of any kind: refused with a message, or a trace whose numbers agree. */
#include "base/mem.h"
#include "fuzz.h"
#include "lab/sim/trace_read.h"

enum { MAX_READ = 1 << 16 }; /* tokens written out of one request: lengths may be large */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    trace t = {0};
    quire_error err = {0};
    fuzz_sum sum = 0;
    if (trace_parse((str){(const char *)data, size}, "fuzz", 0, &t, &err) != QUIRE_OK) {
        fuzz_check(err.message[0] != 0 && t.requests == NULL);
        return 0;
    }
    int64_t n_prompt = 0, n_output = 0;
    fuzz_check(t.n_requests > 0);
    for (int32_t i = 0; i < t.n_requests; i++) {
        const trace_request *r = &t.requests[i];
        int32_t n = r->n_prompt + r->n_output, n_in_runs = 0;
        fuzz_check(r->n_prompt >= 1 && r->n_output >= 0 && n <= t.longest && r->tenant >= 0 &&
                   r->tenant < t.n_tenants);
        fuzz_check(r->arrival_us >= 0 && (i == 0 || r->arrival_us >= t.requests[i - 1].arrival_us));
        for (int32_t j = 0; j < r->n_runs; j++) {
            trace_run run = t.runs[r->first_run + j];
            fuzz_check(run.n > 0 && (run.first >= 0 || run.first <= INT32_MAX - run.n));
            n_in_runs += run.n;
        }
        fuzz_check(n_in_runs == n);
        if (n <= MAX_READ) {
            int32_t *tokens = mem_new((size_t)n, sizeof *tokens);
            trace_tokens(&t, r, tokens);
            fuzz_read(&sum, tokens, (size_t)n * sizeof *tokens);
            mem_free(tokens);
        }
        n_prompt += r->n_prompt;
        n_output += r->n_output;
    }
    fuzz_check(n_prompt == t.n_prompt_tokens && n_output == t.n_output_tokens);
    trace_deinit(&t);
    fuzz_keep(sum);
    return 0;
}
