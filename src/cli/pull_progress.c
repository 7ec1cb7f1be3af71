#include "cli/pull_progress.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define RATE_S 3.0 /* how many seconds the rate looks back */

void pull_progress_init(pull_progress *p, const char *name, bool quiet, bool plain) {
    *p = (pull_progress){.name = name,
                         .quiet = quiet,
                         .plain = plain,
                         .is_terminal = isatty(STDERR_FILENO) == 1,
                         .start_us = clock_us()};
    p->last_us = p->start_us;
}

/* "4.68 GB", "512 MB", "3 KB" */
static const char *pull_progress_show_bytes(double bytes, char out[24]) {
    static const char *const units[] = {"bytes", "KB", "MB", "GB", "TB"};
    size_t unit = 0;
    while (bytes >= 999.5 && unit + 1 < sizeof units / sizeof *units) {
        bytes /= 1000;
        unit++;
    }
    (void)snprintf(out, 24, "%.*f %s", unit >= 3 ? 2 : unit == 2 && bytes < 100 ? 1 : 0, bytes, units[unit]);
    return out;
}

/* "40 s", "3 min", "2 h 10 min" */
static const char *show_seconds(double s, char out[32]) {
    long minutes = (long)(s / 60 + 0.5);
    if (s < 100) {
        (void)snprintf(out, 32, "%.0f s", s);
    } else if (minutes < 100) {
        (void)snprintf(out, 32, "%ld min", minutes);
    } else {
        (void)snprintf(out, 32, "%ld h %ld min", minutes / 60, minutes % 60);
    }
    return out;
}

static void update_rate(pull_progress *p, const quire_hub_progress *now) {
    int64_t us = clock_us();
    double s = (double)(us - p->last_us) / 1e6;
    if (s < 0.05) {
        return;
    }
    double current = (double)(now->fetched_bytes - p->last_bytes) / s, weight = s < RATE_S ? s / RATE_S : 1;
    p->rate = p->rate > 0 ? p->rate + (current - p->rate) * weight : current;
    p->last_us = us;
    p->last_bytes = now->fetched_bytes;
}

static void rewrite_line(pull_progress *p, const quire_hub_progress *now) {
    char done[24], total[24], rate[24], left[32], line[200];
    double missing = (double)(now->total_bytes - now->bytes);
    int n = snprintf(line, sizeof line, "%s of %s, %d of %d files",
                     pull_progress_show_bytes((double)now->bytes, done),
                     pull_progress_show_bytes((double)now->total_bytes, total), (int)now->n_files,
                     (int)now->n_total_files);
    if (p->rate >= 1 && n > 0) {
        n += snprintf(line + n, sizeof line - (size_t)n, ", %s/s, %s left",
                      pull_progress_show_bytes(p->rate, rate), show_seconds(missing / p->rate, left));
    }
    if (now->is_waiting && n > 0) {
        (void)snprintf(line + n, sizeof line - (size_t)n, ", waiting for another process");
    }
    fprintf(stderr, p->plain ? "\r%-76s" : "\r%s\033[K", line);
    fflush(stderr);
    p->has_line = true;
}

void pull_progress_show(void *user, const quire_hub_progress *now) {
    pull_progress *p = user;
    char total[24];
    p->last = *now;
    if (now->n_total_files == 0 || p->quiet) {
        return;
    }
    if (!p->has_begun) {
        log_line(LOG_INFO, "%s: fetching %d file%s, %s", p->name, (int)now->n_total_files,
                 now->n_total_files == 1 ? "" : "s",
                 pull_progress_show_bytes((double)now->total_bytes, total));
        if (now->others != NULL) {
            log_line(LOG_INFO, "%s: the cache has it already as %s; name that with :QUANT to use it", p->name,
                     now->others);
        }
        p->has_begun = true;
    }
    update_rate(p, now);
    if (p->is_terminal) {
        rewrite_line(p, now);
    }
}

void pull_progress_end(pull_progress *p, bool done) {
    char bytes[24], rate[24], time[32];
    double s = (double)(clock_us() - p->start_us) / 1e6;
    if (p->has_line) {
        fprintf(stderr, p->plain ? "\r%-76s\r" : "\r%s\033[K", "");
        fflush(stderr);
    }
    if (done && p->has_begun) {
        double fetched = (double)p->last.fetched_bytes;
        log_line(LOG_INFO, "%s: %s in %s (%s/s)", p->name, pull_progress_show_bytes(fetched, bytes),
                 show_seconds(s, time), pull_progress_show_bytes(fetched / (s > 0 ? s : 1), rate));
    }
}
