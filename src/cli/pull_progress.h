/* Progress of a pull on stderr: on a terminal a line that is rewritten, with rate and
 * time left; elsewhere a line at the beginning and one at the end. One thread. */
#ifndef CLI_PULL_PROGRESS_H
#define CLI_PULL_PROGRESS_H

#include "quire_hub.h"

typedef struct pull_progress {
    const char *name; /* borrowed */
    bool quiet, plain, is_terminal, has_begun, has_line;
    int64_t start_us, last_us, last_bytes;
    double rate; /* bytes a second, of the last seconds; 0: not known yet */
    quire_hub_progress last;
} pull_progress;

/* plain: the terminal takes no control sequences. */
void pull_progress_init(pull_progress *p, const char *name, bool quiet, bool plain);
/* For quire_hub_options.progress; user is the pull_progress. */
void pull_progress_show(void *user, const quire_hub_progress *now);
/* Removes the line and, after a successful download, prints how much was fetched. */
void pull_progress_end(pull_progress *p, bool done);

#endif
