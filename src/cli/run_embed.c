/* `quire run --embed`: rows in place of text, a JSON array a line. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/embed_input.h"
#include "json/json_out.h"

#define INPUTS_AT_ONCE 1024 /* so that rows are written as they come */

/* Where the rows are written. */
typedef struct row_file {
    const char *name; /* for errors */
    FILE *file;
} row_file;

static quire_err run_embed_write_row(const row_file *to, const float *row, size_t n, strbuf *line,
                                     quire_error *err) {
    json_out o = {.to = line};
    strbuf_clear(line);
    json_begin(&o, '[');
    for (size_t i = 0; i < n; i++) {
        json_number(json_item(&o), (double)row[i]);
    }
    json_end(&o, ']');
    if (o.err != QUIRE_OK || strbuf_add_char(line, '\n') != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a row");
    }
    return fwrite(line->p, 1, line->n, to->file) == line->n
               ? QUIRE_OK
               : err_set(err, QUIRE_IO, -1, "%s could not be written: %s", to->name, strerror(errno));
}

static quire_err write_rows(const cli_options *o, session *s, const embed_inputs *in, const row_file *to,
                            quire_error *err) {
    const quire_embed_options how = {.pooling = o->pooling,
                                     .dimensions = o->dimensions,
                                     .normalize = o->normalize      ? 1
                                                  : o->no_normalize ? 0
                                                                    : -1};
    strbuf line = {0};
    char where[64];
    quire_err e = QUIRE_OK;
    for (size_t first = 0; e == QUIRE_OK && first < in->n; first += INPUTS_AT_ONCE) {
        size_t n = in->n - first < INPUTS_AT_ONCE ? in->n - first : INPUTS_AT_ONCE, n_row;
        float *rows;
        e = quire_embed(s->engine, in->list + first, n, &how, &rows, &n_row, err);
        if (e != QUIRE_OK && first > 0) {
            (void)snprintf(where, sizeof where, "of the inputs from %zu on", first);
            err_prefix(err, e, where);
        }
        for (size_t i = 0; e == QUIRE_OK && i < n; i++) {
            e = run_embed_write_row(to, rows + i * n_row, n_row, &line, err);
        }
        quire_free(rows);
    }
    strbuf_deinit(&line);
    return e;
}

static quire_err run_embed_write_all(const cli_options *o, session *s, const embed_inputs *in,
                                     quire_error *err) {
    bool standard = o->out == NULL || strcmp(o->out, "-") == 0;
    row_file to = {standard ? "standard output" : o->out, standard ? stdout : fopen(o->out, "wb")};
    if (to.file == NULL) {
        return files_failed(o->out, err);
    }
    quire_err e = write_rows(o, s, in, &to, err);
    bool ended = (standard ? fflush(to.file) : fclose(to.file)) == 0;
    return e != QUIRE_OK || ended
               ? e
               : err_set(err, QUIRE_IO, -1, "%s could not be written: %s", to.name, strerror(errno));
}

quire_err embed_check(const cli_options *o, quire_error *err) {
    const char *alone = o->pooling      ? "--pooling"
                        : o->dimensions ? "--dimensions"
                        : o->normalize  ? "--normalize"
                                        : NULL;
    alone = alone             ? alone
            : o->no_normalize ? "--no-normalize"
            : o->ids          ? "--ids"
            : o->types        ? "--types"
            : o->text_pair    ? "--text-pair"
                              : NULL;
    if (!o->embed && alone) {
        return err_set(err, QUIRE_INVALID, -1, "%s is for rows in place of text: give --embed too", alone);
    }
    if (o->normalize && o->no_normalize) {
        return err_set(err, QUIRE_INVALID, -1, "--no-normalize beside --normalize: leave one of them out");
    }
    if (o->embed && o->prompts && o->ids) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--prompts beside --ids: both give the input; leave one of them out");
    }
    return QUIRE_OK;
}

/* The settings of rows as a request's body, in which each is as on the command line. */
static quire_err write_settings(const cli_options *o, strbuf *out) {
    body b = {0};
    quire_err e = body_set(&b, "input", str_of("[0]"));
    e = e == QUIRE_OK && o->pooling != NULL ? body_set_text(&b, "pooling", str_of(o->pooling)) : e;
    e = e == QUIRE_OK && o->dimensions > 0 ? body_set_int(&b, "dimensions", o->dimensions) : e;
    e = e == QUIRE_OK && (o->normalize || o->no_normalize)
            ? body_set(&b, "normalize", str_of(o->normalize ? "true" : "false"))
            : e;
    e = e == QUIRE_OK ? body_write(&b, out) : e;
    body_deinit(&b);
    return e;
}

/* Opens the session, once the model's metadata agree with the settings. */
static quire_err run_embed_open_checked(const cli_options *o, session *s, quire_error *err) {
    cli_options own = *o;
    strbuf text = {0};
    quire_err e = write_settings(o, &text);
    own.engine.request_check = text.p;
    own.engine.request_check_kind = QUIRE_EMBEDDINGS;
    e = e == QUIRE_OK ? session_open(&own, s, err) : err_set(err, e, -1, "out of memory");
    strbuf_deinit(&text);
    return e;
}

quire_err embed_run(const cli_options *o, quire_error *err) {
    embed_inputs in = {0};
    session s;
    if (o->fields.n > 0) {
        log_line(LOG_WARN, "--embed gives rows, no text: %s%s without effect", o->fields.members[0].name,
                 o->fields.n > 1 ? " and other settings of the text are" : " is");
    }
    TRY(files_check_readable("--prompts", o->prompts, err));
    TRY(files_check_writable("--out", o->out, err));
    quire_err e = embed_inputs_read(o, &in, err);
    e = e == QUIRE_OK ? run_embed_open_checked(o, &s, err) : e;
    if (e == QUIRE_OK) {
        e = embed_inputs_join(&in, s.engine, err);
        e = e == QUIRE_OK ? run_embed_write_all(o, &s, &in, err) : e;
        session_close(&s);
    }
    embed_inputs_deinit(&in);
    return e;
}

#define AT(member) .offset = offsetof(cli_options, member)

static const flag_choice choices_pooling[] = {
    {"mean", "mean", 0}, {"cls", "cls", 0}, {"last", "last", 0}, {"rank", "rank", 0}, {0}};

const flag flags_embed[] = {
    {"--embed --embedding --embeddings", NULL,
     "print a row of numbers for the prompt, or for each line of --prompts", FLAG_SWITCH, AT(embed)},
    {"--pooling", NULL, "--embed: how rows become one; without: by the model's files", FLAG_NAME, AT(pooling),
     .choices = choices_pooling, .rare = true},
    {"--dimensions", "N", "--embed: elements of a row that are kept", FLAG_COUNT, AT(dimensions),
     .minimum = 1, .maximum = 1 << 30, .rare = true},
    {"--normalize", NULL, "--embed: divide a row by its length", FLAG_SWITCH, AT(normalize), .rare = true},
    {"--no-normalize", NULL,
     "--embed: do not divide a row by its length, even if the model's files ask for it", FLAG_SWITCH,
     AT(no_normalize), .rare = true},
    {"--ids", "1,2,3", "--embed: the input as token ids", FLAG_TEXT, AT(ids), .rare = true},
    {"--text-pair", "TEXT", "--embed: a second text beside the prompt, as a cross-encoder takes them",
     FLAG_TEXT, AT(text_pair), .rare = true},
    {"--types", "0,0,1", "--embed: token types of --ids", FLAG_TEXT, AT(types), .rare = true},
    {0},
};
