/* `quire inspect`. */
#include "cli/commands.h"
#include "cli/text_out.h"

quire_err command_inspect(const cli_options *o, quire_error *err) {
    char *text;
    TRY(quire_inspect(&o->engine, o->json, &text, err));
    size_t n = strlen(text);
    quire_err e = text_out_print((str){text, n > 0 && text[n - 1] == '\n' ? n - 1 : n}, err);
    quire_free(text);
    return e;
}
