#include "cli/text_out.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

void text_out_init(text_out *t) {
    *t = (text_out){.is_terminal = isatty(STDOUT_FILENO) != 0};
}

void text_out_deinit(text_out *t) {
    strbuf_deinit(&t->shown);
    *t = (text_out){0};
}

static quire_err cli_text_out_print(str text, quire_error *err) {
    if ((text.n == 0 || fwrite(text.p, 1, text.n, stdout) == text.n) && fflush(stdout) == 0) {
        return QUIRE_OK;
    }
    return err_set(err, QUIRE_IO, -1, "standard output could not be written: %s", strerror(errno));
}

quire_err text_out_add(text_out *t, str piece, quire_error *err) {
    if (!t->is_terminal) {
        return cli_text_out_print(piece, err);
    }
    strbuf_clear(&t->shown);
    if (visible_add(&t->seen, piece.p, piece.n, &t->shown) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for what is printed");
    }
    return t->shown.n > 0 ? cli_text_out_print((str){t->shown.p, t->shown.n}, err) : QUIRE_OK;
}

quire_err text_out_end_line(text_out *t, quire_error *err) {
    strbuf_clear(&t->shown);
    if (visible_end(&t->seen, &t->shown) != QUIRE_OK || strbuf_add_char(&t->shown, '\n') != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for what is printed");
    }
    return cli_text_out_print((str){t->shown.p, t->shown.n}, err);
}

quire_err text_out_print(str text, quire_error *err) {
    text_out t;
    text_out_init(&t);
    quire_err e = text_out_add(&t, text, err);
    e = e == QUIRE_OK ? text_out_end_line(&t, err) : e;
    text_out_deinit(&t);
    return e;
}
