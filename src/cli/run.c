/* `quire run`: one prompt, streamed to standard output. */
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/files.h"

json_object *request_body(const cli_options *o) {
    json_object *body = json_object_new_object();
    if (!body) {
        return NULL;
    }
    json_object_object_foreach(o->fields, name, value) {
        json_object_object_add(body, name, json_object_get(value));
    }
    if (o->n_predict >= 0) {
        json_object_object_add(body, "max_tokens", json_object_new_int(o->n_predict));
    }
    return body;
}

quire_err request_fill_length(const cli_options *o, session *s, json_object *body, const char *prompt, quire_error *err) {
    if (o->n_predict >= 0) {
        return QUIRE_OK;
    }
    int32_t *ids;
    size_t n;
    TRY(quire_tokenize(s->engine, prompt, strlen(prompt), true, &ids, &n, err));
    quire_free(ids);
    int64_t left = (int64_t)quire_engine_info(s->engine)->max_model_len - (int64_t)n;
    json_object_object_add(body, "max_tokens", json_object_new_int64(left > 0 ? left : 1));
    return QUIRE_OK;
}

/* -p, -f, or what comes on standard input when that is no terminal. *has is false when the user is to be asked instead. */
static quire_err find_prompt(const cli_options *o, strbuf *prompt, bool *has, quire_error *err) {
    *has = true;
    if (o->prompt) {
        return strbuf_add_str(prompt, o->prompt);
    }
    if (o->prompt_file) {
        return files_read(o->prompt_file, prompt, err);
    }
    if (isatty(STDIN_FILENO)) {
        *has = false;
        return QUIRE_OK;
    }
    return files_read("-", prompt, err);
}

static quire_err run_prompt(const cli_options *o, session *s, const char *prompt, quire_error *err) {
    json_object *body = request_body(o);
    if (!body) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    answer a = {0};
    int64_t start = clock_us();
    json_object_object_add(body, "prompt", json_object_new_string(prompt));
    quire_err e = request_fill_length(o, s, body, prompt, err);
    if (e == QUIRE_OK) {
        if (o->echo) {
            answer_print(NULL, prompt, strlen(prompt));
        }
        e = answer_run(&a, s, QUIRE_COMPLETIONS, body, answer_print, NULL, NULL);
        if (e != QUIRE_OK && err) {
            *err = a.error;
        }
    }
    if (e == QUIRE_OK) {
        putchar('\n');
        fflush(stdout);
        if (isatty(STDERR_FILENO)) {
            double seconds = (double)(clock_us() - start) / 1e6;
            log_line(LOG_INFO, "%d tokens in %.2f s: %.1f tokens/s, the prompt's %d included", (int)a.completion_tokens, seconds,
                     a.completion_tokens / seconds, (int)a.prompt_tokens);
        }
        e = o->out ? batch_file_write_one(o->out, &a, err) : QUIRE_OK;
    }
    answer_deinit(&a);
    json_object_put(body);
    return e;
}

static quire_err run_open(const cli_options *o, session *s, quire_error *err) {
    if (o->prompts) {
        return batch_file_run(o, s, err);
    }
    strbuf prompt = {0};
    bool has;
    quire_err e = find_prompt(o, &prompt, &has, err);
    if (e == QUIRE_OK && !has) {
        e = chat_loop(o, s, err);
    } else if (e == QUIRE_OK) {
        e = run_prompt(o, s, prompt.n ? prompt.p : "", err);
    }
    strbuf_deinit(&prompt);
    return e;
}

quire_err command_run(const cli_options *o, quire_error *err) {
    if (o->prompts && !o->out) {
        return err_set(err, QUIRE_INVALID, -1, "--prompts: needs --out FILE for the answers");
    }
    if (o->prompts && (o->prompt || o->prompt_file)) {
        return err_set(err, QUIRE_INVALID, -1, "--prompts: the prompts are in that file; leave out -p and -f");
    }
    session s;
    TRY(session_open(o, &s, err));
    quire_err e = run_open(o, &s, err);
    session_close(&s);
    return e;
}
