/* `quire inspect`. */
#include <stdio.h>

#include "cli/commands.h"

quire_err command_inspect(const cli_options *o, quire_error *err) {
    char *text;
    TRY(quire_inspect(&o->engine, o->json, &text, err));
    fputs(text, stdout);
    size_t n = strlen(text);
    if (n == 0 || text[n - 1] != '\n') {
        putchar('\n');
    }
    quire_free(text);
    return QUIRE_OK;
}
