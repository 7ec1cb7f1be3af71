/* `quire serve`. */
#include <signal.h>

#include "cli/commands.h"

quire_err command_serve(const cli_options *o, quire_error *err) {
    session s;
    signal(SIGHUP, SIG_IGN); /* until the server handles it by reloading its keys: they are not read yet */
    signal(SIGUSR1, SIG_IGN);
    TRY(session_open(o, &s, err));
    quire_queue_close(s.queue);
    s.queue = NULL; /* the server's loops have their own */
    signal(SIGPIPE, SIG_IGN);
    quire_err e = server_run(s.engine, &o->server, err);
    session_close(&s);
    return e;
}
