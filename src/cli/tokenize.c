/* `quire tokenize`: text to ids and back. */
#include <stdio.h>

#include "cli/commands.h"
#include "cli/files.h"

/* "[1,2,3]" for programs, or a line a token for people: the id and what the vocabulary calls it. */
static void print_ids(const quire_engine *e, const int32_t *ids, size_t n, bool ids_only) {
    if (ids_only) {
        putchar('[');
        for (size_t i = 0; i < n; i++) {
            printf("%s%d", i ? ", " : "", (int)ids[i]);
        }
        printf("]\n");
        return;
    }
    for (size_t i = 0; i < n; i++) {
        size_t n_piece;
        const char *piece = quire_token_piece(e, ids[i], &n_piece);
        printf("%8d  %.*s\n", (int)ids[i], (int)n_piece, piece);
    }
}

static quire_err decode(const quire_engine *engine, const char *text, quire_error *err) {
    id_list list;
    quire_err e = id_list_parse(text, &list, err);
    if (e != QUIRE_OK) {
        return err_prefix(err, e, "--decode");
    }
    char *out;
    size_t n;
    e = quire_detokenize(engine, list.ids, list.n, false, &out, &n, err);
    if (e == QUIRE_OK) {
        fwrite(out, 1, n, stdout);
        putchar('\n');
        quire_free(out);
    }
    id_list_deinit(&list);
    return e;
}

static quire_err encode(const cli_options *o, const quire_engine *engine, quire_error *err) {
    strbuf text = {0};
    quire_err e = o->prompt ? strbuf_add_str(&text, o->prompt) : files_read(o->prompt_file ? o->prompt_file : "-", &text, err);
    int32_t *ids;
    size_t n;
    if (e == QUIRE_OK) {
        e = quire_tokenize(engine, text.n ? text.p : "", text.n, true, &ids, &n, err);
    }
    if (e == QUIRE_OK) {
        print_ids(engine, ids, n, o->show_ids);
        quire_free(ids);
    }
    strbuf_deinit(&text);
    return e;
}

quire_err command_tokenize(const cli_options *o, quire_error *err) {
    quire_options small = o->engine; /* nothing is computed: the least pool will do */
    small.n_pages = 4;
    small.max_model_len = small.page_tokens;
    small.n_threads = 1;
    quire_engine *engine;
    TRY(quire_engine_open(&small, &engine, err));
    quire_err e = o->ids ? decode(engine, o->ids, err) : encode(o, engine, err);
    quire_engine_close(engine);
    return e;
}
