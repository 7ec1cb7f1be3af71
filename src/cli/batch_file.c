/* Many prompts from a JSON Lines file, all in flight at once. A line is
 *   {"prompt": "text"} or {"prompt": [1,2,3]} or {"ids": [1,2,3]}, with request fields as the API names them, answered by
 *       {"index", "id" when given, "text", "token_ids", "finish_reason", "usage"}, or "choices" of those where a prompt is a list;
 *   {"custom_id", "method", "url", "body"}, OpenAI's batch format, answered by {"id", "custom_id", "response": {"status_code", "body"}, "error"}. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/files.h"

typedef struct job {
    json_object *line;     /* what was asked; NULL: not JSON */
    json_object *body;     /* the request */
    quire_endpoint endpoint;
    bool is_openai, running;
    answer answer;
} job;

typedef struct batch {
    job *jobs; /* mem_new'd */
    size_t n_jobs, cap, n_done;
    size_t n_running, most_running; /* the engine takes no more at once than most_running; found by trying */
} batch;

static void batch_deinit(batch *b) {
    for (size_t i = 0; i < b->n_jobs; i++) {
        answer_deinit(&b->jobs[i].answer);
        json_object_put(b->jobs[i].body);
        json_object_put(b->jobs[i].line);
    }
    mem_free(b->jobs);
}

static json_object *get(json_object *object, const char *name) {
    json_object *value = NULL;
    if (json_object_is_type(object, json_type_object)) {
        json_object_object_get_ex(object, name, &value);
    }
    return value;
}

/* The body of an OpenAI line, by its url. */
static void read_openai(job *j) {
    j->is_openai = true;
    const char *url = json_object_get_string(get(j->line, "url"));
    const char *method = json_object_get_string(get(j->line, "method"));
    json_object *body = get(j->line, "body");
    if (method && strcmp(method, "POST") != 0) {
        err_set_param(&j->answer.error, QUIRE_BAD_REQUEST, "method", "method is %s; it must be POST", method);
    } else if (url && strcmp(url, "/v1/chat/completions") == 0) {
        j->endpoint = QUIRE_CHAT;
    } else if (!url || strcmp(url, "/v1/completions") != 0) {
        err_set_param(&j->answer.error, QUIRE_BAD_REQUEST, "url", "url is %s; it must be /v1/completions or /v1/chat/completions", url ? url : "missing");
    }
    if (j->answer.error.code == QUIRE_OK && !json_object_is_type(body, json_type_object)) {
        err_set_param(&j->answer.error, QUIRE_BAD_REQUEST, "body", "body is missing; it is the request as the API takes it");
    }
    if (j->answer.error.code == QUIRE_OK) {
        j->body = json_object_get(body);
    }
}

/* The flags' fields, overridden by the line's own; "ids" is another name for a prompt of ids. */
static quire_err read_plain(const cli_options *o, session *s, job *j, quire_error *err) {
    j->endpoint = get(j->line, "messages") ? QUIRE_CHAT : QUIRE_COMPLETIONS;
    j->body = request_body(o);
    if (!j->body) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    json_object_object_foreach(j->line, name, value) {
        if (strcmp(name, "id") != 0) {
            json_object_object_add(j->body, strcmp(name, "ids") == 0 ? "prompt" : name, json_object_get(value));
        }
    }
    json_object *prompt = get(j->body, "prompt");
    if (j->endpoint == QUIRE_COMPLETIONS && !get(j->body, "max_tokens") && o->n_predict < 0) {
        if (json_object_is_type(prompt, json_type_string)) {
            request_fill_length(o, s, j->body, json_object_get_string(prompt), &j->answer.error);
        } else if (json_object_is_type(prompt, json_type_array)) {
            int64_t left = (int64_t)quire_engine_info(s->engine)->max_model_len - (int64_t)json_object_array_length(prompt);
            json_object_object_add(j->body, "max_tokens", json_object_new_int64(left > 0 ? left : 1));
        }
    }
    return QUIRE_OK;
}

