#include "lab/bench/runs.h"

#include <stdio.h>

#include "json/json_out.h"
#include "lab/bench/figures.h"
#include "lab/bench/runs_measure.h"

enum { N_ROWS = 6, N_STAGES = 3, CHURN_SEQS = 64, CHURN_ENDED = 2000, SEED = 1, ADJACENT = INT32_MAX };

/* What attention is measured over: pages of so many of the usual tokens, in runs of so many. A page of 16 times the tokens is what a run of
 * 16 under one entry would be if its planes lay in one piece, too. */
static const struct row {
    int32_t stage, factor, run;
    const char *what;
} rows[N_ROWS] = {
    {0, 1, 1, "apart"}, {0, 1, 4, "runs of 4"}, {0, 1, 16, "runs of 16"}, {0, 1, ADJACENT, "all adjacent"},
    {1, 4, 1, "apart"}, {2, 16, 1, "apart"},
};

void bench_runs_options_init(bench_runs_options *o) {
    *o = (bench_runs_options){.shape = "16,8,64", .contexts = "1024,8192", .page_tokens = 16, .n_runs = 15};
}

/* ---- attention ---- */

/* Of one way that pages lie. What else the machine does only adds, so the least of the runs is the figure, and the median says how quiet it
 * was. */
typedef struct way {
    double least_us, median_us;
} way;

static void report_row(const bench_runs_options *o, int32_t context, int64_t token_bytes, const way *ways, int row) {
    int32_t page_tokens = o->page_tokens * rows[row].factor, run = rows[row].run == ADJACENT ? 1 : rows[row].run;
    double entry_bytes = (double)sizeof(int32_t) / (page_tokens * run), ratio = ways[row].least_us / ways[0].least_us;
    if (!o->json) {
        printf("%8d %6d  %-13s %10.1f %10.1f %9.3f %14.4f %11.6f%%\n", (int)context, (int)page_tokens, rows[row].what, ways[row].least_us,
               ways[row].median_us, ratio, entry_bytes, 100 * entry_bytes / (double)token_bytes);
        return;
    }
    json_line l;
    json_out *line = json_line_begin(&l);
    json_cstr(json_name(line, "bench"), "runs");
    json_int(json_name(line, "context"), context);
    json_int(json_name(line, "page_tokens"), page_tokens);
    json_cstr(json_name(line, "pages"), rows[row].what);
    json_exact(json_name(line, "attention_us_a_layer"), ways[row].least_us);
    json_exact(json_name(line, "median_us"), ways[row].median_us);
    json_exact(json_name(line, "to_apart"), ratio);
    json_exact(json_name(line, "table_bytes_a_token"), entry_bytes);
    json_exact(json_name(line, "table_to_kv"), entry_bytes / (double)token_bytes);
    json_line_print(&l);
}

static quire_err measure_attention(const bench_runs_options *o, const model_desc *d, int32_t context, quire_error *err) {
    static const int32_t factors[N_STAGES] = {1, 4, 16};
    double us[N_ROWS][FIGURES_MAX_RUNS];
    way ways[N_ROWS] = {{0}};
    runs_stage *stages[N_STAGES] = {NULL};
    quire_err e = QUIRE_OK;
    for (int s = 0; s < N_STAGES && e == QUIRE_OK; s++) {
        if (o->page_tokens * factors[s] <= KV_MAX_PAGE_TOKENS) {
            e = runs_stage_open(d, o->page_tokens * factors[s], context, &stages[s], err);
        }
    }
    for (int32_t run = 0; run < o->n_runs && e == QUIRE_OK; run++) { /* in turn, so that what else the machine does meets all */
        for (int row = 0; row < N_ROWS; row++) {
            if (stages[rows[row].stage] != NULL) {
                us[row][run] = runs_attention_us(stages[rows[row].stage], rows[row].run);
            }
        }
    }
    int64_t token_bytes = (int64_t)2 * 2 * d->n_layers * d->n_kv_heads * d->d_head;
    for (int row = 0; row < N_ROWS && e == QUIRE_OK; row++) {
        if (stages[rows[row].stage] != NULL) {
            ways[row] = (way){figures_percentile(us[row], o->n_runs, 0), figures_percentile(us[row], o->n_runs, 0.5)};
            report_row(o, context, token_bytes, ways, row);
        }
    }
    for (int s = 0; s < N_STAGES; s++) {
        runs_stage_close(stages[s]);
    }
    return e;
}

/* ---- the pool ---- */

static quire_err measure_pool(const bench_runs_options *o, quire_error *err) {
    const runs_churn c = {.n_seqs = CHURN_SEQS, .page_tokens = o->page_tokens, .n_ended = CHURN_ENDED, .seed = SEED};
    runs_found f;
    quire_err e = runs_find(&c, &f);
    if (e != QUIRE_OK) {
        return err_set(err, e, -1, "%d sequences: %s", (int)CHURN_SEQS, quire_err_text(e));
    }
    if (!o->json) {
        printf("\ntable entries that lie in runs, %d sequences at once, of themselves:\n%-32s %8s %8s\n", (int)CHURN_SEQS, "", "of 4",
               "of 16");
        printf("%-32s %7.1f%% %7.1f%%\n", "their prompts, in a new pool", 100 * f.new_4, 100 * f.new_16);
        printf("after %-5d sequences have ended %7.1f%% %7.1f%%\n", (int)CHURN_ENDED, 100 * f.end_4, 100 * f.end_16);
        return QUIRE_OK;
    }
    json_line l;
    json_out *line = json_line_begin(&l);
    json_cstr(json_name(line, "bench"), "runs");
    json_int(json_name(line, "sequences"), CHURN_SEQS);
    json_int(json_name(line, "ended"), CHURN_ENDED);
    json_exact(json_name(line, "in_runs_of_4_new"), f.new_4);
    json_exact(json_name(line, "in_runs_of_16_new"), f.new_16);
    json_exact(json_name(line, "in_runs_of_4"), f.end_4);
    json_exact(json_name(line, "in_runs_of_16"), f.end_16);
    json_line_print(&l);
    return QUIRE_OK;
}

quire_err bench_runs_run(const bench_runs_options *o, quire_error *err) {
    int32_t shape[FIGURES_MAX_POINTS], contexts[FIGURES_MAX_POINTS], n_shape, n_contexts;
    TRY(figures_parse_list("--shape", o->shape, shape, &n_shape, err));
    TRY(figures_parse_list("--context", o->contexts, contexts, &n_contexts, err));
    if (n_shape != 3 || shape[0] > DESC_MAX_LAYERS || shape[1] > 1 << 12 || shape[2] > DESC_MAX_HEAD) {
        return err_set(err, QUIRE_INVALID, -1, "--shape %s: must be LAYERS,KV_HEADS,HEAD of a model, as in 16,8,64", o->shape);
    }
    model_desc d = {.n_layers = shape[0], .n_heads = shape[1], .n_kv_heads = shape[1], .d_head = shape[2]};
    if (!o->json) {
        printf("attention of one token over a sequence's pages; %d layers of %d KV heads of %d, f16, CPU time of one thread, %d runs\n",
               (int)shape[0], (int)shape[1], (int)shape[2], (int)o->n_runs);
        printf("%8s %6s  %-13s %10s %10s %9s %14s %12s\n", "context", "page", "pages lie", "us a layer", "median", "to apart",
               "table B/token", "of KV");
    }
    for (int32_t i = 0; i < n_contexts; i++) {
        TRY(measure_attention(o, &d, contexts[i], err));
    }
    return measure_pool(o, err);
}
