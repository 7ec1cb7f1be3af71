/* `quire run --embed`: rows in place of text, one JSON array per line. */
#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "cli/batch_input.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "json/json.h"
#include "json/json_out.h"

/* The inputs of `quire run --embed`: one from the command line or standard input, or one
 * per line of a file. All zero: empty. */
typedef struct embed_inputs {
    quire_input *list; /* [n] mem_new'd, with the arrays that they point to */
    strbuf *pairs;     /* [n] mem_new'd: the second text of each input; p NULL: none */
    size_t n, cap, cap_pairs;
} embed_inputs;

static void embed_inputs_deinit(embed_inputs *in) {
    for (size_t i = 0; i < in->n; i++) {
        mem_free((void *)(uintptr_t)in->list[i].text);
        mem_free((void *)(uintptr_t)in->list[i].ids);
        mem_free((void *)(uintptr_t)in->list[i].types);
        strbuf_deinit(&in->pairs[i]);
    }
    mem_free(in->list);
    mem_free(in->pairs);
    *in = (embed_inputs){0};
}

static quire_err embed_input_no_memory(quire_error *err) {
    return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for an input");
}

/* Adds an empty input; *out: where to fill it. */
static quire_err embed_input_add(embed_inputs *in, quire_input **out, quire_error *err) {
    if (mem_grow(&in->list, &in->cap, in->n + 1, sizeof *in->list) != QUIRE_OK ||
        mem_grow(&in->pairs, &in->cap_pairs, in->n + 1, sizeof *in->pairs) != QUIRE_OK) {
        return embed_input_no_memory(err);
    }
    *out = &in->list[in->n++];
    **out = (quire_input){0};
    return QUIRE_OK;
}

/* Sets the second text of the newest input. */
static quire_err set_pair(embed_inputs *in, str text, quire_error *err) {
    return err_set(err, strbuf_add(&in->pairs[in->n - 1], text.p, text.n), -1, "out of memory for an input");
}

static quire_err embed_input_set_text(quire_input *to, str text, quire_error *err) {
    to->text = mem_dup(text.p, text.n);
    to->n_text = text.n;
    return to->text != NULL ? QUIRE_OK : embed_input_no_memory(err);
}

static quire_err embed_input_add_text(const cli_options *o, embed_inputs *in, quire_error *err) {
    strbuf text = {0};
    quire_input *to;
    quire_err e = prompt_read(o, &text, err);
    TRY_DONE(e, embed_input_add(in, &to, err));
    TRY_DONE(e, embed_input_set_text(to, (str){text.n > 0 ? text.p : "", text.n}, err));
    if (o->text_pair != NULL) {
        e = set_pair(in, str_of(o->text_pair), err);
    }
done:
    strbuf_deinit(&text);
    return e;
}

static quire_err embed_input_add_ids(const cli_options *o, embed_inputs *in, quire_error *err) {
    id_list ids = {0}, types = {0};
    quire_input *to;
    quire_err e = id_list_parse(o->ids, &ids, err);
    if (e != QUIRE_OK) {
        return err_prefix(err, e, "--ids");
    }
    e = embed_input_add(in, &to, err);
    if (e != QUIRE_OK) {
        id_list_deinit(&ids);
        return e;
    }
    to->ids = ids.ids;
    to->n_ids = ids.n;
    if (o->types == NULL) {
        return QUIRE_OK;
    }
    e = id_list_parse(o->types, &types, err);
    to->types = types.ids;
    if (e != QUIRE_OK) {
        return err_prefix(err, e, "--types");
    }
    return types.n == ids.n ? QUIRE_OK
                            : err_set(err, QUIRE_INVALID, -1,
                                      "--types has %zu types for %zu ids; give one for each", types.n, ids.n);
}

/* ---- lines of a file ---- */

/* Reads an array of numbers of 32 bits into *out, mem_new'd. */
static quire_err read_numbers(const json_value *v, const char *name, const int32_t **out, size_t *n,
                              quire_error *err) {
    *n = json_length(v);
    int32_t *numbers = mem_new(*n + 1, sizeof *numbers);
    *out = numbers;
    if (numbers == NULL) {
        return embed_input_no_memory(err);
    }
    for (size_t i = 0; i < *n; i++) {
        int64_t number;
        if (!json_whole(json_at(v, i), &number) || number < INT32_MIN || number > INT32_MAX) {
            return err_set(err, QUIRE_BAD_FILE, -1, "%s[%zu] is not a 32-bit integer", name, i);
        }
        numbers[i] = (int32_t)number;
    }
    return QUIRE_OK;
}