/* One line becomes one job; what is wrong with the line becomes the job's error. */
static quire_err add_line(const cli_options *o, session *s, batch *b, const char *text, size_t n, quire_error *err) {
    void *p = b->jobs;
    if (!mem_grow_(&p, &b->cap, b->n_jobs + 1, sizeof *b->jobs)) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory after %zu lines", b->n_jobs);
    }
    b->jobs = p;
    job *j = &b->jobs[b->n_jobs++];
    *j = (job){.endpoint = QUIRE_COMPLETIONS};
    struct json_tokener *tokener = json_tokener_new_ex(64);
    if (!tokener) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    j->line = json_tokener_parse_ex(tokener, text, (int)n);
    enum json_tokener_error problem = json_tokener_get_error(tokener);
    json_tokener_free(tokener);
    if (problem != json_tokener_success || !json_object_is_type(j->line, json_type_object)) {
        err_set(&j->answer.error, QUIRE_BAD_REQUEST, -1, "line %zu is not a JSON object: %s", b->n_jobs,
                problem == json_tokener_success ? "another kind of value" : json_tokener_error_desc(problem));
    } else if (get(j->line, "custom_id") || get(j->line, "body")) {
        read_openai(j);
    } else {
        TRY(read_plain(o, s, j, err));
    }
    j->answer.done = j->answer.error.code != QUIRE_OK;
    b->n_done += j->answer.done;
    return QUIRE_OK;
}

static quire_err read_jobs(const cli_options *o, session *s, batch *b, quire_error *err) {
    strbuf text = {0};
    quire_err e = files_read(o->prompts, &text, err);
    for (size_t at = 0; e == QUIRE_OK && at < text.n;) {
        const char *end = memchr(text.p + at, '\n', text.n - at);
        size_t n = end ? (size_t)(end - text.p) - at : text.n - at;
        if (n > INT32_MAX) {
            e = err_set(err, QUIRE_TOO_LARGE, (int64_t)at, "%s: a line is longer than 2 GiB", o->prompts);
        } else if (strspn(text.p + at, " \t\r") < n) {
            e = add_line(o, s, b, text.p + at, n, err);
        }
        at += n + 1;
    }
    strbuf_deinit(&text);
    return e;
}

/* The engine was full: the job waits until another has ended. */
static void put_back(batch *b, job *j) {
    answer_deinit(&j->answer);
    b->most_running = b->n_running > 1 ? b->n_running : 1;
}

