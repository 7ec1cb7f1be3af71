#include "sim/report.h"

#include <json-c/json.h>
#include <stdio.h>

#include "file/show.h"

double sim_hit_rate(const sim_row *row) {
    return row->result.prompt_tokens > 0 ? (double)row->result.hit_tokens / (double)row->result.prompt_tokens : 0;
}

const char *sim_row_name(const sim_row *row) {
    return row->unlimited ? "unlimited" : replay_policy_name(row->policy);
}

/* A pool without limit is as large as what was in it. */
static int32_t capacity(const sim_row *row) {
    return row->unlimited ? row->result.peak_pages : row->result.n_pages;
}

static double requests_per_s(const replay_result *r) {
    return r->seconds > 0 ? r->n_requests / r->seconds : 0;
}

void report_head(const sim_options *o, const trace *t) {
    if (o->json) {
        return;
    }
    printf("%s: %s requests, %s prompt tokens, %s answer tokens; pages of %d tokens, reuse by %s, %d request%s open at once\n", o->trace,
           show_count((uint64_t)t->n_requests).text, show_count((uint64_t)t->n_prompt_tokens).text,
           show_count((uint64_t)t->n_output_tokens).text, (int)o->page_tokens, o->prefix_cache, (int)o->concurrency,
           o->concurrency == 1 ? "" : "s");
    printf("%-10s %10s %8s %14s %12s %10s %10s %8s %12s\n", "policy", "pages", "hit rate", "hit tokens", "evictions", "peak used",
           "peak held", "refused", "requests/s");
}

static void print_table_row(const sim_row *row) {
    const replay_result *r = &row->result;
    printf("%-10s %10d %7.2f%% %14lld %12lld %10d %10d %8d %12.0f\n", sim_row_name(row), (int)capacity(row), 100 * sim_hit_rate(row),
           (long long)r->hit_tokens, (long long)r->evictions, (int)r->peak_pages, (int)r->peak_held, (int)r->n_refused, requests_per_s(r));
}

static void add_count(json_object *line, const char *key, int64_t v) {
    json_object_object_add(line, key, json_object_new_int64(v));
}

static quire_err print_json_row(const sim_options *o, const sim_row *row) {
    const replay_result *r = &row->result;
    json_object *line = json_object_new_object();
    if (line == NULL) {
        return QUIRE_NO_MEMORY;
    }
    json_object_object_add(line, "trace", json_object_new_string(o->trace));
    json_object_object_add(line, "policy", json_object_new_string(sim_row_name(row)));
    add_count(line, "pages", capacity(row));
    add_count(line, "requests", r->n_requests);
    add_count(line, "tokens", r->prompt_tokens);
    add_count(line, "hit_tokens", r->hit_tokens);
    add_count(line, "evictions", r->evictions);
    json_object_object_add(line, "requests_per_s", json_object_new_double(requests_per_s(r)));
    json_object_object_add(line, "hit_rate", json_object_new_double(sim_hit_rate(row)));
    json_object_object_add(line, "prefix_cache", json_object_new_string(o->prefix_cache));
    add_count(line, "page_tokens", o->page_tokens);
    add_count(line, "concurrency", o->concurrency);
    add_count(line, "peak_pages", r->peak_pages);
    add_count(line, "peak_held", r->peak_held);
    add_count(line, "refused", r->n_refused);
    const char *text = json_object_to_json_string_ext(line, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
    quire_err e = text != NULL ? QUIRE_OK : QUIRE_NO_MEMORY;
    printf("%s\n", e == QUIRE_OK ? text : "");
    json_object_put(line);
    return e;
}

quire_err report_row(const sim_options *o, const sim_row *row) {
    quire_err e = QUIRE_OK;
    if (o->json) {
        e = print_json_row(o, row);
    } else {
        print_table_row(row);
    }
    return fflush(stdout) == 0 ? e : QUIRE_IO;
}
