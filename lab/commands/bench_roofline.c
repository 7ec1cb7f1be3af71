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

/* Prints the best rate and the mean. */
static void bench_roofline_print_json(const roofline *r, const char *what, const roofline_rate *rate,
                                      const char *unit) {
    bench_figure line = {
        "roofline", what,
        NULL,       unit,
        rate->best, 0,
        0,          {{"by", rate->by, 0}, {"threads", NULL, r->n_threads}, {"machine", r->machine, 0}}};
    bench_figure_print(&line);
    line.suffix = "_mean";
    line.value = rate->mean;
    line.limit = rate->best;
    line.fraction = rate->mean / rate->best;
    bench_figure_print(&line);
}

static void bench_roofline_report(const roofline *r, bool json) {
    const struct {
        const char *what, *name;
        const roofline_rate *rate;
    } peaks[] = {{"f32", "f32", &r->f32},
                 {"bf16", "bf16", &r->bf16},
                 {"int8", "int8", &r->int8},
                 {"int8 by 4 bits", "int8_by_4_bits", &r->int8_small}};
    enum { N_PEAKS = (int)(sizeof peaks / sizeof *peaks) };
    if (json) {
        bench_roofline_print_json(r, "read", &r->read, "bytes/s");
        for (int i = 0; i < N_PEAKS; i++) {
            bench_roofline_print_json(r, peaks[i].name, peaks[i].rate, "operations/s");
        }
    } else {
        printf("%s\n%24s %8s\n", r->machine, "best", "mean");
        printf("  %-14s %7.1f %8.1f GB/s  %s\n", "reading", r->read.best / 1e9, r->read.mean / 1e9,
               r->read.by);
        for (int i = 0; i < N_PEAKS; i++) {
            printf("  %-14s %7.1f %8.1f GOP/s %s\n", peaks[i].what, peaks[i].rate->best / 1e9,
                   peaks[i].rate->mean / 1e9, peaks[i].rate->by);
        }
        printf("  ways to read, GB/s:\n");
        for (int32_t i = 0; i < BANDWIDTH_WAYS; i++) {
            printf("    %-38s %6.1f %6.1f\n", bandwidth_names[i], r->reads[i].best / 1e9,
                   r->reads[i].mean / 1e9);
        }
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
