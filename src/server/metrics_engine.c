/* Writes the metrics of the engine, under vLLM's names where it has them, so that its
 * dashboards work, then those of the server. */
#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "server/adapter_list.h"
#include "server/metrics.h"
#include "server/models.h"

/* A metric whose value is one member of a struct. */
typedef struct number_row {
    const char *name, *type, *help;
    size_t offset;
} number_row;

#define ENGINE_LABEL "engine=\"0\"," /* comes before the model's label */

#define IN_STATS(field)     offsetof(quire_stats, field)
#define IN_TIER(field)      offsetof(quire_tier_stats, field)
#define IN_SNAPSHOTS(field) offsetof(quire_snapshot_stats, field)
#define IN_MEMORY(field)    offsetof(quire_page_memory, field)
#define IN_PARKED(field)    offsetof(quire_parked_stats, field)

static const number_row shared_rows[] = {
    {"vllm:num_requests_running", "gauge", "Sequences in the running batch.", IN_STATS(n_requests_running)},
    {"vllm:num_requests_waiting", "gauge", "Sequences waiting to run.", IN_STATS(n_requests_waiting)},
    {"vllm:num_preemptions_total", "counter", "Running sequences that were preempted to free KV pages.",
     IN_STATS(preemptions)},
    {"vllm:prompt_tokens_total", "counter",
     "Prompt tokens of requests that have generated their first token; each sample counts its prompt.",
     IN_STATS(prompt_tokens)},
    {"vllm:prompt_tokens_cached_total", "counter",
     "Prompt tokens that were not computed: cached, or shared by samples of one prompt.",
     IN_STATS(prompt_tokens_cached)},
    {"vllm:generation_tokens_total", "counter", "Tokens that the engine generated.",
     IN_STATS(generation_tokens)},
    {"vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up in the prefix cache.",
     IN_STATS(prefix_queries)},
    {"vllm:prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix cache.",
     IN_STATS(prefix_hits)},
    {"vllm:spec_decode_num_drafts_total", "counter", "Drafts that speculative decoding verified.",
     IN_STATS(drafts)},
    {"vllm:spec_decode_num_draft_tokens_total", "counter", "Draft tokens that speculative decoding verified.",
     IN_STATS(draft_tokens)},
    {"vllm:spec_decode_num_accepted_tokens_total", "counter", "Draft tokens that were accepted.",
     IN_STATS(draft_accepted)},
};

static const number_row own_rows[] = {
    {"quire_deadline_refusals_total", "counter",
     "Requests refused because their first token would have missed its deadline.",
     IN_STATS(deadlines_refused)},
    {"quire_preempted_prefix_queries_total", "counter",
     "Tokens of preempted requests looked up in the prefix cache on resumption.",
     IN_STATS(preempted_queries)},
    {"quire_preempted_prefix_hits_total", "counter",
     "Tokens of preempted requests found in the prefix cache on resumption.", IN_STATS(preempted_hits)},
    {"quire_rule_bytes", "gauge", "Memory used by the states of requests' rules (grammars, schemas).",
     IN_STATS(rule_bytes)},
    {"quire_rule_bytes_max", "gauge",
     "Limit on memory for the states of requests' rules (--rule-memory-bytes).", IN_STATS(max_rule_bytes)},
    {"quire_rule_waits_total", "counter",
     "Times that a sequence skipped steps because its rule took longer than a step may.",
     IN_STATS(rules_outside)},
    {"quire_forced_tokens_total", "counter", "Tokens forced by a request's rule, and so not sampled.",
     IN_STATS(jump_forward_tokens)},
    {"quire_pages", "gauge", "KV pages in the pool.", IN_STATS(n_pages)},
    {"quire_pages_free", "gauge", "KV pages that hold nothing.", IN_STATS(n_pages_free)},
    {"quire_pages_held", "gauge", "KV pages that sequences hold.", IN_STATS(n_pages_held)},
    {"quire_pages_cached", "gauge", "KV pages kept for reuse that no sequence holds.",
     IN_STATS(n_pages_cached)},
    {"quire_steps_total", "counter", "Forward passes.", IN_STATS(steps)},
    {"quire_step_rows_total", "counter", "Rows in all forward passes.", IN_STATS(step_rows)},
    {"quire_swapped_out_total", "counter", "Preempted requests whose KV pages were saved in host memory.",
     IN_STATS(swapped_out)},
    {"quire_swapped_in_total", "counter", "Preempted requests whose KV pages were restored from host memory.",
     IN_STATS(swapped_in)},
    {"quire_swapped_pages_total", "counter", "KV pages of preempted requests copied to host memory or back.",
     IN_STATS(swapped_pages)},
    {"quire_promoted_tokens_total", "counter", "Tokens whose KV pages were restored from a tier.",
     IN_STATS(promoted_tokens)},
};

