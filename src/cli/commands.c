#include "cli/commands.h"

#include <assert.h>
#include <stdio.h>

#include "base/mem.h"

cli_options *command_options_new(const command *c) {
    assert(c != NULL);
    cli_options *o = mem_new(1, c->options_size);
    if (o != NULL) {
        cli_options_init(o);
        if (c->defaults != NULL) {
            c->defaults(o);
        }
    }
    return o;
}

void command_options_free(cli_options *o) {
    if (o != NULL) {
        cli_options_deinit(o);
        mem_free(o);
    }
}

bool command_default(cli_options *defaults, const flag *f, char *out, size_t n) {
    if (defaults == NULL || !flag_is_option(f)) {
        return false;
    }
    const void *o = cli_options_of(defaults, f);
    bool is_shown = flag_show_option(f, o, out, n) && out[0] != 0;
    /* a default that no flag can set means "not set" */
    return is_shown && flag_check_option(f, o, NULL) == QUIRE_OK;
}

void command_meaning(cli_options *defaults, const flag *f, char *out, size_t n) {
    char value[128];
    bool has = command_default(defaults, f, value, sizeof value);
    (void)snprintf(out, n, "%s%s%s%s", f->meaning, has ? " (default: " : "", has ? value : "",
                   has ? ")" : "");
}

const command *const quire_commands[] = {
    &command_run,  &command_serve, &command_tokenize, &command_logits, &command_inspect,
    &command_pack, &command_pull,  &command_list,     &command_rm,     NULL};
