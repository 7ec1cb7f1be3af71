/* `quire run --program`: runs a program from a file, on the engine or an API, and
 * prints its report. */
#include "cli/api_executor.h"

#include "cli/commands.h"
#include "cli/files.h"
#include "execute/program_json.h"
#include "json/json_out.h"
#include <assert.h>

/* Runs a program to its end. *json: its report, [*n], freed with quire_free. *n_failed:
 * number of states that failed. */
static quire_err program_run_on(quire_programs *ps, str text, char **json, size_t *n, int64_t *n_failed,
                                quire_error *err) {
    quire_state *state;
    quire_program_event ev = {0};
    quire_err e = quire_program_open(ps, text.p, text.n, NULL, &state, err);
    while (e == QUIRE_OK && ev.kind != QUIRE_PROGRAM_IDLE) {
        if (!quire_programs_next(ps, &ev)) {
            ev.kind = QUIRE_PROGRAM_TEXT;
            quire_programs_wait(ps, -1);
        }
    }
    if (e == QUIRE_OK) {
        quire_program_usage u = {.size = sizeof u};
        quire_state_usage(state, &u);
        *n_failed = u.n_failed;
        e = err_set(err, quire_state_report(state, NULL, quire_program_describe(state)->explain, json, n), -1,
                    "out of memory for a report");
        quire_state_close(state);
    }
    return e;
}

/* Runs a program and prints its report; with api not NULL, also the counts of its
 * calls. */
static quire_err program_run_print(quire_programs *ps, const strbuf *text, const api_executor *api,
                                   quire_error *err) {
    char *json = NULL;
    size_t n = 0;
    int64_t n_failed = 0;
    strbuf shown = {0};
    json_out o = {.to = &shown};
    TRY(program_run_on(ps, (str){text->p, text->n}, &json, &n, &n_failed, err));
    /* leaves out the closing brace if the API's counts follow */
    json_raw_part(&o, (str){json, n - (api != NULL ? 1 : 0)});
    quire_free(json);
    if (api != NULL) {
        const api_counts c = api_executor_count(api);
        const json_named_int counts[] = {{"calls", c.n_calls},
                                         {"reused", c.n_reused},
                                         {"prompt_tokens", c.prompt_tokens},
                                         {"completion_tokens", c.completion_tokens},
                                         {"saved_prompt_tokens", c.saved_prompt_tokens},
                                         {"unused_tokens", c.unused_tokens},
                                         {0}};
        json_raw(&o, ",\"api\":");
        json_named_ints(&o, counts);
        json_raw(&o, "}");
    }
    quire_err e = err_set(err, o.err, -1, "out of memory for a report");
    e = text_out_finish(&shown, e, err);
    return e == QUIRE_OK && n_failed > 0
               ? err_set(err, QUIRE_BAD_REQUEST, -1,
                         "%lld branches of the program failed; \"errors\" says why", (long long)n_failed)
               : e;
}

quire_err program_run_check(const char *path, strbuf *text, quire_error *err) {
    program_steps program;
    TRY(files_read_text(path, text, err));
    quire_err e = program_read((str){text->n > 0 ? text->p : "", text->n}, &program, err);
    if (e != QUIRE_OK) {
        return err_prefix(err, e, path);
    }
    program_steps_deinit(&program);
    return QUIRE_OK;
}

quire_err program_run_file(session *s, const strbuf *text, quire_error *err) {
    assert(s != NULL);
    quire_programs *ps;
    TRY(err_set(err, quire_programs_open(s->engine, &ps), -1, "out of memory for a program"));
    quire_err e = program_run_print(ps, text, NULL, err);
    quire_programs_close(ps);
    return e;
}

quire_err program_run_api(const cli_options *o, const strbuf *text, quire_error *err) {
    assert(o != NULL);
    bool is_named = strcmp(o->engine.model, "builtin") != 0;
    const api_executor_options how = {
        .client = {.url = o->api, .key = o->environment.openai_key, .ca_file = o->environment.hub_ca_file},
        .model = is_named ? o->engine.model : NULL,
        .most_more = o->api_speculation};
    api_executor *x;
    quire_programs *ps;
    TRY(api_executor_open(&how, &x, err));
    TRY(err_set(err, programs_open(&api_ops, x, &ps), -1, "out of memory for a program"));
    quire_err e = program_run_print(ps, text, x, err);
    quire_programs_close(ps);
    return e;
}