static quire_err set_input(quire_input *to, const json_value *v, quire_error *err) {
    if (json_is(v, JSON_KIND_TEXT)) {
        return embed_input_set_text(to, json_str(v), err);
    }
    return json_is(v, JSON_KIND_ARRAY)
               ? read_numbers(v, "the input", &to->ids, &to->n_ids, err)
               : err_set(err, QUIRE_BAD_FILE, -1, "the input is neither a string nor an array of token ids");
}

static quire_err embed_input_read_object(embed_inputs *in, quire_input *to, const json_value *v,
                                         quire_error *err) {
    size_t n_types;
    bool has_input = false;
    for (json_member m = {0}; json_next(v, &m);) {
        if (strcmp(m.name, "input") == 0 || strcmp(m.name, "prompt") == 0) {
            if (has_input) {
                return err_set(err, QUIRE_BAD_FILE, -1,
                               "\"input\" and \"prompt\" both give the input; leave one out");
            }
            has_input = true;
            TRY(set_input(to, m.value, err));
        } else if (strcmp(m.name, "token_type_ids") == 0) {
            TRY(read_numbers(m.value, m.name, &to->types, &n_types, err));
        } else if (strcmp(m.name, "text_pair") == 0) {
            TRY(json_is(m.value, JSON_KIND_TEXT)
                    ? set_pair(in, json_str(m.value), err)
                    : err_set(err, QUIRE_BAD_FILE, -1, "text_pair is not a string"));
        } else if (strcmp(m.name, "id") != 0) {
            return err_set(
                err, QUIRE_BAD_FILE, -1,
                "unknown member \"%.40s\"; the known ones are input, text_pair, token_type_ids and id",
                m.name);
        }
    }
    if (!has_input) {
        return err_set(err, QUIRE_BAD_FILE, -1, "\"input\" is missing");
    }
    if (in->pairs[in->n - 1].p != NULL && to->text == NULL) {
        return err_set(err, QUIRE_BAD_FILE, -1, "text_pair needs an input that is a string");
    }
    return to->types == NULL || (to->ids != NULL && n_types == to->n_ids)
               ? QUIRE_OK
               : err_set(err, QUIRE_BAD_FILE, -1,
                         "token_type_ids must have one for each id of an input that is given as ids");
}

static quire_err embed_input_add_line(embed_inputs *in, str line, quire_error *err) {
    quire_input *to;
    TRY(embed_input_add(in, &to, err));
    json_value *v = json_document(line);
    quire_err e = v == NULL                      ? err_set(err, QUIRE_BAD_FILE, -1, "this is not JSON")
                  : json_is(v, JSON_KIND_OBJECT) ? embed_input_read_object(in, to, v, err)
                                                 : set_input(to, v, err);
    json_drop(v);
    return e;
}

static quire_err embed_input_add_lines(const char *path, embed_inputs *in, quire_error *err) {
    batch_input file;
    char where[300];
    TRY(batch_input_open(path, NULL, &file, err));
    quire_err e = QUIRE_OK;
    while (e == QUIRE_OK && file.n_read < file.n_lines) {
        str line;
        e = batch_input_next(&file, &line, err);
        if (e == QUIRE_OK && (e = embed_input_add_line(in, line, err)) != QUIRE_OK) {
            (void)snprintf(where, sizeof where, "%.200s: line %zu", path, file.n_read);
            e = err_prefix(err, e, where);
        }
    }
    batch_input_close(&file);
    return e == QUIRE_OK && in->n == 0 ? err_set(err, QUIRE_BAD_FILE, -1, "%s: the file has no lines", path)
                                       : e;
}

/* Converts inputs of two texts to ids with token types. */
static quire_err embed_inputs_join(embed_inputs *in, const quire_engine *e, quire_error *err) {
    for (size_t i = 0; i < in->n; i++) {
        quire_input *to = &in->list[i];
        const strbuf *pair = &in->pairs[i];
        int32_t *ids, *types;
        if (pair->p != NULL) {
            TRY(quire_tokenize_pair(e, to->text, to->n_text, pair->p, pair->n, &ids, &types, &to->n_ids,
                                    err));
            to->ids = ids;
            to->types = types;
        }
    }
    return QUIRE_OK;
}

/* Reads what o names: -p, -f, --text-pair, --ids with --types, the lines of --prompts, or
 * standard input. A line is a text, an array of ids, or an object with either as "input"
 * or "prompt", with "text_pair" beside a text and "token_type_ids" of ids. INVALID or
 * BAD_FILE: err names flag or line. */
