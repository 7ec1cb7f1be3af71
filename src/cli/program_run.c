/* `quire run --program`: runs a program of a file and prints its report. */
#include "cli/commands.h"
#include "cli/files.h"
#include "program/program_reader.h"

/* Runs a program to its end. *json: its report, n bytes, freed with quire_free. *n_failed:
 * states that failed. */
static quire_err program_run_on(session *s, str text, char **json, size_t *n, int64_t *n_failed,
                                quire_error *err) {
    quire_programs *ps;
    quire_state *state;
    quire_program_event ev = {0};
    quire_err e = quire_programs_open(s->engine, &ps);
    TRY(e == QUIRE_OK ? e : err_set(err, e, -1, "out of memory for a program"));
    e = quire_program_open(ps, text.p, text.n, NULL, &state, err);
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
        e = quire_state_report(state, NULL, quire_program_describe(state)->explain, json, n);
        e = e == QUIRE_OK ? e : err_set(err, e, -1, "out of memory for a report");
        quire_state_close(state);
    }
    quire_programs_close(ps);
    return e;
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
    char *json = NULL;
    size_t n = 0;
    int64_t n_failed = 0;
    TRY(program_run_on(s, (str){text->p, text->n}, &json, &n, &n_failed, err));
    quire_err e = text_out_print((str){json, n}, err);
    quire_free(json);
    return e == QUIRE_OK && n_failed > 0
               ? err_set(err, QUIRE_BAD_REQUEST, -1,
                         "branches of the program failed: %lld; \"errors\" has why", (long long)n_failed)
               : e;
}
