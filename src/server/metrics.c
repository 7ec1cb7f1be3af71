#include "server/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "base/clock.h"

#define N_BUCKETS 16

static quire_err describe(strbuf *out, const char *name, const char *type, const char *help) {
    return strbuf_addf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Writes a metric with one value; labels: "{...}" or "". */
static quire_err write_int(strbuf *out, const char *name, const char *type, const char *help, const char *labels, int64_t v) {
    TRY(describe(out, name, type, help));
    return strbuf_addf(out, "%s%s %" PRId64 "\n", name, labels, v);
}

static quire_err write_float(strbuf *out, const char *name, const char *type, const char *help, const char *labels, double v) {
    TRY(describe(out, name, type, help));
    return strbuf_addf(out, "%s%s %.9g\n", name, labels, v);
}

/* Writes a model's name as a label's value: \, " and newlines escaped. */
static void escape_label(char *out, size_t size, const char *name) {
    size_t n = 0;
    for (; *name != '\0' && n + 3 < size; name++) {
        if (*name == '\\' || *name == '"' || *name == '\n') {
            out[n++] = '\\';
        }
        out[n++] = *name == '\n' ? 'n' : *name;
    }
    out[n] = '\0';
}

typedef struct histogram {
    const char *name, *help;
    const int64_t *buckets; /* cumulative, N_BUCKETS of them */
    double sum;
    int64_t count;
} histogram;

static quire_err write_histogram(strbuf *out, const histogram *h, const char *model) {
    const double *bounds = quire_stats_bounds();
    TRY(describe(out, h->name, "histogram", h->help));
    for (int i = 0; i < N_BUCKETS; i++) {
        char bound[32] = "+Inf";
        if (i < N_BUCKETS - 1 && isfinite(bounds[i])) {
            snprintf(bound, sizeof(bound), "%.9g", bounds[i]);
        }
        TRY(strbuf_addf(out, "%s_bucket{engine=\"0\",le=\"%s\",model_name=\"%s\"} %" PRId64 "\n", h->name, bound, model, h->buckets[i]));
    }
    TRY(strbuf_addf(out, "%s_sum{engine=\"0\",model_name=\"%s\"} %.9g\n", h->name, model, h->sum));
    return strbuf_addf(out, "%s_count{engine=\"0\",model_name=\"%s\"} %" PRId64 "\n", h->name, model, h->count);
}

/* Speculation, under vLLM's names. */
static quire_err write_drafts(strbuf *out, const quire_stats *st, const char *model) {
    char labels[600];
    snprintf(labels, sizeof(labels), "{engine=\"0\",model_name=\"%s\"}", model);
    TRY(write_int(out, "vllm:spec_decode_num_drafts_total", "counter", "Drafts verified.", labels, st->drafts));
    TRY(write_int(out, "vllm:spec_decode_num_draft_tokens_total", "counter", "Tokens in them.", labels, st->draft_tokens));
    TRY(write_int(out, "vllm:spec_decode_num_accepted_tokens_total", "counter", "Of these, accepted.", labels, st->draft_accepted));
    TRY(describe(out, "vllm:spec_decode_num_accepted_tokens_per_pos_total", "counter", "The same by place in the draft."));
    size_t n = sizeof(st->draft_accepted_at) / sizeof(st->draft_accepted_at[0]);
    while (n > 1 && st->draft_accepted_at[n - 1] == 0) {
        n--;
    }
    for (size_t i = 0; i < n; i++) {
        TRY(strbuf_addf(out,
                        "vllm:spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",model_name=\"%s\",position=\"%zu\"} %" PRId64 "\n",
                        model, i, st->draft_accepted_at[i]));
    }
    return write_int(out, "quire_forced_tokens_total", "counter", "Tokens that had to come and were not chosen.", "",
                     st->jump_forward_tokens);
}

/* vLLM's names, for existing dashboards. */
static quire_err write_vllm(strbuf *out, const quire_stats *st, const char *model) {
    static const char *const reasons[4] = {"stop", "length", "abort", "error"};
    char labels[600];
    snprintf(labels, sizeof(labels), "{engine=\"0\",model_name=\"%s\"}", model);
    double usage = st->n_pages > 0 ? (double)st->n_pages_held / (double)st->n_pages : 0.0;
    TRY(write_int(out, "vllm:num_requests_running", "gauge", "Requests in the running batch.", labels, st->n_requests_running));
    TRY(write_int(out, "vllm:num_requests_waiting", "gauge", "Requests waiting to run.", labels, st->n_requests_waiting));
    TRY(write_float(out, "vllm:kv_cache_usage_perc", "gauge", "Part of the KV pages in use; 1 is all of them.", labels, usage));
    TRY(write_int(out, "vllm:num_preemptions_total", "counter", "Preemptions.", labels, st->preemptions));
    TRY(write_int(out, "quire_deadline_refusals_total", "counter", "Requests whose first token would have come after their deadline.", "",
                  st->deadlines_refused));
    TRY(write_int(out, "vllm:prompt_tokens_total", "counter", "Prompt tokens processed.", labels, st->prompt_tokens));
    TRY(write_int(out, "vllm:generation_tokens_total", "counter", "Tokens generated.", labels, st->generation_tokens));
    TRY(write_int(out, "vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up in the prefix cache.", labels,
                  st->prefix_queries));
    TRY(write_int(out, "vllm:prefix_cache_hits_total", "counter", "Prompt tokens found there.", labels, st->prefix_hits));
    TRY(write_int(out, "quire_preempted_prefix_queries_total", "counter",
                  "Tokens of preempted requests looked up there when they came back.", "", st->preempted_queries));
    TRY(write_int(out, "quire_preempted_prefix_hits_total", "counter", "Tokens of preempted requests found there.", "",
                  st->preempted_hits));
    TRY(describe(out, "vllm:request_success_total", "counter", "Finished requests by reason."));
    for (int i = 0; i < 4; i++) {
        TRY(strbuf_addf(out, "vllm:request_success_total{engine=\"0\",finished_reason=\"%s\",model_name=\"%s\"} %" PRId64 "\n", reasons[i],
                        model, st->requests_finished[i]));
    }
    const histogram all[] = {
        {"vllm:time_to_first_token_seconds", "Arrival to first token.", st->ttft_buckets, st->ttft_sum, st->ttft_count},
        {"vllm:inter_token_latency_seconds", "Time between two tokens of a request.", st->gap_buckets, st->gap_sum, st->gap_count},
        {"vllm:time_per_output_token_seconds", "The same, under its older name.", st->gap_buckets, st->gap_sum, st->gap_count},
        {"vllm:e2e_request_latency_seconds", "Arrival to last token.", st->e2e_buckets, st->e2e_sum, st->e2e_count},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        TRY(write_histogram(out, &all[i], model));
    }
    return write_drafts(out, st, model);
}

static quire_err write_engine(strbuf *out, const quire_stats *st) {
    TRY(write_int(out, "quire_pages", "gauge", "KV pages in the pool.", "", st->n_pages));
    TRY(write_int(out, "quire_pages_free", "gauge", "KV pages that hold nothing.", "", st->n_pages_free));
    TRY(write_int(out, "quire_pages_held", "gauge", "KV pages that sequences hold.", "", st->n_pages_held));
    TRY(write_int(out, "quire_pages_cached", "gauge", "KV pages kept for reuse that no sequence holds.", "", st->n_pages_cached));
    TRY(write_int(out, "quire_steps_total", "counter", "Forward passes.", "", st->steps));
    TRY(write_int(out, "quire_step_rows_total", "counter", "Rows in all forward passes.", "", st->step_rows));
    return write_float(out, "quire_step_seconds_total", "counter", "Time in all steps.", "", (double)st->step_us * 1e-6);
}

/* Writes one line for each open tier. */
static quire_err write_tier_counter(strbuf *out, const quire_stats *st, const char *name, const char *type, const char *help,
                                    size_t offset) {
    static const char *const names[3] = {"host", "file", "redis"};
    TRY(describe(out, name, type, help));
    for (int i = 0; i < 3; i++) {
        if (st->tiers[i].is_open) {
            const int64_t *v = (const int64_t *)(const void *)((const char *)&st->tiers[i] + offset);
            TRY(strbuf_addf(out, "%s{tier=\"%s\"} %" PRId64 "\n", name, names[i], *v));
        }
    }
    return QUIRE_OK;
}

#define TIER(field) offsetof(quire_tier_stats, field)

static quire_err write_tiers(strbuf *out, const quire_stats *st) {
    TRY(write_int(out, "quire_swapped_out_total", "counter", "Preempted requests whose pages were kept in host memory.", "",
                  st->swapped_out));
    TRY(write_int(out, "quire_swapped_in_total", "counter", "Preempted requests that came back from there.", "", st->swapped_in));
    TRY(write_int(out, "quire_swapped_pages_total", "counter", "Pages copied there and back.", "", st->swapped_pages));
    TRY(write_float(out, "quire_swap_seconds_total", "counter", "Time that these copies took.", "", (double)st->swap_us * 1e-6));
    TRY(write_int(out, "quire_promoted_tokens_total", "counter", "Tokens that came back into the pages from a tier.", "",
                  st->promoted_tokens));
    TRY(write_tier_counter(out, st, "quire_tier_hits_total", "counter", "Pages that a tier was asked for and gave.", TIER(hits)));
    TRY(write_tier_counter(out, st, "quire_tier_misses_total", "counter", "Pages that it did not have, or not intact, or not in time.",
                           TIER(misses)));
    TRY(write_tier_counter(out, st, "quire_tier_puts_total", "counter", "Pages that it took in.", TIER(puts)));
    TRY(write_tier_counter(out, st, "quire_tier_dropped_total", "counter", "Pages that it did not take in for lack of room.",
                           TIER(dropped)));
    TRY(write_tier_counter(out, st, "quire_tier_errors_total", "counter", "Transfers that failed and pages found damaged.", TIER(errors)));
    return write_tier_counter(out, st, "quire_tier_bytes", "gauge", "Bytes that it holds.", TIER(bytes));
}

static quire_err write_server(strbuf *out, const server *s) {
    int64_t requests = 0, errors = 0, disconnects = 0, slow = 0, open = 0;
    for (int32_t i = 0; i < s->n_loops; i++) {
        const loop *l = &s->loops[i];
        requests += atomic_load(&l->n_requests);
        errors += atomic_load(&l->n_errors);
        disconnects += atomic_load(&l->n_disconnects);
        slow += atomic_load(&l->n_slow_readers);
        open += atomic_load(&l->n_open);
    }
    TRY(write_int(out, "quire_http_connections", "gauge", "Open connections.", "", open));
    TRY(write_int(out, "quire_http_requests_total", "counter", "HTTP requests answered.", "", requests));
    TRY(write_int(out, "quire_http_errors_total", "counter", "HTTP requests answered with a status of 400 or more.", "", errors));
    TRY(write_int(out, "quire_http_disconnects_total", "counter", "Clients that left before their answer was complete.", "", disconnects));
    TRY(write_int(out, "quire_http_slow_readers_total", "counter", "Connections closed because the client did not read.", "", slow));
    return write_int(out, "quire_uptime_seconds", "gauge", "Time since the server opened.", "", clock_unix_s() - s->started_s);
}

quire_err metrics_write(const server *s, strbuf *out) {
    quire_stats st;
    char model[512];
    quire_engine_stats(s->engine, &st);
    escape_label(model, sizeof(model), s->model_name);
    TRY(write_vllm(out, &st, model));
    TRY(write_engine(out, &st));
    TRY(write_tiers(out, &st));
    return write_server(out, s);
}
