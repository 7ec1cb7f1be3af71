#include "lab/sim/report.h"

#include <stdio.h>

#include "file/show.h"
#include "lab/json_line.h"
#include "options/engine_flags.h"

double sim_hit_rate(const sim_row *row) {
    return row->result.prompt_tokens > 0 ? (double)row->result.hit_tokens / (double)row->result.prompt_tokens
                                         : 0;
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
    printf("%s: %s requests, %s prompt tokens, %s answer tokens; pages of %d tokens, reuse by %s, %d "
           "request%s open at once\n",
           o->trace, show_count((uint64_t)t->n_requests).text, show_count((uint64_t)t->n_prompt_tokens).text,
           show_count((uint64_t)t->n_output_tokens).text, (int)o->page_tokens,
           flag_choice_name(choices_prefix_cache, (int)o->prefix_cache), (int)o->concurrency,
           o->concurrency == 1 ? "" : "s");
    printf("%-10s %10s %8s %14s %12s %10s %10s %8s %12s\n", "policy", "pages", "hit rate", "hit tokens",
           "evictions", "peak used", "peak held", "refused", "requests/s");
}

static void print_table_row(const sim_row *row) {
    const replay_result *r = &row->result;
    printf("%-10s %10d %7.2f%% %14lld %12lld %10d %10d %8d %12.0f\n", sim_row_name(row), (int)capacity(row),
           100 * sim_hit_rate(row), (long long)r->hit_tokens, (long long)r->evictions, (int)r->peak_pages,
           (int)r->peak_held, (int)r->n_refused, requests_per_s(r));
}

static void add_count(json_out *line, const char *key, int64_t v) {
    json_int(json_name(line, key), v);
}

static void print_json_row(const sim_options *o, const sim_row *row) {
    const replay_result *r = &row->result;
    json_line l;
    json_out *line = json_line_begin(&l);
    json_cstr(json_name(line, "trace"), o->trace);
    json_cstr(json_name(line, "policy"), sim_row_name(row));
    add_count(line, "pages", capacity(row));
    add_count(line, "requests", r->n_requests);
    add_count(line, "tokens", r->prompt_tokens);
    add_count(line, "hit_tokens", r->hit_tokens);
    add_count(line, "evictions", r->evictions);
    json_exact(json_name(line, "requests_per_s"), requests_per_s(r));
    json_exact(json_name(line, "hit_rate"), sim_hit_rate(row));
    json_cstr(json_name(line, "prefix_cache"), flag_choice_name(choices_prefix_cache, (int)o->prefix_cache));
    add_count(line, "page_tokens", o->page_tokens);
    add_count(line, "concurrency", o->concurrency);
    add_count(line, "peak_pages", r->peak_pages);
    add_count(line, "peak_held", r->peak_held);
    add_count(line, "refused", r->n_refused);
    json_line_print(&l);
}

quire_err report_row(const sim_options *o, const sim_row *row) {
    if (o->json) {
        print_json_row(o, row);
    } else {
        print_table_row(row);
    }
    return fflush(stdout) == 0 && !ferror(stdout) ? QUIRE_OK : QUIRE_IO;
}