static const number_row tier_rows[] = {
    {"quire_tier_hits_total", "counter", "KV pages requested from a tier and received.", IN_TIER(hits)},
    {"quire_tier_misses_total", "counter",
     "KV pages requested from a tier that were missing, damaged or late.", IN_TIER(misses)},
    {"quire_tier_puts_total", "counter", "KV pages stored in a tier.", IN_TIER(puts)},
    {"quire_tier_dropped_total", "counter", "KV pages that a tier had no room to store.", IN_TIER(dropped)},
    {"quire_tier_errors_total", "counter",
     "Failed transfers of a tier, and KV pages that were found damaged.", IN_TIER(errors)},
    {"quire_tier_bytes", "gauge", "Bytes stored in a tier.", IN_TIER(bytes)},
};

static const number_row memory_rows[] = {
    {"quire_pages_absent", "gauge", "KV pages of the pool that have no memory now.",
     IN_MEMORY(n_pages_absent)},
    {"quire_page_bytes", "gauge", "Memory of KV pages, including those of draft models and other models.",
     IN_MEMORY(used_bytes)},
    {"quire_page_bytes_max", "gauge",
     "Limit on the memory of KV pages, including those of draft models and other models.",
     IN_MEMORY(max_bytes)},
    {"quire_page_bytes_taken", "gauge",
     "Memory taken from KV pages by the weights and buffers of models other than the first.",
     IN_MEMORY(model_bytes)},
    {"quire_draft_page_bytes", "gauge", "Memory of the draft model's KV pages.", IN_MEMORY(draft_bytes)},
};

static const number_row parked_rows[] = {
    {"quire_parks", "gauge", "Parks of programs that hold a sequence's KV pages.", IN_PARKED(n_parks)},
    {"quire_parked_pages", "gauge", "KV pages held by parks of programs, each once.", IN_PARKED(n_pages)},
    {"quire_parked_bytes", "gauge", "Bytes of KV pages held by parks of programs.", IN_PARKED(bytes)},
    {"quire_parked_bytes_max", "gauge", "Bytes of KV pages that parks may hold (--parked-bytes).",
     IN_PARKED(max_bytes)},
    {"quire_parked_total", "counter", "Sequences of programs whose KV pages were parked.", IN_PARKED(parked)},
    {"quire_parks_bounded_total", "counter", "Parks emptied, or sequences not parked, because of a limit.",
     IN_PARKED(bounded)},
};

