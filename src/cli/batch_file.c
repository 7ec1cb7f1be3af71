/* `quire run --prompts IN --out OUT`: many prompts at once. Lines are read while there is
 * room, submitted as long as the engine accepts them, and answered in any order. Only the
 * prompts from the oldest without a response to BATCH_AHEAD after it are in memory, so
 * memory is bounded for any number of prompts. */
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "cli/batch_input.h"
#include "cli/batch_part.h"
#include "cli/commands.h"
#include "cli/session.h"
#include "json/json_check.h"
#include "json/json_out.h"
#include "json/json_scan.h"

/* Finds a custom_id that occurs twice in a file of prompts. */

/* A custom_id, as the first bytes of its SHA-256, and its line; 0: a free entry. */
typedef struct seen_id {
    uint8_t digest[12];
    uint32_t line;
} seen_id;

typedef struct seen_ids {
    seen_id *slots;
    size_t n, n_slots; /* n_slots is a power of two, or 0 */
} seen_ids;

static seen_id *batch_ids_slot_of(const seen_ids *s, const uint8_t *digest) {
    uint64_t at;
    memcpy(&at, digest, sizeof at);
    at &= s->n_slots - 1;
    while (s->slots[at].line != 0 && memcmp(s->slots[at].digest, digest, sizeof s->slots[at].digest) != 0) {
        at = (at + 1) & (s->n_slots - 1);
    }
    return &s->slots[at];
}

/* Makes room for one more entry; at most two thirds of the slots are used. */
static quire_err batch_ids_grow(seen_ids *s) {
    if (3 * (s->n + 1) <= 2 * s->n_slots) {
        return QUIRE_OK;
    }
    seen_ids larger = {.n = s->n, .n_slots = s->n_slots > 0 ? 2 * s->n_slots : 64};
    larger.slots = mem_new(larger.n_slots, sizeof *larger.slots);
    TRY(mem_check(larger.slots));
    for (size_t i = 0; i < s->n_slots; i++) {
        if (s->slots[i].line != 0) {
            *batch_ids_slot_of(&larger, s->slots[i].digest) = s->slots[i];
        }
    }
    mem_free(s->slots);
    *s = larger;
    return QUIRE_OK;
}

/* Finds the custom_id of a line, decoded if it is a string. Empty: none. */
static quire_err find_id(str line, strbuf *scratch, str *out) {
    json_fault fault;
    str span;
    *out = (str){"", 0};
    bool may = str_contains(line, str_of("custom_id")) || str_contains(line, str_of("\\u"));
    quire_err e = may ? json_check(line, &json_limits_file, NULL, &fault) : QUIRE_NOT_FOUND;
    bool is_object = e == QUIRE_OK && json_scan_peek(&(json_scan){.text = line}) == '{';
    if (e == QUIRE_NO_MEMORY || !is_object || json_scan_member(line, "custom_id", &span) != QUIRE_OK ||
        str_is(span, "null")) {
        return e == QUIRE_NO_MEMORY ? e : QUIRE_OK;
    }
    if (span.p[0] != '"') {
        *out = span;
        return QUIRE_OK;
    }
    return json_scan_string(&(json_scan){.text = span}, scratch, out);
}

/* Adds the custom_id of line `number`. *earlier: the line that has the same one, or 0. */
static quire_err batch_ids_add_line(seen_ids *s, str line, size_t number, str *id, strbuf *scratch,
                                    uint32_t *earlier) {
    uint8_t digest[SHA256_BYTES];
    *earlier = 0;
    TRY(find_id(line, scratch, id));
    if (id->n == 0) {
        return QUIRE_OK;
    }
    if (number > UINT32_MAX) {
        return QUIRE_TOO_LARGE;
    }
    TRY(batch_ids_grow(s));
    sha256(id->p, id->n, digest);
    seen_id *slot = batch_ids_slot_of(s, digest);
    *earlier = slot->line;
    if (slot->line == 0) {
        memcpy(slot->digest, digest, sizeof slot->digest);
        slot->line = (uint32_t)number;
        s->n++;
    }
    return QUIRE_OK;
}

