#include "lab/bench/bench_start.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/beside.h"
#include "base/clock.h"
#include "base/err.h"
#include "lab/bench/bench_line.h"
#include "lab/bench/client.h"
#include "lab/bench/figures.h"
#include "lab/bench/sheet.h"

#define N_TOKENS 20 /* requests in the open engine, the fastest of which counts */

void bench_start_options_init(bench_start_options *o) {
    *o = (bench_start_options){.n_runs = 9};
    quire_options_init(&o->engine);
}

/* ---- the token's arithmetic ---- */

static quire_err time_tokens(client *c, double *least_ms, quire_error *err) {
    for (int32_t i = 0; i < N_TOKENS; i++) {
        sent s = {0};
        int64_t start = clock_us();
        TRY(client_send(c, &(int32_t){1}, 1, 1, &s, err));
        while (!s.done) {
            client_receive(c, -1);
        }
        if (c->n_failed > 0) {
            *err = c->failure;
            return err->code;
        }
        double ms = (double)(s.first_us - start) * 1e-3;
        *least_ms = i == 0 || ms < *least_ms ? ms : *least_ms;
    }
    return QUIRE_OK;
}

static quire_err measure_token(const bench_start_options *o, double *least_ms, quire_error *err) {
    quire_options engine = o->engine;
    client c;
    engine.prefix_cache = "none";
    TRY(client_open(&engine, (engine_ablations){0}, &c, err));
    quire_err e = time_tokens(&c, least_ms, err);
    client_close(&c);
    return e;
}

/* ---- the program ---- */

/* `quire logits MODEL --ids 1 --out /dev/stdout`, its standard output on out. */
static quire_err spawn_logits(const bench_start_options *o, int out, pid_t *pid, quire_error *err) {
    char threads[16], path[4096];
    const quire_options *e = &o->engine;
    (void)snprintf(threads, sizeof threads, "%d", (int)e->n_threads);
    const char *const arguments[] = {"quire", "logits",      "--model",   e->model,   "--ids",      "1",
                                     "--out", "/dev/stdout", "--compute", e->compute, "--kv-dtype", e->kv_dtype,
                                     "--isa", e->isa,        "--threads", threads,    "--quiet",    NULL};
    char *argv[sizeof arguments / sizeof *arguments], *const environment[] = {NULL};
    memcpy(argv, arguments, sizeof argv); /* posix_spawnp's argv is const in all but name */
    posix_spawn_file_actions_t actions;
    if (posix_spawn_file_actions_init(&actions) != 0) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    int code = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    code = code != 0 ? code : posix_spawnp(pid, beside_find("quire", path, sizeof path), &actions, NULL, argv, environment);
    posix_spawn_file_actions_destroy(&actions);
    return code == 0 ? QUIRE_OK : err_set(err, QUIRE_IO, -1, "quire could not be started: %s", strerror(code));
}

/* Reads to the end; when the first bytes came, or 0 when none did. */
static int64_t read_all(int in) {
    char block[65536];
    int64_t first = 0;
    ssize_t n;
    while ((n = read(in, block, sizeof block)) > 0 || (n < 0 && errno == EINTR)) {
        first = first == 0 && n > 0 ? clock_us() : first;
    }
    return first;
}

static quire_err time_start(const bench_start_options *o, double *ms, quire_error *err) {
    int fds[2], status = 0;
    pid_t pid;
    if (pipe(fds) != 0) {
        return err_set(err, QUIRE_IO, -1, "no pipe to the program: %s", strerror(errno));
    }
    (void)fcntl(fds[0], F_SETFD, FD_CLOEXEC);
    int64_t start = clock_us(), first = 0;
    quire_err e = spawn_logits(o, fds[1], &pid, err);
    close(fds[1]);
    if (e == QUIRE_OK) {
        first = read_all(fds[0]);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
    }
    close(fds[0]);
    TRY(e);
    if (first == 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        return err_set(err, QUIRE_IO, -1, "the program that was started failed; it said why");
    }
    *ms = (double)(first - start) * 1e-3;
    return QUIRE_OK;
}

quire_err bench_start_measure(const bench_start_options *o, start_times *out, quire_error *err) {
    double ms[START_MAX_RUNS], warm;
    TRY(measure_token(o, &out->token_ms, err));
    TRY(time_start(o, &warm, err));
    for (int32_t i = 0; i < o->n_runs; i++) {
        TRY(time_start(o, &ms[i], err));
    }
    out->median_ms = figures_percentile(ms, o->n_runs, 0.5);
    out->least_ms = ms[0];
    return QUIRE_OK;
}

/* ---- what is printed ---- */

static void print_lines(const bench_start_options *o, const start_times *t) {
    const struct {
        const char *name;
        double ms;
    } found[] = {
        {"start", t->least_ms - t->token_ms}, {"first_token", t->least_ms}, {"first_token_median", t->median_ms}, {"token", t->token_ms}};
    for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
        json_line l;
        json_out *params = bench_line_begin(&l, "start", found[i].name);
        json_cstr(json_name(params, "model"), o->engine.model);
        json_int(json_name(params, "runs"), o->n_runs);
        bench_line_end(&l, found[i].ms, "ms");
    }
}

quire_err bench_start_run(const bench_start_options *o, quire_error *err) {
    static const sheet_column columns[] = {{"first_token_ms", "first token ms", 15, 1, NULL},
                                           {"median_ms", "median ms", 10, 1, NULL},
                                           {"token_ms", "token alone ms", 15, 1, NULL},
                                           {"start_ms", "start ms", 9, 1, NULL}};
    const sheet t = {.what = "start", .columns = columns, .n_columns = (int32_t)(sizeof columns / sizeof *columns)};
    start_times s;
    TRY(bench_start_measure(o, &s, err));
    if (o->json) {
        print_lines(o, &s);
        return QUIRE_OK;
    }
    sheet_begin(&t, "from exec to the first token of a prompt of one token");
    sheet_row(&t, (sheet_cell[]){{NULL, s.least_ms}, {NULL, s.median_ms}, {NULL, s.token_ms}, {NULL, s.least_ms - s.token_ms}});
    sheet_note(&t,
               "%s: least of %d starts with the files in the page cache, their median, the same request in an engine that is open, and "
               "what the start adds to it.",
               o->engine.model, (int)o->n_runs);
    return QUIRE_OK;
}
