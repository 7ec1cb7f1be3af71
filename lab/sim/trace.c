#include "lab/sim/trace.h"

#include "base/mem.h"

void trace_deinit(trace *t) {
    mem_free(t->requests);
    mem_free(t->runs);
    *t = (trace){0};
}

/* Shortens the runs of one request; its prompt's come first, and none holds tokens of
 * both prompt and answer. */
static void shrink_request(trace *t, trace_request *r, int32_t by) {
    int32_t n_prompt = r->n_prompt, seen = 0;
    r->n_prompt = r->n_output = 0;
    for (int32_t i = 0; i < r->n_runs; i++) {
        trace_run *run = &t->runs[r->first_run + i];
        bool in_prompt = seen < n_prompt;
        seen += run->n;
        run->n = (run->n + by - 1) / by;
        *(in_prompt ? &r->n_prompt : &r->n_output) += run->n;
    }
}

void trace_shrink(trace *t, int32_t by) {
    t->n_prompt_tokens = t->n_output_tokens = t->longest = 0;
    for (int32_t i = 0; i < t->n_requests; i++) {
        trace_request *r = &t->requests[i];
        shrink_request(t, r, by);
        t->n_prompt_tokens += r->n_prompt;
        t->n_output_tokens += r->n_output;
        t->longest = r->n_prompt + r->n_output > t->longest ? r->n_prompt + r->n_output : t->longest;
    }
}

void trace_tokens(const trace *t, const trace_request *r, int32_t *out) {
    const trace_run *runs = t->runs + r->first_run;
    for (int32_t i = 0; i < r->n_runs; i++) {
        for (int32_t j = 0; j < runs[i].n; j++) {
            *out++ = runs[i].first + j;
        }
    }
}

int32_t trace_token_of(int32_t id, int32_t n_vocab) {
    uint64_t z = (uint64_t)(uint32_t)id * 0x9e3779b97f4a7c15u;
    z ^= z >> 32;
    return (int32_t)(z * 0xd6e8feb86659fd93u >> 33) % n_vocab;
}