/* Reads all lines of `in`, and rewinds it. QUIRE_BAD_FILE: two lines have the same
 * custom_id; err has the numbers of both. QUIRE_TOO_LARGE: over 2^32 lines. QUIRE_IO,
 * QUIRE_NO_MEMORY. Takes 16 to 48 bytes of memory for each line with a custom_id. A line
 * that is not valid JSON counts as having none. */
static quire_err batch_ids_check(batch_input *in, quire_error *err) {
    enum { SHOWN = 60 };
    seen_ids s = {0};
    strbuf scratch = {0};
    quire_err e = QUIRE_OK;
    while (e == QUIRE_OK && in->n_read < in->n_lines) {
        str line, id;
        uint32_t earlier;
        e = batch_input_next(in, &line, err);
        if (e != QUIRE_OK) {
            break;
        }
        e = batch_ids_add_line(&s, line, in->number, &id, &scratch, &earlier);
        if (e != QUIRE_OK) {
            err_set(err, e, -1, "%s: line %zu: %s", in->path, in->number, quire_err_text(e));
        } else if (earlier != 0) {
            e = err_set(err, QUIRE_BAD_FILE, -1,
                        "%s: line %zu has the custom_id of line %u, \"%.*s\"; give each line its own",
                        in->path, in->number, (unsigned)earlier, id.n < SHOWN ? (int)id.n : SHOWN, id.p);
        }
    }
    strbuf_deinit(&scratch);
    mem_free(s.slots);
    batch_input_rewind(in);
    return e;
}

/* Describes the settings on which a batch's responses depend, and the command that
 * resumes it. One thread. */

/* Appends the JSON object for batch_part_open: the digest of the prompts, the model, and
 * the flags that apply to all requests. Only QUIRE_NO_MEMORY. */
static quire_err batch_about(const cli_options *o, const session *s, const uint8_t digest[SHA256_BYTES],
                             strbuf *to, quire_error *err) {
    const quire_info *info = quire_engine_info(s->engine);
    static const char digits[] = "0123456789abcdef";
    char hex[2 * SHA256_BYTES + 1] = "";
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    body fields = {0};
    strbuf json = {0};
    json_out out = {.to = to};
    quire_err e = request_begin(o, &fields, err);
    if (e == QUIRE_OK) {
        e = body_write(&fields, &json);
    }
    json_begin(&out, '{');
    json_cstr(json_name(&out, "prompts"), o->prompts);
    json_cstr(json_name(&out, "sha256"), hex);
    json_cstr(json_name(&out, "model"), info->model_path);
    json_cstr(json_name(&out, "compute"), info->compute);
    json_cstr(json_name(&out, "kv-dtype"), info->kv_dtype);
    json_cstr(json_name(&out, "generation-config"), info->generation_defaults);
    json_cstr(json_name(&out, "chat-template"), o->engine.chat_template);
    json_cstr(json_name(&out, "tool-call-parser"), o->engine.tool_call_parser);
    json_cstr(json_name(&out, "reasoning-parser"), o->engine.reasoning_parser);
    json_cstr(json_name(&out, "tokenizer"), o->engine.tokenizer);
    json_cstr(json_name(&out, "special-tokens-in-messages"),
              o->engine.special_tokens_in_messages == QUIRE_MESSAGE_TOKENS_PARSE ? "parse" : "plain");
    json_cstr(json_name(&out, "hf-overrides"), o->engine.hf_overrides);
    json_cstr(json_name(&out, "override-kv"), o->engine.override_kv);
    json_cstr(json_name(&out, "mask-mod"), o->engine.mask_mod);
    json_cstr(json_name(&out, "score-mod"), o->engine.score_mod);
    json_cstr(json_name(&out, "attention-arrays"), o->engine.attention_arrays);
    json_cstr(json_name(&out, "speculative-config"), o->engine.speculative_config);
    json_int(json_name(&out, "max-model-len"), o->engine.max_model_len);
    json_raw(json_name(&out, "request"), e == QUIRE_OK ? json.p : "null");
    json_end(&out, '}');
    strbuf_deinit(&json);
    body_deinit(&fields);
    return e == QUIRE_OK && out.err == QUIRE_OK ? QUIRE_OK
                                                : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
}