static quire_err embed_inputs_read(const cli_options *o, embed_inputs *in, quire_error *err) {
    if (o->text_pair != NULL && (o->ids != NULL || o->prompts != NULL)) {
        return err_set(
            err, QUIRE_INVALID, -1,
            "--text-pair: needs --prompt, whose second text it is; a line of --prompts has \"text_pair\"");
    }
    if (o->types != NULL && o->ids == NULL) {
        return err_set(err, QUIRE_INVALID, -1, "--types: needs --ids, whose types they are");
    }
    return o->prompts != NULL ? embed_input_add_lines(o->prompts, in, err)
           : o->ids != NULL   ? embed_input_add_ids(o, in, err)
                              : embed_input_add_text(o, in, err);
}

#define INPUTS_AT_ONCE 1024 /* most inputs in one request, so that rows are written as they come */

/* The output of the rows. */
typedef struct row_file {
    const char *name; /* name of the output in errors */
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
    assert(o != NULL);
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
        return err_set(err, QUIRE_INVALID, -1, "%s is only for embeddings: give --embed too", alone);
    }
    if (o->normalize && o->no_normalize) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--no-normalize and --normalize are both given: leave one of them out");
    }
    if (o->embed && o->prompts && o->ids) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--prompts and --ids both give the input; leave one of them out");
    }
    return QUIRE_OK;
}

/* Writes a request's body with the row settings of the command line. */
static quire_err write_settings(const cli_options *o, strbuf *out) {
    body b = {0};
    quire_err e = body_set(&b, "input", str_of("[0]"));
    if (o->pooling != NULL) {
        TRY_DONE(e, body_set_text(&b, "pooling", str_of(o->pooling)));
    }
    if (o->dimensions > 0) {
        TRY_DONE(e, body_set_int(&b, "dimensions", o->dimensions));
    }
    if (o->normalize || o->no_normalize) {
        TRY_DONE(e, body_set(&b, "normalize", str_of(o->normalize ? "true" : "false")));
    }
    TRY_DONE(e, body_write(&b, out));
done:
    body_deinit(&b);
    return e;
}

/* Opens the session, after checking the settings against the model's metadata. */
static quire_err run_embed_open_checked(const cli_options *o, session *s, quire_error *err) {
    cli_options own = *o;
    strbuf text = {0};
    quire_err e = err_set(err, write_settings(o, &text), -1, "out of memory");
    own.engine.request_check = text.p;
    own.engine.request_check_kind = QUIRE_EMBEDDINGS;
    if (e == QUIRE_OK) {
        e = session_open(&own, s, err);
    }
    strbuf_deinit(&text);
    return e;
}

quire_err embed_run(const cli_options *o, quire_error *err) {
    embed_inputs in = {0};
    session s;
    if (o->fields.n > 0) {
        log_line(LOG_WARN, "--embed gives embeddings, not text: %s%s without effect",
                 o->fields.members[0].name,
                 o->fields.n > 1 ? " and other settings for generated text are" : " is");
    }
    TRY(files_check_readable("--prompts", o->prompts, err));
    TRY(files_check_writable("--out", o->out, err));
    quire_err e = embed_inputs_read(o, &in, err);
    TRY_DONE(e, run_embed_open_checked(o, &s, err));
    e = embed_inputs_join(&in, s.engine, err);
    if (e == QUIRE_OK) {
        e = run_embed_write_all(o, &s, &in, err);
    }
    session_close(&s);
done:
    embed_inputs_deinit(&in);
    return e;
}

#define AT(member) .offset = offsetof(cli_options, member)

static const flag_choice choices_pooling[] = {
    {"mean", "mean", 0}, {"cls", "cls", 0}, {"last", "last", 0}, {"rank", "rank", 0}, {0}};

const flag flags_embed[] = {
    {"--embed --embedding --embeddings", NULL,
     "print an embedding (or scores) for the prompt, or for each line of --prompts", FLAG_SWITCH, AT(embed)},
    {"--pooling", NULL, "--embed: how the rows of a text are pooled; default: as the model's files say",
     FLAG_NAME, AT(pooling), .choices = choices_pooling, .rare = true},
    {"--dimensions", "N", "--embed: number of leading elements to keep", FLAG_COUNT, AT(dimensions),
     .minimum = 1, .maximum = 1 << 30, .rare = true},
    {"--normalize", NULL, "--embed: normalise each embedding to length 1", FLAG_SWITCH, AT(normalize),
     .rare = true},
    {"--no-normalize", NULL, "--embed: do not normalise embeddings, even if the model's files ask for it",
     FLAG_SWITCH, AT(no_normalize), .rare = true},
    {"--ids", "1,2,3", "--embed: the input as token ids", FLAG_TEXT, AT(ids), .rare = true},
    {"--text-pair", "TEXT", "--embed: second text to score with the prompt, for a cross-encoder", FLAG_TEXT,
     AT(text_pair), .rare = true},
    {"--types", "0,0,1", "--embed: token types of --ids", FLAG_TEXT, AT(types), .rare = true},
    {0},
};
