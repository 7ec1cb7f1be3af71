/* `quire pack`. */
#include "base/clock.h"
#include "base/log.h"
#include "cli/commands.h"

quire_err command_pack(const cli_options *o, quire_error *err) {
    int64_t start = clock_us(), n_bytes;
    if (!o->out) {
        return err_set(err, QUIRE_INVALID, -1, "quire pack needs -o FILE, where the packed model goes");
    }
    if (o->quiet) {
        log_set_level(LOG_WARN);
    }
    TRY(quire_pack(&o->engine, o->out, &n_bytes, err));
    log_line(LOG_INFO, "%s: %.1f MB in %.1f s", o->out, (double)n_bytes / 1e6, (double)(clock_us() - start) / 1e6);
    return QUIRE_OK;
}