static const number_row snapshot_rows[] = {
    {"quire_state_snapshots", "gauge", "Snapshots of recurrent states in the pool.",
     IN_SNAPSHOTS(n_snapshots)},
    {"quire_state_snapshots_max", "gauge", "Snapshots of recurrent states that the pool may hold.",
     IN_SNAPSHOTS(max_snapshots)},
    {"quire_state_snapshot_bytes", "gauge", "Bytes of KV pages in snapshots of recurrent states.",
     IN_SNAPSHOTS(bytes)},
    {"quire_state_snapshot_bytes_max", "gauge",
     "Limit on the bytes of KV pages in snapshots of recurrent states (--state-snapshot-bytes).",
     IN_SNAPSHOTS(max_bytes)},
    {"quire_state_snapshots_taken_total", "counter",
     "Snapshots of recurrent states that were taken, or restored from a tier.", IN_SNAPSHOTS(taken)},
    {"quire_state_snapshots_dropped_total", "counter",
     "Snapshots of recurrent states that were evicted, replaced, or overwritten by their sequence.",
     IN_SNAPSHOTS(dropped)},
    {"quire_state_snapshots_restored_total", "counter",
     "Times that a sequence continued from a snapshot of recurrent states.", IN_SNAPSHOTS(restored)},
};

static const struct {
    const char *name, *help;
    quire_histogram_kind kind;
} histograms[] = {
    {"vllm:time_to_first_token_seconds", "Time from the arrival of a request to its first token.",
     QUIRE_HISTOGRAM_FIRST_TOKEN},
    {"vllm:inter_token_latency_seconds", "Time between two tokens of a sequence.", QUIRE_HISTOGRAM_TOKEN_GAP},
    {"vllm:time_per_output_token_seconds",
     "Time between two tokens of a sequence (older name of vllm:inter_token_latency_seconds).",
     QUIRE_HISTOGRAM_TOKEN_GAP},
    {"vllm:request_time_per_output_token_seconds",
     "Mean decode time of a request per token after the first, for requests with at least two.",
     QUIRE_HISTOGRAM_TOKEN_TIME},
    {"vllm:e2e_request_latency_seconds", "Time from the arrival of a request to its end.",
     QUIRE_HISTOGRAM_E2E},
    {"vllm:request_queue_time_seconds",
     "Time from the arrival of a request to its admission, or to its end if never admitted.",
     QUIRE_HISTOGRAM_QUEUE},
    {"vllm:request_inference_time_seconds", "Time from the admission of a request to its end.",
     QUIRE_HISTOGRAM_INFERENCE},
    {"vllm:request_prefill_time_seconds", "Time from the admission of a request to its first token.",
     QUIRE_HISTOGRAM_PREFILL},
    {"vllm:request_decode_time_seconds", "Time from the first token of a request to its end.",
     QUIRE_HISTOGRAM_DECODE},
    {"vllm:request_prompt_tokens", "Prompt tokens of a request.", QUIRE_HISTOGRAM_PROMPT_TOKENS},
    {"vllm:request_prefill_kv_computed_tokens",
     "Prompt tokens computed for a request: neither cached nor shared.", QUIRE_HISTOGRAM_COMPUTED_TOKENS},
    {"vllm:request_generation_tokens", "Tokens of the answer to a request.",
     QUIRE_HISTOGRAM_COMPLETION_TOKENS},
    {"vllm:request_max_num_generation_tokens", "Tokens of the longest answer to a prompt.",
     QUIRE_HISTOGRAM_LONGEST},
    {"vllm:request_params_max_tokens", "Limit on the number of tokens in the answer to a request.",
     QUIRE_HISTOGRAM_MAX_TOKENS},
    {"vllm:request_params_n", "Answers that a request asked for (n).", QUIRE_HISTOGRAM_SAMPLES},
    {"vllm:request_num_preemptions", "Preemptions of a request.", QUIRE_HISTOGRAM_PREEMPTIONS},
    {"vllm:iteration_tokens_total", "Tokens that a step computes.", QUIRE_HISTOGRAM_STEP_TOKENS},
};

static int64_t metrics_number_at(const void *from, size_t offset) {
    return *(const int64_t *)(const void *)((const char *)from + offset);
}

