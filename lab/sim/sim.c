#include "lab/sim/sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "lab/sim/compare.h"
#include "lab/sim/plot.h"
#include "lab/sim/trace_read.h"

enum { MAX_CAPACITIES = 64, MAX_ROWS = 1 + MAX_CAPACITIES * REPLAY_N_POLICIES, DEFAULT_HALVINGS = 7 };

void sim_options_init(sim_options *o) {
    *o = (sim_options){
        .policies = "lru", .prefix_cache = QUIRE_PREFIX_CACHE_TOKEN, .page_tokens = 16, .concurrency = 1};
    compare_options_init(&o->server);
}

/* What is asked, understood, and what came of it so far. */
typedef struct sim {
    const sim_options *o;
    trace t;
    int32_t capacities[MAX_CAPACITIES], n_capacities; /* ascending */
    bool policies[REPLAY_N_POLICIES];
    kv_granularity granularity;
    sim_row rows[MAX_ROWS];
    int32_t n_rows;
    bool shows_progress;
} sim;

static int compare_counts(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* "1000,2000" into capacities. */
static quire_err parse_pages(sim *s, quire_error *err) {
    const char *text = s->o->pages;
    for (const char *p = text; p != NULL && *p;) {
        char *end;
        errno = 0;
        long v = strtol(p, &end, 10);
        if (end == p || errno != 0 || v < 1 || v >= INT32_MAX || (*end != ',' && *end != 0) ||
            s->n_capacities == MAX_CAPACITIES) {
            return err_set(err, QUIRE_INVALID, p - text,
                           "--pages %s: must be at most %d whole numbers from 1 to %d, as in 1000,2000", text,
                           (int)MAX_CAPACITIES, INT32_MAX - 1);
        }
        s->capacities[s->n_capacities++] = (int32_t)v;
        p = end + (*end == ',');
    }
    qsort(s->capacities, (size_t)s->n_capacities, sizeof *s->capacities, compare_counts);
    return text == NULL || s->n_capacities > 0 ? QUIRE_OK
                                               : err_set(err, QUIRE_INVALID, -1, "--pages: is empty");
}

/* The names of all policies, with commas between, to out. */
static void list_policies(char *out, size_t n) {
    size_t used = 0;
    for (int32_t i = 0; i < REPLAY_N_POLICIES && used < n; i++) {
        const char *name = replay_policy_name((kv_policy)i);
        used += name != NULL ? (size_t)snprintf(out + used, n - used, "%s%s", used > 0 ? ", " : "", name) : 0;
    }
}

/* "lru,belady" or "all" into policies. */
static quire_err parse_policies(sim *s, quire_error *err) {
    const char *text = s->o->policies;
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, ",");
        bool known = false;
        for (int32_t i = 0; i < REPLAY_N_POLICIES; i++) {
            const char *name = replay_policy_name((kv_policy)i);
            bool asked = name != NULL && (str_is((str){p, n}, "all") || str_is((str){p, n}, name));
            s->policies[i] |= asked;
            known |= asked;
        }
        if (!known) {
            char names[128];
            list_policies(names, sizeof names);
            return err_set(err, QUIRE_INVALID, p - text,
                           "--policy %s: must be all, or some of %s, as in lru,belady", text, names);
        }
        p += n + (p[n] == ',');
    }
    return *text ? QUIRE_OK : err_set(err, QUIRE_INVALID, -1, "--policy: is empty");
}

static void show_progress(int32_t n_done, int32_t n_requests, void *context) {
    const sim_row *row = context;
    fprintf(stderr, "\r%s", sim_row_name(row));
    if (!row->unlimited) {
        fprintf(stderr, ", %d pages", (int)row->result.n_pages);
    }
    fprintf(stderr, ": %3.0f%%", 100.0 * n_done / n_requests);
}

/* Adds a row: a replay by a policy, with n_pages or (0) without limit. */
static quire_err add_row(sim *s, kv_policy policy, int32_t n_pages, quire_error *err) {
    sim_row *row = &s->rows[s->n_rows];
    *row = (sim_row){.policy = policy, .unlimited = n_pages == 0, .result.n_pages = n_pages};
    replay_options o = {.policy = policy,
                        .n_pages = n_pages,
                        .page_tokens = s->o->page_tokens,
                        .concurrency = s->o->concurrency,
                        .granularity = s->granularity,
                        .progress = s->shows_progress ? show_progress : NULL,
                        .context = row};
    quire_err e = replay_run(&s->t, &o, &row->result, err);
    if (s->shows_progress) {
        fprintf(stderr, "\r\033[K");
    }
    TRY(e);
    s->n_rows++;
    e = report_row(s->o, row);
    return e == QUIRE_OK ? e
                         : err_set(err, e, -1, "standard output could not be written: %s", strerror(errno));
}

/* Without --pages: halves of what the whole trace fills, as far down as its longest
 * request fits. */
static void choose_capacities(sim *s, int32_t filled) {
    int32_t least = (s->t.longest + s->o->page_tokens - 1) / s->o->page_tokens;
    for (int32_t i = DEFAULT_HALVINGS; i >= 1; i--) {
        if (filled >> i >= least) {
            s->capacities[s->n_capacities++] = filled >> i;
        }
    }
}

static quire_err replay_all(sim *s, quire_error *err) {
    report_head(s->o, &s->t);
    TRY(add_row(s, KV_EVICT_LRU, 0, err));
    if (s->o->pages == NULL) {
        choose_capacities(s, s->rows[0].result.peak_pages);
    }
    for (int32_t policy = 0; policy < REPLAY_N_POLICIES; policy++) {
        for (int32_t i = 0; s->policies[policy] && i < s->n_capacities; i++) {
            TRY(add_row(s, (kv_policy)policy, s->capacities[i], err));
        }
    }
    return s->o->svg != NULL ? plot_write(s->o->svg, s->o, s->rows, s->n_rows, err) : QUIRE_OK;
}

/* Serves the trace, simulated. */
static quire_err serve(const sim_options *o, quire_error *err) {
    trace t = {0};
    compare_options c = o->server;
    c.page_tokens = o->page_tokens;
    TRY(trace_read(o->trace, o->limit, &t, err));
    if (c.shrink > 1) {
        trace_shrink(&t, c.shrink);
    }
    quire_err e = compare_run(&c, &t, o->trace, err);
    trace_deinit(&t);
    return e;
}

quire_err sim_run(const sim_options *o, quire_error *err) {
    if (o->server.all || o->server.cost != NULL || o->server.described != NULL) {
        return serve(o, err);
    }
    sim *s = mem_new(1, sizeof *s);
    if (s == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    s->o = o;
    s->shows_progress = isatty(STDERR_FILENO);
    s->granularity = o->prefix_cache == QUIRE_PREFIX_CACHE_PAGE ? KV_GRANULARITY_PAGE : KV_GRANULARITY_TOKEN;
    quire_err e = parse_pages(s, err);
    e = e == QUIRE_OK ? parse_policies(s, err) : e;
    e = e == QUIRE_OK ? trace_read(o->trace, o->limit, &s->t, err) : e;
    e = e == QUIRE_OK ? replay_all(s, err) : e;
    trace_deinit(&s->t);
    mem_free(s);
    return e;
}