/* Appends an argument, quoted for a shell. */
static quire_err add_argument(strbuf *to, const char *argument) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
    TRY(strbuf_add_char(to, ' '));
    if (*argument && argument[strspn(argument, plain)] == 0) {
        return strbuf_add_str(to, argument);
    }
    TRY(strbuf_add_char(to, '\''));
    for (const char *p = argument; *p; p++) {
        TRY(*p == '\'' ? strbuf_add_str(to, "'\\''") : strbuf_add_char(to, *p));
    }
    return strbuf_add_char(to, '\'');
}

/* Appends the command of this run with --resume, quoted for a shell. */
static quire_err batch_about_resume(const cli_options *o, strbuf *to) {
    TRY(strbuf_add_str(to, "quire run"));
    for (int i = 0; i < o->n_arguments; i++) {
        TRY(add_argument(to, o->arguments[i]));
    }
    return o->resume ? QUIRE_OK : strbuf_add_str(to, " --resume");
}

enum {
    /* lines are read while requests, and responses not yet written, have fewer bytes */
    HELD_BYTES = 64 << 20,
    LOOK_US = 200000, /* interval of checks for signals while no event comes */
    PROGRESS_US = 500000
};

typedef enum job_state {
    JOB_NONE,    /* its line is not read yet */
    JOB_WAITING, /* its line is read; the request is not submitted yet */
    JOB_RUNNING,
    JOB_ANSWERED
} job_state;

/* A prompt in memory; prompt i is in jobs[i mod BATCH_AHEAD]. */
typedef struct job {
    size_t index;
    job_state state;
    bool dropped; /* cancelled because the run was stopped: it gets no response */
    batch_line line;
    response response;
    strbuf written; /* the response line, if earlier ones must be written first */
} job;

typedef struct batch {
    const cli_options *o;
    session *s;
    batch_input in;
    job *jobs;     /* [BATCH_AHEAD], mem_new'd */
    size_t oldest; /* oldest prompt without a response */
    /* most_running: number of requests that the engine accepts at once, found by
     * trying */
    size_t n_waiting, n_running, most_running;
    /* responses in all, with errors, and of the run that this one resumes */
    size_t n_answered, n_failed, n_before;
    size_t held_bytes;
    int64_t n_tokens;
    bool keeps; /* responses go through `part`; otherwise to `file`, in order */
    batch_part part;
    FILE *file;
    strbuf text; /* the line being written */
    int64_t start_us, shown_us;
} batch;

static volatile sig_atomic_t stopped_by;

/* The first signal stops the batch, a second one ends the process. */
static void on_stop(int signal_number) {
    stopped_by = signal_number;
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
}

static job *batch_file_job_of(const batch *b, size_t index) {
    return &b->jobs[index % BATCH_AHEAD];
}

/* ---- responses ---- */

static quire_err batch_file_write_plain(batch *b, const strbuf *line, quire_error *err) {
    bool good = fwrite(line->p, 1, line->n, b->file) == line->n && fputc('\n', b->file) != EOF &&
                fflush(b->file) == 0;
    return good
               ? QUIRE_OK
               : err_set(err, QUIRE_IO, -1, "--out %s: could not be written: %s", b->o->out, strerror(errno));
}

/* Advances `oldest` past the prompts that have responses. */
static quire_err batch_file_advance(batch *b, quire_error *err) {
    for (job *j; b->oldest < b->in.n_lines && (j = batch_file_job_of(b, b->oldest))->state == JOB_ANSWERED;
         b->oldest++) {
        if (j->written.n > 0) {
            TRY(batch_file_write_plain(b, &j->written, err));
            b->held_bytes -= j->written.n;
        }
        strbuf_deinit(&j->written);
        *j = (job){.state = JOB_NONE};
    }
    return QUIRE_OK;
}