/* Writes metrics from a struct. labels: without braces, or NULL. */
static quire_err metrics_write_numbers(const number_row *rows, size_t n, const void *st, const char *labels,
                                       strbuf *out) {
    for (size_t i = 0; i < n; i++) {
        TRY(metrics_describe(out, rows[i].name, rows[i].type, rows[i].help));
        TRY(strbuf_addf(out, labels != NULL ? "%s{%s} " : "%s ", rows[i].name, labels));
        TRY(strbuf_addf(out, "%" PRId64 "\n", metrics_number_at(st, rows[i].offset)));
    }
    return QUIRE_OK;
}

/* ---- metrics with a line for each value of a label ---- */

typedef struct labelled {
    const char *value;
    int64_t v;
} labelled;

/* A metric with a line for each value of an additional label. */
static quire_err metrics_write_by(strbuf *out, const char *name, const char *type, const char *help,
                                  const char *labels, const char *label, const labelled *values, size_t n) {
    TRY(metrics_describe(out, name, type, help));
    for (size_t i = 0; i < n; i++) {
        TRY(strbuf_addf(out, "%s{%s,%s=\"%s\"} %" PRId64 "\n", name, labels, label, values[i].value,
                        values[i].v));
    }
    return QUIRE_OK;
}

#define BY(...) (const labelled[]){__VA_ARGS__}, sizeof(const labelled[]){__VA_ARGS__} / sizeof(labelled)

static quire_err metrics_write_labelled(const quire_stats *st, const char *labels, strbuf *out) {
    const int64_t *ends = st->requests_finished;
    TRY(metrics_write_by(out, "vllm:num_requests_waiting_by_reason", "gauge",
                         "Sequences waiting to run, by reason: capacity, or (deferred) pages that another "
                         "request computes or a tier fetches.",
                         labels, "reason",
                         BY({"capacity", st->n_requests_waiting - st->n_requests_deferred},
                            {"deferred", st->n_requests_deferred})));
    TRY(metrics_write_by(out, "vllm:prompt_tokens_by_source_total", "counter",
                         "Prompt tokens, by the source of their keys and values.", labels, "source",
                         BY({"local_compute", st->prompt_tokens - st->prompt_tokens_cached},
                            {"local_cache_hit", st->prompt_tokens_cached})));
    TRY(metrics_write_by(out, "vllm:request_success_total", "counter",
                         "Finished requests, by finish reason; each sample counts as one.", labels,
                         "finished_reason",
                         BY({"stop", ends[0]}, {"length", ends[1]}, {"abort", ends[2]}, {"error", ends[3]})));
    TRY(metrics_describe(
        out, "vllm:admission_rejections_total", "counter",
        "Requests refused because the engine has its limit of waiting and running requests."));
    return strbuf_addf(out,
                       "vllm:admission_rejections_total{%s,reason=\"max_num_queued_reqs\"} %" PRId64 "\n",
                       labels + sizeof ENGINE_LABEL - 1, st->requests_refused);
}

/* Writes the cache's configuration. A sequence takes pages in every group of layers, so a
 * group's share of the pool corresponds to vLLM's blocks. labels: the engine's and, if
 * there are several models, the model's, since otherwise lines could be equal. */
static quire_err metrics_write_cache_config(const quire_info *i, const char *labels, strbuf *out) {
    int64_t blocks = i->n_page_groups > 0 ? i->n_pages / i->n_page_groups : 0;
    TRY(metrics_describe(out, "vllm:cache_config_info", "gauge",
                         "The pool of KV pages; a block is one page in each group of layers."));
    return strbuf_addf(out,
                       "vllm:cache_config_info{block_size=\"%d\",cache_dtype=\"%s\",enable_prefix_caching=\"%"
                       "s\",%s,kv_cache_memory_bytes=\"%" PRId64 "\",kv_cache_size_tokens=\"%" PRId64
                       "\",num_gpu_blocks=\"%" PRId64 "\"} 1\n",
                       (int)i->page_tokens, i->kv_dtype, i->caches_prefixes ? "True" : "False", labels,
                       i->n_pages * i->page_bytes, blocks * i->page_tokens, blocks);
}

