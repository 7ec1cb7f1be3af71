#include "lab/commands/idle_flags.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "cli/read_flags.h"

enum { LONGEST_NAME = 48 };

quire_err idle_flags_refuse(const cli_options *o, const char *names, const char *why, quire_error *err) {
    for (const char *at = names; *at != '\0'; at += strspn(at, " ")) {
        char name[LONGEST_NAME];
        size_t n = strcspn(at, " ");
        (void)snprintf(name, sizeof name, "%.*s", (int)n, at);
        if (read_flags_gave(o, name)) {
            return err_set(err, QUIRE_INVALID, -1, "%s does nothing %s", name, why);
        }
        at += n;
    }
    return QUIRE_OK;
}
