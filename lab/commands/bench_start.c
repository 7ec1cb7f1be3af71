/* `quire bench start`: the time from exec to a model's first token, for a first start and
 * for a start from the pack cache; the same for a model opened beside another, as a
 * server reloads an unloaded one; and how much of each the token itself takes. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/thread_pool.h"
#include "lab/bench/client.h"
#include "lab/bench/temporary.h"
#include "lab/commands/measures.h"
#include "options/engine_flags.h"
#include "setup/engine_config.h"

enum { START_MAX_RUNS = 64 };

typedef struct bench_start_options {
    cli_options cli;
    int32_t n_runs; /* 1..START_MAX_RUNS */
} bench_start_options;

enum { MOST_ARGUMENTS = 28 }; /* arguments of the started program, including the final NULL */
#define N_TOKENS 20           /* requests in the open engine; the fastest counts */

LAB_DEFAULTS(bench_start, .n_runs = 9)

/* ---- compute time of the token ---- */

static quire_err time_tokens(client *c, double *least_ms, quire_error *err) {
    for (int32_t i = 0; i < N_TOKENS; i++) {
        sent s = {0};
        int64_t start = clock_us();
        TRY(client_send(c, &(int32_t){1}, 1, 1, &s, err));
        TRY(client_await(c, 1, err));
        double ms = (double)(s.first_us - start) * 1e-3;
        *least_ms = i == 0 || ms < *least_ms ? ms : *least_ms;
    }
    return QUIRE_OK;
}

/* Sorts the times of n runs. */
static start_figure start_figure_of(double *ms, int32_t n) {
    double median = figures_percentile(ms, n, 0.5);
    return (start_figure){.least_ms = ms[0], .median_ms = median};
}

static quire_err measure_token(const bench_start_options *o, double *least_ms, quire_error *err) {
    quire_options own = o->cli.engine;
    client c;
    own.prefix_cache = QUIRE_PREFIX_CACHE_NONE;
    TRY(client_open(&own, (engine_ablations){0}, NULL, &c, err));
    quire_err e = time_tokens(&c, least_ms, err);
    client_close(&c);
    return e;
}

/* ---- beside another model ---- */

/* Opens the model, generates a token, and closes it. */
static quire_err time_return(const client *host, const quire_options *o, double *ms, quire_error *err) {
    client c;
    sent s = {0};
    const int64_t start = clock_us();
    TRY(client_open(o, (engine_ablations){0}, host, &c, err));
    quire_err e = client_send(&c, &(int32_t){1}, 1, 1, &s, err);
    TRY_DONE(e, client_await(&c, 1, err));
done:
    *ms = (double)(s.first_us - start) * 1e-3;
    client_close(&c);
    return e;
}

/* Measures a model beside the small built-in one, which stays open; a first round is not
 * counted. */
static quire_err measure_returns(const bench_start_options *o, start_figure *out, quire_error *err) {
    double ms[START_MAX_RUNS], warm;
    quire_options of_host = o->cli.engine;
    client host;
    of_host.model = "builtin-small";
    of_host.hf_overrides = of_host.override_kv = NULL;
    of_host.compute = QUIRE_COMPUTE_AUTO;
    of_host.n_pages = 64;
    TRY(client_open(&of_host, (engine_ablations){0}, NULL, &host, err));
    quire_err e = time_return(&host, &o->cli.engine, &warm, err);
    for (int32_t i = 0; i < o->n_runs && e == QUIRE_OK; i++) {
        e = time_return(&host, &o->cli.engine, &ms[i], err);
    }
    client_close(&host);
    TRY(e);
    *out = start_figure_of(ms, o->n_runs);
    return QUIRE_OK;
}

/* ---- the program ---- */

/* Runs `quire logits MODEL --ids 1 --out /dev/stdout` with its standard output on
 * `out`. */