/* Writes a pool's memory by state of its pages. */
static quire_err metrics_write_pages(const quire_info *i, const quire_stats *st, const char *labels,
                                     strbuf *out) {
    const int64_t n_absent = st->n_pages - st->n_pages_free - st->n_pages_held - st->n_pages_cached,
                  each = i->page_bytes;
    return metrics_write_by(out, "quire_model_page_bytes", "gauge",
                            "Bytes of a model's KV pages by state; absent: those without memory now.", labels,
                            "state",
                            BY({"free", st->n_pages_free * each}, {"held", st->n_pages_held * each},
                               {"cached", st->n_pages_cached * each}, {"absent", n_absent * each}));
}

static quire_err metrics_write_accepted(const quire_stats *st, const char *labels, strbuf *out) {
    static const char name[] = "vllm:spec_decode_num_accepted_tokens_per_pos_total";
    size_t n = sizeof(st->draft_accepted_at) / sizeof(st->draft_accepted_at[0]);
    while (n > 1 && st->draft_accepted_at[n - 1] == 0) {
        n--;
    }
    TRY(metrics_describe(out, name, "counter", "Draft tokens that were accepted, by position in the draft."));
    for (size_t i = 0; i < n; i++) {
        TRY(strbuf_addf(out, "%s{%s,position=\"%zu\"} %" PRId64 "\n", name, labels, i,
                        st->draft_accepted_at[i]));
    }
    return QUIRE_OK;
}

/* Writes a line for each open tier. */
static quire_err metrics_write_tiers(const quire_stats *st, strbuf *out) {
    static const char *const names[3] = {"host", "file", "redis"};
    for (size_t k = 0; k < sizeof tier_rows / sizeof *tier_rows; k++) {
        const number_row *r = &tier_rows[k];
        TRY(metrics_describe(out, r->name, r->type, r->help));
        for (int i = 0; i < 3; i++) {
            if (st->tiers[i].is_open) {
                TRY(strbuf_addf(out, "%s{tier=\"%s\"} %" PRId64 "\n", r->name, names[i],
                                metrics_number_at(&st->tiers[i], r->offset)));
            }
        }
    }
    return QUIRE_OK;
}

/* Writes the metrics that vLLM has too. labels: engine and model, without braces.
 * has_twins: other models have these metrics as well. */
static quire_err metrics_write_shared(const quire_info *info, const quire_stats *st, const char *labels,
                                      bool has_twins, strbuf *out) {
    double usage = st->n_pages > 0 ? (double)st->n_pages_held / (double)st->n_pages : 0.0;
    TRY(metrics_write_numbers(shared_rows, sizeof shared_rows / sizeof *shared_rows, st, labels, out));
    TRY(metrics_describe(out, "vllm:kv_cache_usage_perc", "gauge",
                         "Fraction of the KV pages that sequences hold, from 0 to 1."));
    TRY(strbuf_addf(out, "vllm:kv_cache_usage_perc{%s} %.15g\n", labels, usage));
    TRY(metrics_write_labelled(st, labels, out));
    TRY(metrics_write_accepted(st, labels, out));
    TRY(metrics_write_cache_config(info, has_twins ? labels : "engine=\"0\"", out));
    TRY(metrics_write_pages(info, st, labels, out));
    for (size_t i = 0; i < sizeof histograms / sizeof *histograms; i++) {
        TRY(metrics_histogram(out, histograms[i].name, histograms[i].help, labels,
                              &st->histograms[histograms[i].kind], histograms[i].kind));
    }
    return QUIRE_OK;
}

/* Writes the labels of vLLM's metrics. */
static quire_err metrics_write_labels(const char *model, strbuf *labels) {
    TRY(strbuf_add_str(labels, ENGINE_LABEL "model_name=\""));
    TRY(metrics_escape(labels, model));
    return strbuf_add_char(labels, '"');
}

