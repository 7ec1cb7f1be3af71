/* `quire tokenize`: converts text to ids, and ids to text. */
#include <stddef.h>

#include "cli/commands.h"
#include "cli/files.h"
#include "cli/read_flags.h"

/* Writes "[1,2,3]" if ids_only, otherwise a line for each token: its id and its text. */
static quire_err write_ids(const quire_tokenizer *t, const int32_t *ids, size_t n, bool ids_only,
                           strbuf *out) {
    if (ids_only) {
        TRY(strbuf_add_char(out, '['));
        for (size_t i = 0; i < n; i++) {
            TRY(strbuf_addf(out, "%s%d", i ? ", " : "", (int)ids[i]));
        }
        return strbuf_add_char(out, ']');
    }
    for (size_t i = 0; i < n; i++) {
        size_t n_piece;
        const char *piece = quire_tokenizer_piece(t, ids[i], &n_piece);
        TRY(strbuf_addf(out, "%s%8d  ", i ? "\n" : "", (int)ids[i]));
        TRY(strbuf_add(out, piece, n_piece));
    }
    return QUIRE_OK;
}

static quire_err tokenize_decode(const quire_tokenizer *t, const char *text, quire_error *err) {
    id_list list;
    quire_err e = id_list_parse(text, &list, err);
    if (e != QUIRE_OK) {
        return err_prefix(err, e, "--decode");
    }
    char *out;
    size_t n;
    e = quire_tokenizer_decode(t, list.ids, list.n, false, &out, &n, err);
    if (e == QUIRE_OK) {
        e = text_out_print((str){out, n}, err);
        quire_free(out);
    }
    id_list_deinit(&list);
    return e;
}

static quire_err tokenize_encode(const cli_options *o, const quire_tokenizer *t, str text, quire_error *err) {
    strbuf out = {0};
    int32_t *ids;
    size_t n;
    TRY(quire_tokenizer_encode(t, text.p, text.n, true, &ids, &n, err));
    quire_err e = write_ids(t, ids, n, o->show_ids, &out);
    quire_free(ids);
    if (e != QUIRE_OK) {
        err_set(err, e, -1, "out of memory");
    } else if (out.n > 0) { /* an empty text may have no tokens */
        e = text_out_print((str){out.p, out.n}, err);
    }
    strbuf_deinit(&out);
    return e;
}

static quire_err tokenize_run(const cli_options *o, quire_error *err) {
    quire_tokenizer *t = NULL;
    strbuf text = {0};
    TRY(prompt_check(o, err));
    TRY(unused_flags_check_tokenize(o, err));
    quire_err e = o->ids ? QUIRE_OK : prompt_read(o, &text, err);
    TRY_DONE(e, quire_tokenizer_open(o->engine.model, &t, err));
    e = o->ids ? tokenize_decode(t, o->ids, err)
               : tokenize_encode(o, t, (str){text.n ? text.p : "", text.n}, err);
done:
    quire_tokenizer_close(t);
    strbuf_deinit(&text);
    return e;
}

#define AT(member) .offset = offsetof(cli_options, member)

static const flag own_flags[] = {
    {"--ids", NULL, "print only the ids", FLAG_SWITCH, AT(show_ids)},
    {"--decode", "IDS", "print the text of these token ids", FLAG_TEXT, AT(ids)},
    {0},
};

static const flag *const groups[] = {FLAGS_MODEL, flags_prompt, own_flags, flags_help, flags_help_all, NULL};

const command command_tokenize = {
    .name = "tokenize",
    .summary = "print the token ids of a text, or the text of ids",
    .usage = "quire tokenize MODEL|TOKENIZER [-p TEXT | -f FILE | --decode IDS]",
    .examples = "  quire tokenize builtin -p \"Once upon a time\" --ids\n"
                "  quire tokenize builtin --decode 0,48,1314\n",
    .argument = ARGUMENT_MODEL,
    .flags = groups,
    .options_size = sizeof(cli_options),
    .run = tokenize_run,
};