static quire_err spawn_logits(const bench_start_options *o, const char *cache, int out, pid_t *pid,
                              quire_error *err) {
    char threads[16], path[4096];
    const quire_options *e = &o->cli.engine;
    (void)snprintf(threads, sizeof threads, "%d", (int)e->n_threads);
    const char *arguments[MOST_ARGUMENTS] = {"quire",
                                             "logits",
                                             "--model",
                                             e->model,
                                             "--ids",
                                             "1",
                                             "--out",
                                             "/dev/stdout",
                                             "--compute",
                                             flag_choice_name(choices_compute, (int)e->compute),
                                             "--kv-dtype",
                                             flag_choice_name(choices_kv_dtype, (int)e->kv_dtype),
                                             "--isa",
                                             e->isa,
                                             "--threads",
                                             threads,
                                             "--pack-cache",
                                             cache,
                                             "--pack-cache-least-ms",
                                             "0",
                                             "--quiet"};
    const char *const overrides[][2] = {{"--hf-overrides", e->hf_overrides},
                                        {"--override-kv", e->override_kv}};
    size_t n = 0;
    while (arguments[n] != NULL) {
        n++;
    }
    for (size_t i = 0; i < sizeof overrides / sizeof *overrides; i++) {
        if (overrides[i][1] != NULL) {
            arguments[n++] = overrides[i][0];
            arguments[n++] = overrides[i][1];
        }
    }
    char *argv[MOST_ARGUMENTS], *const environment[] = {NULL};
    memcpy(argv, arguments, sizeof argv); /* posix_spawnp's argv is const in all but name */
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none; /* unblock the signals that this process leaves to a thread (temporary.h) */
    (void)sigemptyset(&none);
    if (posix_spawn_file_actions_init(&actions) != 0) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    if (posix_spawnattr_init(&attributes) != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    (void)posix_spawnattr_setsigmask(&attributes, &none);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    int code = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    code = code != 0 ? code
                     : posix_spawnp(pid, beside_find("quire", path, sizeof path), &actions, &attributes, argv,
                                    environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return code == 0 ? QUIRE_OK
                     : err_set(err, QUIRE_IO, -1, "quire could not be started: %s", strerror(code));
}

/* Reads the first bytes, or all. Returns when the first arrived; 0: none did. */
static int64_t read_logits(int in, bool all) {
    char block[65536];
    int64_t first = 0;
    ssize_t n;
    while ((first == 0 || all) && ((n = read(in, block, sizeof block)) > 0 || (n < 0 && errno == EINTR))) {
        first = first == 0 && n > 0 ? clock_us() : first;
    }
    return first;
}

/* Whether a started program runs to its end, and so stores the packed model, or is killed
 * once its first bytes came. */
typedef enum start_end { START_TO_END, START_KILLED } start_end;

static quire_err time_start(const bench_start_options *o, const char *cache, start_end end, double *ms,
                            quire_error *err) {
    int fds[2], status = 0;
    pid_t pid;
    if (pipe(fds) != 0) {
        return err_set(err, QUIRE_IO, -1, "no pipe to the program: %s", strerror(errno));
    }
    (void)fcntl(fds[0], F_SETFD, FD_CLOEXEC);
    int64_t start = clock_us(), first = 0;
    quire_err e = spawn_logits(o, cache, fds[1], &pid, err);
    close(fds[1]);
    if (e == QUIRE_OK) {
        first = read_logits(fds[0], end == START_TO_END);
        if (first != 0 && end == START_KILLED) {
            (void)kill(pid, SIGKILL);
        }
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
    }
    close(fds[0]);
    TRY(e);
    if (first == 0 || (end == START_TO_END && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))) {
        return err_set(err, QUIRE_IO, -1, "the program that was started failed; it said why");
    }
    *ms = (double)(first - start) * 1e-3;
    return QUIRE_OK;
}

static quire_err time_starts(const bench_start_options *o, const char *cache, start_end end,
                             start_figure *out, quire_error *err) {
    double ms[START_MAX_RUNS], warm;
    TRY(time_start(o, cache, end, &warm, err));
    for (int32_t i = 0; i < o->n_runs; i++) {
        TRY(time_start(o, cache, end, &ms[i], err));
    }
    *out = start_figure_of(ms, o->n_runs);
    return QUIRE_OK;
}

/* ---- the cache ---- */

/* Whether the pack cache keeps such a model. */
static quire_err is_kept(const quire_options *o, bool *out, quire_error *err) {
    size_t n;
    compute_mode compute;
    model_file *f;
    TRY(options_open_file(o, &f, err));
    *out = options_builtin_model(o->model, &n) == NULL && !model_file_packed_for(f, &compute);
    model_file_close(f);
    return QUIRE_OK;
}

/* Measures first starts, killed before they store anything; then lets one store its
 * packed model, and measures starts that find it. */
static quire_err measure_start(const bench_start_options *o, start_times *out, quire_error *err) {
    temporary cache;
    double ms;
    *out = (start_times){.has_second = false};
    TRY(is_kept(&o->cli.engine, &out->has_second, err));
    TRY(measure_token(o, &out->token_ms, err));
    if (!out->has_second) {
        return time_starts(o, "none", START_TO_END, &out->first, err);
    }
    TRY(temporary_make(&cache, err));
    quire_err e = time_starts(o, cache.path, START_KILLED, &out->first, err);
    TRY_DONE(e, time_start(o, cache.path, START_TO_END, &ms, err));
    TRY_DONE(e, time_starts(o, cache.path, START_TO_END, &out->second, err));
done:
    temporary_remove(&cache);
    return e;
}

quire_err start_measure(const quire_options *given, int32_t n_runs, start_times *out, quire_error *err) {
    return measure_start(&(bench_start_options){.cli = {.engine = *given}, .n_runs = n_runs}, out, err);
}

/* ---- copying only ---- */

/* Copies of a model's tensors into fresh memory. */
typedef struct tensor_copies {
    const model_file *file;
    uint8_t *to;
    const size_t *at; /* [tensors] offset of each in `to` */
} tensor_copies;

static void copy_tensor(void *context, int32_t task, int32_t worker) {
    const tensor_copies *c = context;
    const tensor_view *v = model_file_tensor(c->file, task);
    (void)worker;
    memcpy(c->to + c->at[task], v->data, v->n_bytes);
}

/* Measures the least that a start with packing reads, has zeroed and writes: the file's
 * tensors, mapped anew, are copied by all threads into new memory. */
static quire_err time_copy(const bench_start_options *o, thread_pool *threads, double *ms, quire_error *err) {
    model_file *f;
    size_t n_bytes = 0;
    TRY(options_open_file(&o->cli.engine, &f, err));
    const int32_t n = model_file_n_tensors(f);
    size_t *at = mem_new((size_t)n, sizeof *at);
    for (int32_t i = 0; i < n && at != NULL; i++) {
        at[i] = n_bytes;
        n_bytes += model_file_tensor(f, i)->n_bytes;
    }
    tensor_copies c = {f, mem_new_huge(n_bytes, 1), at};
    const int64_t start = clock_us();
    if (at != NULL && c.to != NULL) {
        thread_pool_run(threads, copy_tensor, &c, n);
    }
    *ms = (double)(clock_us() - start) * 1e-3;
    const quire_err e = at != NULL && c.to != NULL ? QUIRE_OK : QUIRE_NO_MEMORY;
    mem_free(c.to);
    mem_free(at);
    model_file_close(f);
    return e;
}

static quire_err measure_copies(const bench_start_options *o, start_figure *out, quire_error *err) {
    double ms[START_MAX_RUNS];
    thread_pool *threads;
    TRY(thread_pool_open(o->cli.engine.n_threads, &threads));
    quire_err e = QUIRE_OK;
    for (int32_t i = 0; i < o->n_runs && e == QUIRE_OK; i++) {
        e = time_copy(o, threads, &ms[i], err);
    }
    thread_pool_close(threads);
    TRY(e);
    *out = start_figure_of(ms, o->n_runs);
    return QUIRE_OK;
}

/* ---- output ---- */

static void bench_start_print_line(const bench_start_options *o, const char *name, double ms) {
    const table_column columns[] = {WORD("model", NULL, 0), KEY("runs", NULL, 0, 0),
                                    FIGURE(name, NULL, 0, 1, "ms")};
    const bench_table t = {"start", TABLE_COLUMNS(columns), true};
    TABLE_ROW(&t, TXT(o->cli.engine.model), NUM(o->n_runs), NUM(ms));
}

static void bench_start_print_lines(const bench_start_options *o, const start_times *t,
                                    const start_figure *beside, const start_figure *copied) {
    if (t->has_second) {
        bench_start_print_line(o, "copied", copied->least_ms);
        bench_start_print_line(o, "copied_median", copied->median_ms);
        bench_start_print_line(o, "first", t->first.least_ms);
        bench_start_print_line(o, "first_median", t->first.median_ms);
        bench_start_print_line(o, "second", t->second.least_ms);
        bench_start_print_line(o, "second_median", t->second.median_ms);
    } else {
        bench_start_print_line(o, "start", t->first.least_ms - t->token_ms);
        bench_start_print_line(o, "first_token", t->first.least_ms);
        bench_start_print_line(o, "first_token_median", t->first.median_ms);
    }
    bench_start_print_line(o, "beside", beside->least_ms);
    bench_start_print_line(o, "beside_median", beside->median_ms);
    bench_start_print_line(o, "token", t->token_ms);
}

static void bench_start_print_row(const bench_table *t, const char *which, const start_figure *f,
                                  double token_ms) {
    TABLE_ROW(t, TXT(which), NUM(f->least_ms), NUM(f->median_ms), NUM(token_ms), NUM(f->least_ms - token_ms));
}

static quire_err bench_start_run(const cli_options *cli, quire_error *err) {
    const bench_start_options *o = (const void *)cli;
    TABLE(t, "start", false, WORD("which", "", 8), KEY("first_token_ms", "first token ms", 15, 1),
          KEY("median_ms", "median ms", 10, 1), KEY("token_ms", "token alone ms", 15, 1),
          KEY("start_ms", "start ms", 9, 1));
    start_times s;
    start_figure beside, copied = {0, 0};
    char of_first[256] = "";
    TRY(measure_start(o, &s, err));
    if (s.has_second) {
        TRY(measure_copies(o, &copied, err));
    }
    TRY(measure_returns(o, &beside, err));
    if (o->cli.json) {
        bench_start_print_lines(o, &s, &beside, &copied);
        return QUIRE_OK;
    }
    table_begin(&t, "from exec to the first token of a prompt of one token");
    bench_start_print_row(&t, s.has_second ? "first" : "start", &s.first, s.token_ms);
    if (s.has_second) {
        TABLE_ROW(&t, TXT("copied"), NUM(TABLE_ABSENT), NUM(TABLE_ABSENT), NUM(TABLE_ABSENT),
                  NUM(copied.least_ms));
        (void)snprintf(of_first, sizeof of_first,
                       " Copied: the file's tensors alone, read, and written to memory that is zeroed "
                       "before; with the token, the first start takes %.2f times that.",
                       s.first.least_ms / (copied.least_ms + s.token_ms));
        bench_start_print_row(&t, "second", &s.second, s.token_ms);
    }
    bench_start_print_row(&t, "beside", &beside, s.token_ms);
    table_note(&t,
               "%s: least of %d starts with the files in the page cache, their median, the same request in "
               "an engine that is open, and what the start adds to it. Beside: without exec, where a "
               "server opens it beside a model that stays, as one that was unloaded.%s%s",
               o->cli.engine.model, (int)o->n_runs,
               s.has_second ? " First: with an empty pack cache. Second: with the model's packed form there, "
                              "its checksums checked."
                            : "",
               of_first);
    return QUIRE_OK;
}

#define AT(member) .offset = offsetof(bench_start_options, member)

static const flag bench_start_flags[] = {
    {"--runs", "N", "starts per figure", COUNT(n_runs, 1, START_MAX_RUNS)},
    {0},
};

LAB_COMMAND(bench_start, "bench start", " MODEL", ARGUMENT_MODEL,
            "time from exec to the first token, at first and later starts",
            "  quire bench start model.quire\n"
            "  quire bench start model.gguf --compute int8 --runs 20 --json\n",
            FLAGS_MODEL, bench_start_flags, flags_json, flags_compute, FLAGS_KV, flags_isa, flags_threads,
            flags_help, flags_help_all);