static quire_err metrics_write_model(const quire_info *info, const quire_stats *st, const char *model,
                                     bool has_twins, strbuf *out) {
    strbuf labels = {0};
    quire_err e = metrics_write_labels(model, &labels);
    if (e == QUIRE_OK) {
        e = metrics_write_shared(info, st, labels.p, has_twins, out);
    }
    strbuf_deinit(&labels);
    return e;
}

/* Writes an engine's metrics that vLLM lacks, without a label of the model. */
static quire_err metrics_write_own(const quire_stats *st, strbuf *out) {
    TRY(metrics_write_numbers(own_rows, sizeof own_rows / sizeof *own_rows, st, NULL, out));
    TRY(metrics_float(out, "quire_step_seconds_total", "counter", "Time in all steps of the engine.",
                      (double)st->step_us * 1e-6));
    TRY(metrics_float(out, "quire_swap_seconds_total", "counter",
                      "Time spent copying to swap space and back.", (double)st->swap_us * 1e-6));
    return metrics_write_tiers(st, out);
}

quire_err metrics_write_engine(const quire_info *info, const quire_stats *st, const char *model,
                               strbuf *out) {
    TRY(metrics_write_model(info, st, model, false, out));
    return metrics_write_own(st, out);
}

/* ---- of several models ---- */

/* Finds the next metric in text from byte `at` on. Returns its end; *lines: where its
 * values begin, after the HELP and TYPE lines. */
static size_t metrics_next(str text, size_t at, size_t *lines) {
    static const char help[] = "# HELP ";
    *lines = at;
    for (int i = 0; i < 2; i++) {
        const char *end = memchr(text.p + *lines, '\n', text.n - *lines);
        *lines = end != NULL ? (size_t)(end - text.p) + 1 : text.n;
    }
    size_t end = *lines;
    while (end < text.n && strncmp(text.p + end, help, sizeof help - 1) != 0) {
        const char *next = memchr(text.p + end, '\n', text.n - end);
        end = next != NULL ? (size_t)(next - text.p) + 1 : text.n;
    }
    return end;
}

/* Merges texts that have the same metrics in the same order: writes each metric once,
 * with the values of all texts, as the format requires. */
static quire_err metrics_merge(const strbuf *texts, size_t *at, int32_t n, strbuf *out) {
    while (at[0] < texts[0].n) {
        for (int32_t i = 0; i < n; i++) {
            size_t lines, end = metrics_next((str){texts[i].p, texts[i].n}, at[i], &lines);
            size_t from = i == 0 ? at[i] : lines;
            TRY(strbuf_add(out, texts[i].p + from, end - from));
            at[i] = end;
        }
    }
    return QUIRE_OK;
}

/* Writes the metrics with the label of their model, for all loaded models. */
static quire_err metrics_write_models(server *s, const quire_stats *main, strbuf *out) {
    int32_t n = models_count(s->models), n_texts = 1;
    if (n == 1) {
        return metrics_write_model(quire_engine_info(s->engine), main, s->model_name, false, out);
    }
    strbuf *texts = mem_new((size_t)n, sizeof *texts);
    size_t *at = mem_new((size_t)n, sizeof *at);
    quire_err e = texts != NULL && at != NULL ? QUIRE_OK : QUIRE_NO_MEMORY;
    TRY_DONE(e, metrics_write_model(quire_engine_info(s->engine), main, s->model_name, true, &texts[0]));
    for (int32_t i = 1; i < n && e == QUIRE_OK; i++) {
        served_model *m = models_at(s->models, i);
        quire_stats st;
        if (models_visit(s->models, m)) {
            quire_engine_stats(m->engine, &st);
            e = metrics_write_model(quire_engine_info(m->engine), &st, m->name, true, &texts[n_texts++]);
            models_end_visit(s->models, m);
        }
    }
    TRY_DONE(e, metrics_merge(texts, at, n_texts, out));
done:
    for (int32_t i = 0; i < n && texts != NULL; i++) {
        strbuf_deinit(&texts[i]);
    }
    mem_free(texts);
    mem_free(at);
    return e;
}