static void send_job(batch *b, session *s, job *j) {
    const char *body = json_object_to_json_string_ext(j->body, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
    quire_err e = body ? answer_submit(&j->answer, s, j->endpoint, body, strlen(body)) : err_set(&j->answer.error, QUIRE_NO_MEMORY, -1, "out of memory");
    if (e == QUIRE_BUSY) {
        put_back(b, j);
        return;
    }
    j->answer.done = e != QUIRE_OK;
    j->running = e == QUIRE_OK;
    b->n_running += j->running;
    b->n_done += j->answer.done;
}

/* Everything that waits, as far as the engine takes it. */
static void send_jobs(batch *b, session *s) {
    for (size_t i = 0; i < b->n_jobs && b->n_running < b->most_running && b->n_done + b->n_running < b->n_jobs; i++) {
        if (!b->jobs[i].running && !b->jobs[i].answer.done) {
            send_job(b, s, &b->jobs[i]);
        }
    }
}

/* A job's stream has ended: it is answered, or it waits again. */
static void end_job(batch *b, job *j) {
    j->running = false;
    b->n_running--;
    if (j->answer.error.code == QUIRE_BUSY) {
        put_back(b, j);
    } else {
        b->n_done++;
    }
}

static void run_jobs(batch *b, session *s) {
    bool progress = isatty(STDERR_FILENO);
    int64_t told = clock_us();
    b->most_running = SIZE_MAX;
    for (;;) {
        quire_event ev;
        send_jobs(b, s);
        if (b->n_done == b->n_jobs) {
            break;
        }
        if (!quire_queue_next(s->queue, &ev)) {
            quire_queue_wait(s->queue, -1);
            continue;
        }
        job *j = (job *)((char *)ev.user - offsetof(job, answer));
        answer_add(&j->answer, &ev);
        if (j->answer.done) {
            end_job(b, j);
        }
        if (progress && clock_us() - told > 500000) {
            told = clock_us();
            fprintf(stderr, "\r%zu of %zu", b->n_done, b->n_jobs);
        }
    }
    if (progress) {
        fprintf(stderr, "\r%zu of %zu\n", b->n_done, b->n_jobs);
    }
}

static json_object *id_array(const int32_t *ids, size_t n) {
    json_object *list = json_object_new_array_ext((int)(n ? n : 1));
    for (size_t i = 0; i < n; i++) {
        json_object_array_add(list, json_object_new_int(ids[i]));
    }
    return list;
}

static json_object *string_or_null(const char *text) {
    return text ? json_object_new_string(text) : NULL;
}

static json_object *error_object(const quire_error *error, int status) {
    json_object *out = json_object_new_object();
    json_object_object_add(out, "message", json_object_new_string(error->message));
    json_object_object_add(out, "type", json_object_new_string(status == 500 ? "internal_error" : "invalid_request_error"));
    json_object_object_add(out, "param", string_or_null(error->param[0] ? error->param : NULL));
    json_object_object_add(out, "code", json_object_new_int(status));
    return out;
}

static json_object *usage_object(const answer *a) {
    json_object *out = json_object_new_object();
    json_object_object_add(out, "prompt_tokens", json_object_new_int(a->prompt_tokens));
    json_object_object_add(out, "completion_tokens", json_object_new_int(a->completion_tokens));
    json_object_object_add(out, "total_tokens", json_object_new_int(a->prompt_tokens + a->completion_tokens));
    return out;
}

/* Adds text, ids and the reason of the end to out. */
static void add_choice(json_object *out, const answer_choice *c, bool message) {
    json_object *text = json_object_new_string_len(c->text.n ? c->text.p : "", (int)c->text.n);
    if (message) {
        json_object *m = json_object_new_object();
        json_object_object_add(m, "role", json_object_new_string("assistant"));
        json_object_object_add(m, "content", text);
        json_object_object_add(out, "message", m);
    } else {
        json_object_object_add(out, "text", text);
    }
    json_object_object_add(out, "token_ids", id_array(c->tokens, c->n_tokens));
    json_object_object_add(out, "finish_reason", string_or_null(answer_finish_name(c->finish)));
    json_object *why = c->stop_string ? json_object_new_string(c->stop_string) : c->stop_token >= 0 ? json_object_new_int(c->stop_token) : NULL;
    json_object_object_add(out, "stop_reason", why);
}

static json_object *choice_list(const answer *a, bool message) {
    json_object *choices = json_object_new_array();
    for (size_t i = 0; i < a->n_choices; i++) {
        json_object *choice = json_object_new_object();
        json_object_object_add(choice, "index", json_object_new_int64((int64_t)i));
        add_choice(choice, &a->choices[i], message);
        json_object_array_add(choices, choice);
    }
    return choices;
}

static json_object *plain_answer(const answer *a, size_t index, json_object *id) {
    json_object *out = json_object_new_object();
    json_object_object_add(out, "index", json_object_new_int64((int64_t)index));
    if (id) {
        json_object_object_add(out, "id", json_object_get(id));
    }
    if (a->error.code != QUIRE_OK) {
        json_object_object_add(out, "error", error_object(&a->error, a->error.code == QUIRE_INTERNAL ? 500 : 400));
        return out;
    }
    if (a->n_choices == 1) {
        add_choice(out, &a->choices[0], false);
    } else {
        json_object_object_add(out, "choices", choice_list(a, false));
    }
    json_object_object_add(out, "usage", usage_object(a));
    return out;
}

static json_object *openai_answer(const job *j, size_t index, const char *model) {
    const answer *a = &j->answer;
    char id[48];
    bool failed = a->error.code != QUIRE_OK;
    int status = !failed ? 200 : a->error.code == QUIRE_INTERNAL ? 500 : 400;
    json_object *body = json_object_new_object();
    if (failed) {
        json_object_object_add(body, "error", error_object(&a->error, status));
    } else {
        bool chat = j->endpoint == QUIRE_CHAT;
        snprintf(id, sizeof id, "%s-%zu", chat ? "chatcmpl" : "cmpl", index);
        json_object_object_add(body, "id", json_object_new_string(id));
        json_object_object_add(body, "object", json_object_new_string(chat ? "chat.completion" : "text_completion"));
        json_object_object_add(body, "created", json_object_new_int64(clock_unix_s()));
        json_object_object_add(body, "model", json_object_new_string(model));
        json_object_object_add(body, "choices", choice_list(a, chat));
        json_object_object_add(body, "usage", usage_object(a));
    }
    json_object *response = json_object_new_object();
    json_object_object_add(response, "status_code", json_object_new_int(status));
    snprintf(id, sizeof id, "req-%zu", index);
    json_object_object_add(response, "request_id", json_object_new_string(id));
    json_object_object_add(response, "body", body);
    json_object *out = json_object_new_object();
    snprintf(id, sizeof id, "batch_req-%zu", index);
    json_object_object_add(out, "id", json_object_new_string(id));
    json_object_object_add(out, "custom_id", json_object_get(get(j->line, "custom_id")));
    json_object_object_add(out, "response", response);
    json_object_object_add(out, "error", NULL);
    return out;
}

/* Writes one line and gives the object back. */
static bool write_line(FILE *f, json_object *line) {
    const char *text = json_object_to_json_string_ext(line, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
    bool good = text && fprintf(f, "%s\n", text) > 0;
    json_object_put(line);
    return good;
}

static quire_err open_out(const char *path, FILE **out, quire_error *err) {
    *out = strcmp(path, "-") == 0 ? stdout : fopen(path, "wb");
    return *out ? QUIRE_OK : err_set(err, QUIRE_IO, -1, "--out %s: %s", path, strerror(errno));
}

static quire_err close_out(const char *path, FILE *f, bool good, quire_error *err) {
    bool closed = f == stdout ? fflush(f) == 0 : fclose(f) == 0;
    return good && closed ? QUIRE_OK : err_set(err, QUIRE_IO, -1, "--out %s: could not be written: %s", path, strerror(errno));
}

quire_err batch_file_write_one(const char *path, const answer *a, quire_error *err) {
    FILE *f;
    TRY(open_out(path, &f, err));
    return close_out(path, f, write_line(f, plain_answer(a, 0, NULL)), err);
}

quire_err batch_file_run(const cli_options *o, session *s, quire_error *err) {
    batch b = {0};
    FILE *f = NULL;
    quire_err e = read_jobs(o, s, &b, err);
    if (e == QUIRE_OK) {
        e = open_out(o->out, &f, err);
    }
    if (e == QUIRE_OK) {
        const char *model = quire_engine_info(s->engine)->model_name;
        size_t n_failed = 0;
        bool good = true;
        run_jobs(&b, s);
        for (size_t i = 0; i < b.n_jobs; i++) {
            job *j = &b.jobs[i];
            good = write_line(f, j->is_openai ? openai_answer(j, i, model) : plain_answer(&j->answer, i, get(j->line, "id"))) && good;
            n_failed += j->answer.error.code != QUIRE_OK;
        }
        e = close_out(o->out, f, good, err);
        log_line(LOG_INFO, "%zu requests, %zu failed, answers in %s", b.n_jobs, n_failed, o->out);
    }
    batch_deinit(&b);
    return e;
}