/* Writes the response of j, or stores it until earlier ones are written. */
static quire_err answered(batch *b, job *j, quire_error *err) {
    strbuf *to = b->keeps ? &b->text : &j->written;
    strbuf_clear(to);
    if (batch_line_response(&j->line, j->index, &j->response, quire_engine_info(b->s->engine)->model_name,
                            to) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for the answer of line %zu", j->index + 1);
    }
    b->n_failed += j->response.error.code != QUIRE_OK;
    b->n_answered++;
    b->held_bytes -= j->line.body.n;
    b->held_bytes += j->written.n;
    j->state = JOB_ANSWERED;
    response_deinit(&j->response);
    batch_line_deinit(&j->line);
    if (b->keeps) {
        TRY(batch_part_add(&b->part, j->index, (str){to->p, to->n}, err));
    }
    return batch_file_advance(b, err);
}

/* ---- prompts ---- */

static quire_err read_job(batch *b, quire_error *err) {
    str text;
    size_t index = b->in.n_read;
    job *j = batch_file_job_of(b, index);
    TRY(batch_input_next(&b->in, &text, err));
    if (j->state == JOB_ANSWERED) { /* the resumed run has its response */
        return QUIRE_OK;
    }
    j->index = index;
    j->state = JOB_WAITING;
    TRY(batch_line_read(b->o, b->s, b->in.number, text, &j->line, &j->response.error, err));
    b->held_bytes += j->line.body.n;
    if (j->response.error.code != QUIRE_OK) {
        return answered(b, j, err);
    }
    b->n_waiting++;
    return QUIRE_OK;
}

static quire_err read_jobs(batch *b, quire_error *err) {
    while (b->in.n_read < b->in.n_lines && b->in.n_read < b->oldest + BATCH_AHEAD &&
           (b->held_bytes < HELD_BYTES || b->n_waiting + b->n_running == 0)) {
        TRY(read_job(b, err));
    }
    return QUIRE_OK;
}

/* Queues j again, since the engine is full until another job has ended. */
static void put_back(batch *b, job *j) {
    response_deinit(&j->response);
    j->state = JOB_WAITING;
    b->n_waiting++;
    b->most_running = b->n_running;
}

/* Handles the end of a job's stream, or its failure to begin: the job is answered or
 * waits again. */
static quire_err end_job(batch *b, job *j, quire_error *err) {
    if (j->dropped) {
        response_deinit(&j->response);
        j->state = JOB_WAITING;
        return QUIRE_OK;
    }
    if (j->response.error.code == QUIRE_BUSY && b->n_running > 0) {
        put_back(b, j);
        return QUIRE_OK;
    }
    return answered(b, j, err);
}

/* Submits all waiting jobs, as long as the engine accepts them. */
static quire_err send_jobs(batch *b, quire_error *err) {
    for (size_t i = b->oldest; i < b->in.n_read && b->n_waiting > 0 && b->n_running < b->most_running; i++) {
        job *j = batch_file_job_of(b, i);
        if (j->state != JOB_WAITING) {
            continue;
        }
        b->n_waiting--;
        if (response_submit(&j->response, b->s, j->line.endpoint, j->line.body.p, j->line.body.n) ==
            QUIRE_OK) {
            j->state = JOB_RUNNING;
            b->n_running++;
        } else {
            TRY(end_job(b, j, err));
        }
    }
    return QUIRE_OK;
}

static quire_err batch_file_take_event(batch *b, const quire_event *ev, quire_error *err) {
    job *j = (job *)((char *)ev->user - offsetof(job, response));
    b->n_tokens += ev->kind == QUIRE_EVENT_DELTA ? ev->n_tokens : 0;
    response_add(&j->response, ev);
    if (!j->response.done) {
        return QUIRE_OK;
    }
    b->n_running--;
    return end_job(b, j, err);
}

/* ---- running ---- */

static void batch_file_show_progress(batch *b, bool last) {
    int64_t now = clock_us();
    if (b->o->quiet || !isatty(STDERR_FILENO) || (!last && now - b->shown_us < PROGRESS_US)) {
        return;
    }
    double seconds = (double)(now - b->start_us + 1) / 1e6;
    b->shown_us = now;
    fprintf(stderr, "\r%zu of %zu, %.1f a second, %.0f tokens/s\x1b[K%s", b->n_answered, b->in.n_lines,
            (double)(b->n_answered - b->n_before) / seconds, (double)b->n_tokens / seconds, last ? "\n" : "");
}