/* Writes vLLM's sleep states for each loaded model. */
static quire_err metrics_write_sleep(const server *s, strbuf *out) {
    static const char name[] = "vllm:engine_sleep_state";
    /* indexed by sleep_level */
    static const char *const states[] = {"awake", "weights_offloaded", "discard_all"};
    const sleep_level level = models_sleeping(s->models);
    quire_err e = metrics_describe(
        out, name, "gauge",
        "State of a model: awake, or asleep at level 1 (weights_offloaded) or 2 (discard_all).");
    for (int32_t i = 0; i < models_count(s->models) && e == QUIRE_OK; i++) {
        const served_model m = models_look(s->models, models_at(s->models, i));
        strbuf labels = {0};
        e = m.state == MODEL_READY ? metrics_write_labels(m.name, &labels) : QUIRE_OK;
        for (int k = SLEEP_NONE; k <= SLEEP_OTHERS && labels.n > 0 && e == QUIRE_OK; k++) {
            e = strbuf_addf(out, "%s{%s,sleep_state=\"%s\"} %d\n", name, labels.p, states[k],
                            k == (int)level);
        }
        strbuf_deinit(&labels);
    }
    return e;
}

/* Writes how often chats named an earlier answer by its id. */
static quire_err metrics_write_turns(const quire_engine *e, strbuf *out) {
    quire_turn_stats t = {.size = sizeof t};
    quire_engine_turns(e, &t);
    const struct {
        const char *result;
        int64_t n;
    } rows[] = {{"reused", t.n_reused}, {"gone", t.n_gone}, {"differs", t.n_differ}};
    TRY(metrics_describe(out, "quire_recalled_turns_total", "counter",
                         "Earlier answers that conversations referred to by id, by result: token ids reused, "
                         "no longer kept, or of a different text."));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        TRY(strbuf_addf(out, "quire_recalled_turns_total{result=\"%s\"} %lld\n", rows[i].result,
                        (long long)rows[i].n));
    }
    return QUIRE_OK;
}

static quire_err metrics_write_snapshots(const quire_engine *e, strbuf *out) {
    quire_snapshot_stats st = {.size = sizeof st};
    quire_engine_snapshots(e, &st);
    return metrics_write_numbers(snapshot_rows, sizeof snapshot_rows / sizeof *snapshot_rows, &st, NULL, out);
}

static quire_err metrics_write_parked(const quire_engine *e, strbuf *out) {
    quire_parked_stats st = {.size = sizeof st};
    quire_engine_parked(e, &st);
    return metrics_write_numbers(parked_rows, sizeof parked_rows / sizeof *parked_rows, &st, NULL, out);
}

static quire_err metrics_write_memory(const quire_engine *e, strbuf *out) {
    quire_page_memory m = {.size = sizeof m};
    quire_engine_page_memory(e, &m);
    return metrics_write_numbers(memory_rows, sizeof memory_rows / sizeof *memory_rows, &m, NULL, out);
}

quire_err metrics_write(server *s, bool shows_tenants, strbuf *out) {
    assert(s != NULL);
    quire_stats st;
    quire_engine_stats(s->engine, &st);
    TRY(metrics_write_models(s, &st, out));
    TRY(metrics_write_sleep(s, out));
    TRY(metrics_write_own(&st, out));
    TRY(metrics_write_memory(s->engine, out));
    TRY(metrics_write_parked(s->engine, out));
    TRY(metrics_write_snapshots(s->engine, out));
    TRY(metrics_write_turns(s->engine, out));
    TRY(adapter_list_metrics(s->engine, out));
    return metrics_write_server(s, shows_tenants, out);
}
