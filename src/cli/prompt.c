/* Reads the one prompt of `quire run` and `quire tokenize`. */
#include "cli/commands.h"
#include "cli/files.h"

quire_err prompt_check(const cli_options *o, quire_error *err) {
    const char *given = o->prompt ? "-p" : o->prompt_file ? "-f" : NULL;
    const char *ids = o->embed ? "--ids" : "--decode";
    const char *too = o->prompt && o->prompt_file ? "-f"
                      : given && o->prompts       ? "--prompts"
                      : given && o->ids           ? ids
                                                  : NULL;
    if (too) {
        return err_set(err, QUIRE_INVALID, -1, "%s beside %s: both give the text; leave one of them out", too,
                       given);
    }
    return o->prompt ? files_check_text("-p", str_of(o->prompt), QUIRE_INVALID, err) : QUIRE_OK;
}

quire_err prompt_read(const cli_options *o, strbuf *out, quire_error *err) {
    if (!o->prompt) {
        return files_read_text(o->prompt_file ? o->prompt_file : "-", out, err);
    }
    return strbuf_add_str(out, o->prompt) == QUIRE_OK
               ? QUIRE_OK
               : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for the prompt");
}