/* Cancels jobs whose responses have not begun, leaving their prompts to a resumed run. */
static void drop_jobs(batch *b) {
    size_t n_begun = 0;
    for (size_t i = b->oldest; i < b->in.n_read; i++) {
        job *j = batch_file_job_of(b, i);
        if (j->state == JOB_RUNNING && !j->response.has_begun) {
            j->dropped = true;
            quire_stream_cancel(j->response.stream);
        }
        n_begun += j->state == JOB_RUNNING && !j->dropped;
    }
    batch_file_show_progress(b, true);
    log_line(LOG_WARN, "%zu of %zu are answered; %zu more have begun and will be finished; %s stops at once",
             b->n_answered, b->in.n_lines, n_begun,
             stopped_by == SIGINT ? "another Ctrl-C" : "another signal");
}

static quire_err run_jobs(batch *b, quire_error *err) {
    bool stopping = false;
    b->most_running = SIZE_MAX;
    b->start_us = clock_us();
    for (;;) {
        quire_event ev;
        if (stopped_by && !stopping) {
            stopping = true;
            drop_jobs(b);
        }
        if (!stopping) {
            TRY(read_jobs(b, err));
            TRY(send_jobs(b, err));
        }
        if (b->oldest == b->in.n_lines || (stopping && b->n_running == 0)) {
            batch_file_show_progress(b, true);
            return QUIRE_OK;
        }
        if (quire_queue_next(b->s->queue, &ev)) {
            TRY(batch_file_take_event(b, &ev, err));
        } else if (b->n_running > 0) {
            quire_queue_wait(b->s->queue, LOOK_US);
        }
        batch_file_show_progress(b, false);
    }
}

/* ---- the files ---- */

/* Marks the prompts whose responses are in the part. */
static quire_err batch_file_take_part(batch *b, quire_error *err) {
    size_t index;
    bool is_error, more;
    TRY(batch_part_next(&b->part, &index, &is_error, &more, err));
    while (more) {
        if (index < b->oldest || index >= b->in.n_lines || index - b->oldest >= BATCH_AHEAD ||
            batch_file_job_of(b, index)->state == JOB_ANSWERED) {
            return err_set(err, QUIRE_BAD_FILE, -1,
                           "%s: line %zu answers prompt %zu, which does not belong there: the file is "
                           "damaged; delete it to start over",
                           b->part.path.p, b->part.n, index);
        }
        batch_file_job_of(b, index)->state = JOB_ANSWERED;
        b->n_before++;
        b->n_failed += is_error;
        TRY(batch_file_advance(b, err));
        TRY(batch_part_next(&b->part, &index, &is_error, &more, err));
    }
    b->n_answered = b->n_before;
    if (b->n_before > 0) {
        log_line(LOG_INFO, "%s: %zu of %zu are answered", b->part.path.p, b->n_before, b->in.n_lines);
    }
    return QUIRE_OK;
}

static quire_err open_out(batch *b, quire_error *err) {
    if (!b->keeps) {
        b->file = strcmp(b->o->out, "-") == 0 ? stdout : fopen(b->o->out, "wb");
        return b->file ? QUIRE_OK : err_set(err, QUIRE_IO, -1, "--out %s: %s", b->o->out, strerror(errno));
    }
    strbuf about = {0};
    quire_err e = batch_about(b->o, b->s, b->in.digest, &about, err);
    TRY_DONE(e, batch_part_open(b->o->out, b->o->resume, (str){about.p, about.n}, &b->part, err));
done:
    strbuf_deinit(&about);
    TRY(e);
    return batch_file_take_part(b, err);
}

/* The error of a stopped batch: says where its responses are, and which command resumes
 * it. */
static quire_err batch_file_stopped(const batch *b, quire_error *err) {
    if (!b->keeps) {
        return err_set(err, QUIRE_CANCELLED, -1, "stopped: %zu of %zu answers are written", b->n_answered,
                       b->in.n_lines);
    }
    strbuf line = {0};
    bool fits =
        batch_about_resume(b->o, &line) == QUIRE_OK && line.n + b->part.path.n + 80 < sizeof err->message;
    err_set(err, QUIRE_CANCELLED, -1, "stopped: %zu of %zu answers are in %s; continue with: %s",
            b->n_answered, b->in.n_lines, b->part.path.p, fits ? line.p : "the same command and --resume");
    strbuf_deinit(&line);
    return QUIRE_CANCELLED;
}

