#include "lab/bench/headline_figures.h"

#include <math.h>
#include <string.h>

headline_load headline_load_of(const serving_result *r, double rate) {
    double running = (double)r->step_running;
    headline_load load = {.rate = rate,
                          .tokens_s = (double)r->output_tokens / (r->span_us * 1e-6),
                          .at_once = running / (double)r->n_steps,
                          .live = (double)r->step_live / (double)r->step_reserved,
                          .n_steps = (double)r->n_steps,
                          .n_preemptions = (double)r->n_preemptions,
                          .work = r->work};
    memcpy(load.steps_at, r->steps_at, sizeof load.steps_at);
    for (int32_t i = 0; i < r->times.n; i++) {
        load.latency += r->times.per_token[i] * 1e-6 / r->times.n;
    }
    return load;
}

static void mean_of(double *mean, int32_t n, double value) {
    *mean += (value - *mean) / (n + 1);
}

void headline_load_mean(headline_load *mean, int32_t n, const headline_load *load) {
    if (n == 0) {
        *mean = *load;
        return;
    }
    mean_of(&mean->latency, n, load->latency);
    mean_of(&mean->tokens_s, n, load->tokens_s);
    mean_of(&mean->at_once, n, load->at_once);
    mean_of(&mean->live, n, load->live);
    mean_of(&mean->n_steps, n, load->n_steps);
    mean_of(&mean->n_preemptions, n, load->n_preemptions);
    mean_of(&mean->work.rows, n, load->work.rows);
    mean_of(&mean->work.out, n, load->work.out);
    mean_of(&mean->work.decode_pairs, n, load->work.decode_pairs);
    mean_of(&mean->work.prefill_pairs, n, load->work.prefill_pairs);
    mean_of(&mean->work.copied, n, load->work.copied);
    mean_of(&mean->work.swapped, n, load->work.swapped);
    for (int k = 0; k < COST_N_KNOTS; k++) {
        mean_of(&mean->steps_at[k], n, load->steps_at[k]);
    }
}

double headline_highest_rate(const headline_load *loads, int32_t n, double bound, bool *is_between) {
    int32_t i = 0;
    while (i < n && loads[i].latency <= bound) {
        i++;
    }
    *is_between = i > 0 && i < n;
    if (!*is_between) {
        return i == 0 ? loads[0].rate : loads[n - 1].rate;
    }
    const headline_load *a = &loads[i - 1], *b = &loads[i];
    double part = log(bound / a->latency) / log(b->latency / a->latency);
    return a->rate * pow(b->rate / a->rate, part);
}

double headline_allowed_us(const cost_model *c, const headline_load *load) {
    step_work rest = load->work; /* beside the rows */
    rest.rows = 0;
    double us = cost_of(c, &rest) - cost_of(c, &(step_work){0});
    for (int k = 0; k < COST_N_KNOTS; k++) {
        us += load->steps_at[k] > 0 ? load->steps_at[k] * cost_of(c, &(step_work){.rows = cost_knot(k)}) : 0;
    }
    return us;
}

double headline_drift(const cost_model *a, const cost_model *b, const headline_load *load) {
    double of_a = headline_allowed_us(a, load), of_b = headline_allowed_us(b, load);
    return fmax(of_a, of_b) / fmin(of_a, of_b) - 1;
}

double headline_idle_latency(const cost_model *c, double mean_prompt, double mean_output, int32_t max_rows) {
    double us = 0;
    for (double at = 0; at < mean_prompt; at += max_rows) {
        double rows = fmin(max_rows, mean_prompt - at);
        us += cost_of(c, &(step_work){.rows = rows, .out = 1, .prefill_pairs = rows * (at + (rows + 1) / 2)});
    }
    double context = mean_prompt + mean_output / 2;
    us += (mean_output - 1) * cost_of(c, &(step_work){.rows = 1, .out = 1, .decode_pairs = context});
    return us / mean_output * 1e-6;
}

int32_t headline_median_run(const double *reached, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        int32_t rank = 0; /* runs that come before it in ascending order */
        for (int32_t k = 0; k < n; k++) {
            rank += reached[k] < reached[i] || (reached[k] == reached[i] && k < i);
        }
        if (rank == (n - 1) / 2) {
            return i;
        }
    }
    return 0;
}
