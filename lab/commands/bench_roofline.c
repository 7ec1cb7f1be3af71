/* `quire bench roofline`: the best rates at which this machine reads and computes. */

#include "backend/backend.h"
#include "lab/bench/roofline.h"
#include "lab/commands/lab_commands.h"

enum { MAX_THREADS = 1024 };

typedef struct bench_roofline_options {
    cli_options cli;
    const char *isa;
    const char *threads;  /* "1,2"; NULL: 1, 2, 4 .. up to one per core, or per processor in cpu_bind */
    const char *cpu_bind; /* as in backend_options */
    roofline_effort effort;
} bench_roofline_options;

LAB_DEFAULTS(bench_roofline, .effort = roofline_usual)

/* Prints the best rate and the mean as lines. */
static void bench_roofline_print_json(const roofline *r, const char *name, const char *unit,
                                      const roofline_rate *rate) {
    char mean[32];
    const table_column columns[] = {WORD("by", NULL, 0), KEY("threads", NULL, 0, 0), WORD("machine", NULL, 0),
                                    FIGURE(name, NULL, 0, 0, unit), FIGURE(mean, NULL, 0, 0, unit)};
    (void)snprintf(mean, sizeof mean, "%s_mean", name);
    TABLE_ROW(&((bench_table){"roofline", TABLE_COLUMNS(columns), true}), TXT(rate->by), NUM(r->n_threads),
              TXT(r->machine), NUM(rate->best), LIMITED(rate->mean, rate->best, rate->mean / rate->best));
}

static void bench_roofline_report(const roofline *r, bool json) {
    static const char *const names[ROOFLINE_RATES] = {"read", "f32", "bf16", "int8", "int8_by_4_bits"};
    if (!json) {
        printf("%s\n%24s %8s\n", r->machine, "best", "mean");
    }
    for (int i = 0; i < ROOFLINE_RATES; i++) {
        const roofline_rate *rate = &r->rates[i];
        if (json) {
            bench_roofline_print_json(r, names[i], i == 0 ? "bytes/s" : "operations/s", rate);
        } else {
            printf("  %-14s %7.1f %8.1f %-5s %s\n", roofline_names[i], rate->best / 1e9, rate->mean / 1e9,
                   i == 0 ? "GB/s" : "GOP/s", rate->by);
        }
    }
    for (int32_t i = 0; !json && i < BANDWIDTH_WAYS; i++) {
        printf("%s    %-38s %6.1f %6.1f\n", i == 0 ? "  ways to read, GB/s:\n" : "", r->reads[i].by,
               r->reads[i].best / 1e9, r->reads[i].mean / 1e9);
    }
    fflush(stdout);
}

/* The default number of threads of a backend. */
static quire_err count_threads(const bench_roofline_options *o, int32_t *out, quire_error *err) {
    backend *b;
    TRY(backend_cpu_open(&(backend_options){.isa = o->isa, .cpu_bind = o->cpu_bind}, &b, err));
    *out = b->ops->n_workers(b);
    b->ops->close(b);
    return QUIRE_OK;
}

static quire_err bench_roofline_run(const cli_options *cli, quire_error *err) {
    const bench_roofline_options *o = (const void *)cli;
    int32_t threads[FIGURES_MAX_POINTS], n = 0, all = 0;
    if (o->threads != NULL) {
        TRY(figures_parse_list("--threads", o->threads, threads, &n, err));
    } else {
        TRY(count_threads(o, &all, err));
    }
    for (int32_t t = 1; o->threads == NULL; t = t * 2 < all ? t * 2 : all) {
        threads[n++] = t;
        if (t == all) {
            break;
        }
    }
    for (int32_t i = 0; i < n; i++) {
        roofline r;
        if (threads[i] > MAX_THREADS) {
            return err_set(err, QUIRE_INVALID, -1, "--threads %s: at most %d", o->threads, MAX_THREADS);
        }
        TRY(roofline_measure(o->isa, threads[i], o->cpu_bind, &o->effort, &r, err));
        bench_roofline_report(&r, o->cli.json);
    }
    return QUIRE_OK;
}

#define AT(member) .offset = offsetof(bench_roofline_options, member)

static const flag bench_roofline_flags[] = {
    {"--threads -t", "LIST", "threads at work at once (1,2,4 .. one a core)", TEXT(threads)},
    {"--cpu-bind", "WHERE", "keep threads on processors: auto, none or 0-3,8 (none)", TEXT(cpu_bind)},
    {"--isa", NULL, "instruction set of the loops", FLAG_NAME, AT(isa), .choices = choices_isa},
    {"--megabytes", "N", "memory that is read; less than the caches measures those",
     COUNT(effort.megabytes, 1, 1 << 20)},
    {"--milliseconds", "N", "least time of a measurement", COUNT(effort.milliseconds, 1, 100000)},
    {0},
};

LAB_COMMAND(bench_roofline, "bench roofline", "", ARGUMENT_NONE,
            "the best memory and compute rates of this machine",
            "  quire bench roofline\n"
            "  quire bench roofline --threads 1,2 --isa avx2 --json\n",
            bench_roofline_flags, flags_json, flags_help);