/* Without a part, at the end: writes the responses that still wait for missing ones. */
static quire_err write_rest(batch *b, quire_error *err) {
    for (size_t i = b->oldest; !b->keeps && i < b->in.n_read; i++) {
        if (batch_file_job_of(b, i)->written.n > 0) {
            TRY(batch_file_write_plain(b, &batch_file_job_of(b, i)->written, err));
        }
    }
    return QUIRE_OK;
}

static quire_err batch_file_finish(batch *b, quire_error *err) {
    TRY(write_rest(b, err));
    if (b->oldest < b->in.n_lines) {
        return batch_file_stopped(b, err);
    }
    if (b->keeps) {
        TRY(batch_part_finish(&b->part, err));
    }
    log_line(LOG_INFO, "%zu requests, %zu failed, answers in %s", b->in.n_lines, b->n_failed, b->o->out);
    return QUIRE_OK;
}

static quire_err close_batch(batch *b, quire_err e, quire_error *err) {
    for (size_t i = 0; b->jobs && i < BATCH_AHEAD; i++) {
        response_deinit(&b->jobs[i].response);
        batch_line_deinit(&b->jobs[i].line);
        strbuf_deinit(&b->jobs[i].written);
    }
    mem_free(b->jobs);
    strbuf_deinit(&b->text);
    batch_part_close(&b->part);
    batch_input_close(&b->in);
    if (b->file && b->file != stdout && fclose(b->file) != 0 && e == QUIRE_OK) {
        return err_set(err, QUIRE_IO, -1, "--out %s: could not be written: %s", b->o->out, strerror(errno));
    }
    return e;
}

quire_err batch_file_check(const cli_options *o, quire_error *err) {
    if (!o->prompts) {
        return o->resume ? err_set(err, QUIRE_INVALID, -1,
                                   "--resume: needs the --prompts and --out of the run to continue")
                         : QUIRE_OK;
    }
    if (!o->out) {
        return err_set(err, QUIRE_INVALID, -1, "--prompts: needs --out FILE for the answers");
    }
    return batch_part_check(o->out, o->resume, err);
}

quire_err batch_file_run(const cli_options *o, session *s, quire_error *err) {
    batch b = {.o = o, .s = s, .keeps = batch_part_wanted(o->out), .jobs = mem_new(BATCH_AHEAD, sizeof(job))};
    struct sigaction action = {.sa_handler = on_stop, .sa_flags = SA_RESTART}, interrupt, terminate;
    quire_err e = b.jobs ? QUIRE_OK : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    TRY_DONE(e, batch_input_open(o->prompts, b.keeps ? o->out : NULL, &b.in, err));
    TRY_DONE(e, batch_ids_check(&b.in, err));
    TRY_DONE(e, open_out(&b, err));
    stopped_by = 0;
    sigaction(SIGINT, &action, &interrupt);
    sigaction(SIGTERM, &action, &terminate);
    e = run_jobs(&b, err);
    sigaction(SIGINT, &interrupt, NULL);
    sigaction(SIGTERM, &terminate, NULL);
    TRY_DONE(e, batch_file_finish(&b, err));
done:
    return close_batch(&b, e, err);
}

quire_err batch_file_write_one(const char *path, const response *a, quire_error *err) {
    FILE *f = strcmp(path, "-") == 0 ? stdout : fopen(path, "wb");
    if (f == NULL) {
        return err_set(err, QUIRE_IO, -1, "--out %s: %s", path, strerror(errno));
    }
    strbuf line = {0};
    bool good =
        batch_line_response(&(batch_line){0}, 0, a, "", &line) == QUIRE_OK && fprintf(f, "%s\n", line.p) > 0;
    good = (f == stdout ? fflush(f) : fclose(f)) == 0 && good;
    strbuf_deinit(&line);
    return good ? QUIRE_OK
                : err_set(err, QUIRE_IO, -1, "--out %s: could not be written: %s", path, strerror(errno));
}
