#include "cli/hub.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "quire_hub.h"
#include "json/json_out.h"

/* Shows the progress of a pull on stderr: on a terminal a line that is rewritten, with
 * rate and time left; otherwise a line at the beginning and one at the end. One
 * thread. */

typedef struct pull_progress {
    const char *name; /* borrowed */
    bool quiet, plain, is_terminal, has_begun, has_line;
    int64_t start_us, last_us, last_bytes;
    double rate; /* bytes per second over the last RATE_S seconds; 0: not known yet */
    quire_hub_progress last;
} pull_progress;

#define RATE_S 3.0 /* seconds over which the rate is measured */

/* plain: the terminal supports no control sequences. */
static void pull_progress_init(pull_progress *p, const char *name, bool quiet, bool plain) {
    *p = (pull_progress){.name = name,
                         .quiet = quiet,
                         .plain = plain,
                         .is_terminal = isatty(STDERR_FILENO) == 1,
                         .start_us = clock_us()};
    p->last_us = p->start_us;
}

/* Formats a size: "4.68 GB", "512 MB", "3 KB". */
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

/* Formats a time: "40 s", "3 min", "2 h 10 min". */
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

/* Is quire_hub_options.progress; user: the pull_progress. */
static void pull_progress_show(void *user, const quire_hub_progress *now) {
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
            log_line(LOG_INFO, "%s: the cache already has it as %s; add :QUANT to the name to use that",
                     p->name, now->others);
        }
        p->has_begun = true;
    }
    update_rate(p, now);
    if (p->is_terminal) {
        rewrite_line(p, now);
    }
}

/* Clears the line and, if done and something was fetched, prints how much. */
static void pull_progress_end(pull_progress *p, bool done) {
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

#define MAX_TOKEN_FILE 4096

/* ---- options ---- */

/* Removes white space at both ends of the token. */
static void hub_trim(strbuf *token) {
    static const char blank[] = " \t\r\n";
    while (token->n > 0 && strchr(blank, token->p[token->n - 1])) {
        token->p[--token->n] = 0;
    }
    size_t n = token->n > 0 ? strspn(token->p, blank) : 0;
    if (n > 0) {
        memmove(token->p, token->p + n, token->n - n + 1);
        token->n -= n;
    }
}

/* Reads the token from a file, if there is one. */
static quire_err hub_read_token(const char *path, strbuf *out, quire_error *err) {
    out->max = MAX_TOKEN_FILE;
    quire_err e = path ? files_read(path, out, err) : QUIRE_NOT_FOUND;
    if (e != QUIRE_OK && e != QUIRE_NOT_FOUND) {
        return err_prefix(err, e, "the hub's token");
    }
    return QUIRE_OK;
}

/* Finds the token: of the flag, else of the variable, else of the file. Empty: none. */
static quire_err hub_find_token(const cli_options *o, strbuf *out, quire_error *err) {
    const char *given = o->hf_token ? o->hf_token : o->environment.hub_token;
    if (given && strbuf_add_str(out, given) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for the hub's token");
    }
    hub_trim(out);
    if (out->n == 0 && !o->hf_token) {
        TRY(hub_read_token(o->environment.hub_token_file, out, err));
        hub_trim(out);
    }
    return QUIRE_OK;
}

static quire_err read_timeout(const char *text, int32_t *out, quire_error *err) {
    char *end;
    long s = text ? strtol(text, &end, 10) : 0;
    if (!text) {
        return QUIRE_OK;
    }
    if (*end || s < 1 || s > 86400) {
        return err_set(err, QUIRE_INVALID, -1, "HF_HUB_DOWNLOAD_TIMEOUT %s: must be seconds, from 1 to 86400",
                       text);
    }
    *out = (int32_t)s;
    return QUIRE_OK;
}

quire_err hub_open(const cli_options *o, hub_setup *out, quire_error *err) {
    const cli_environment *env = &o->environment;
    *out = (hub_setup){.token = {0}};
    quire_hub_options_init(&out->options);
    out->options.cache = o->download_dir ? o->download_dir : env->hub_cache;
    out->options.endpoint = env->hub_endpoint;
    out->options.ca_file = env->hub_ca_file;
    out->options.offline = o->offline || env->hub_offline;
    TRY(hub_find_token(o, &out->token, err));
    /* an empty flag is passed on, to be refused */
    out->options.token = out->token.n > 0 ? out->token.p : o->hf_token ? "" : NULL;
    return read_timeout(env->hub_timeout, &out->options.stall_s, err);
}

void hub_close(hub_setup *s) {
    strbuf_deinit(&s->token);
}

/* ---- pulls ---- */

static quire_err hub_fetch_kind(const cli_options *o, const char *name, quire_hub_when when, bool is_adapter,
                                char **path, quire_error *err) {
    hub_setup s;
    pull_progress shown;
    quire_err e = hub_open(o, &s, err);
    if (e == QUIRE_OK) {
        pull_progress_init(&shown, name, o->quiet, o->environment.plain_terminal);
        s.options.progress = pull_progress_show;
        s.options.user = &shown;
        s.options.is_adapter = is_adapter;
        e = quire_hub_pull(&s.options, name, when, path, err);
        pull_progress_end(&shown, e == QUIRE_OK);
    }
    hub_close(&s);
    return e;
}

quire_err hub_fetch_model(const cli_options *o, const char *name, quire_hub_when when, char **path,
                          quire_error *err) {
    return hub_fetch_kind(o, name, when, false, path, err);
}

/* Writes the model's name with --hf-file and --revision appended. */
static quire_err whole_name(const cli_options *o, strbuf *out, quire_error *err) {
    const char *model = o->engine.model;
    if ((o->hf_file && strchr(model, ':')) || (o->revision && strchr(model, '@'))) {
        return err_set(err, QUIRE_INVALID, -1, "%s: already names its %s; leave %s out", model,
                       o->hf_file && strchr(model, ':') ? "file" : "revision",
                       o->hf_file && strchr(model, ':') ? "--hf-file" : "--revision");
    }
    const char *at = strchr(model, '@');
    size_t n = at ? (size_t)(at - model) : strlen(model);
    quire_err e =
        strbuf_addf(out, "%.*s%s%s%s%s%s", (int)n, model, o->hf_file ? ":" : "", o->hf_file ? o->hf_file : "",
                    at ? at : "", o->revision ? "@" : "", o->revision ? o->revision : "");
    return err_set(err, e, -1, "%s: out of memory", model);
}

bool hub_is_name(const char *model) {
    return access(model, F_OK) != 0 && quire_hub_is_name(model);
}

/* Adds to an error that no local file has the name, which may be meant as a path. */
static quire_err hub_explain(quire_err e, quire_error *err) {
    return e == QUIRE_NOT_FOUND || e == QUIRE_IO
               ? err_prefix(err, e, "there is no such local file; on the hub")
               : e;
}

void hub_name_server(cli_options *o) {
    assert(o != NULL);
    const char *model = o->engine.model;
    if (model != NULL && (o->hf_repo || hub_is_name(model)) && o->server.n_served_model_names == 0) {
        o->served_names[0] = model;
        o->server.n_served_model_names = 1;
        o->server.served_model_names = o->served_names;
    }
}

static quire_err hub_resolve_model(cli_options *o, quire_error *err) {
    const char *model = o->engine.model;
    strbuf name = {0};
    if (!o->hf_repo && !hub_is_name(model)) {
        return o->hf_file || o->revision
                   ? err_set(err, QUIRE_INVALID, -1,
                             "%s: --hf-file and --revision need a name on the hub, ORG/NAME", model)
                   : QUIRE_OK;
    }
    quire_err e = whole_name(o, &name, err);
    TRY_DONE(e, hub_fetch_model(o, name.p, QUIRE_HUB_MISSING, &o->model_path, err));
done:
    strbuf_deinit(&name);
    if (e != QUIRE_OK) {
        return o->hf_repo ? e : hub_explain(e, err);
    }
    o->engine.model = o->model_path;
    return QUIRE_OK;
}

/* Writes the object with member `name` set to `path`. */
static quire_err replace_member(const json_value *config, const char *name, const char *path, strbuf *out) {
    json_out o = {.to = out};
    json_begin(&o, '{');
    for (json_member m = {0}; json_next(config, &m);) {
        json_name(&o, m.name);
        if (strcmp(m.name, name) == 0) {
            json_cstr(&o, path);
        } else {
            json_add(&o, m.value);
        }
    }
    json_end(&o, '}');
    return o.err;
}

/* Replaces the draft model's name in --speculative-config by its path. Syntax errors are
 * left to the option's parser. */
static quire_err resolve_draft(cli_options *o, quire_error *err) {
    json_value *config =
        o->engine.speculative_config ? json_document(str_of(o->engine.speculative_config)) : NULL;
    str model = json_get_str(config, "model");
    char *name = mem_dup(model.p, model.n), *path = NULL;
    quire_err e = mem_check_for(name, "a model's name", err);
    if (e == QUIRE_OK && strlen(name) == model.n && hub_is_name(name)) {
        TRY_DONE(e, hub_explain(hub_fetch_model(o, name, QUIRE_HUB_MISSING, &path, err), err));
        TRY_DONE(e, replace_member(config, "model", path, &o->draft_config));
        o->engine.speculative_config = o->draft_config.p;
    }
done:
    quire_free(path);
    mem_free(name);
    json_drop(config);
    return e;
}

/* Writes a line of --lora-modules, NAME=ORG/NAME or an object, with a hub name replaced
 * by its path. Syntax errors are left to the option's parser. */
static quire_err resolve_adapter(const cli_options *o, str line, strbuf *out, quire_error *err) {
    json_value *object = line.n > 0 && line.p[0] == '{' ? json_document(line) : NULL;
    const char *equals = object == NULL && line.n > 0 ? memchr(line.p, '=', line.n) : NULL;
    const size_t n_before = equals != NULL ? (size_t)(equals - line.p) + 1 : 0;
    str given = object != NULL ? json_get_str(object, "path") : (str){line.p + n_before, line.n - n_before};
    char *name = mem_dup(given.p, given.n), *path = NULL;
    quire_err e = mem_check_for(name, "an adapter's name", err);
    const bool is_name = e == QUIRE_OK && (object != NULL || equals != NULL) && hub_is_name(name);
    if (is_name) {
        e = hub_explain(hub_fetch_kind(o, name, QUIRE_HUB_MISSING, true, &path, err), err);
    }
    if (e == QUIRE_OK) {
        e = !is_name         ? strbuf_add(out, line.p, line.n)
            : object != NULL ? replace_member(object, "path", path, out)
                             : strbuf_addf(out, "%.*s%s", (int)n_before, line.p, path);
        e = err_set(err, e != QUIRE_OK ? e : strbuf_add_str(out, "\n"), -1, "out of memory for adapters");
    }
    quire_free(path);
    mem_free(name);
    json_drop(object);
    return e;
}

static quire_err resolve_adapters(cli_options *o, quire_error *err) {
    strbuf all = {0};
    quire_err e = QUIRE_OK;
    for (const char *p = o->engine.lora_modules; p != NULL && *p != '\0' && e == QUIRE_OK;) {
        const size_t n = strcspn(p, "\n");
        e = resolve_adapter(o, (str){p, n}, &all, err);
        p += n + (p[n] == '\n');
    }
    if (e != QUIRE_OK || all.n == 0) {
        strbuf_deinit(&all);
        return e;
    }
    strbuf_deinit(&o->lora_modules);
    o->lora_modules = all;
    o->engine.lora_modules = all.p;
    return QUIRE_OK;
}

quire_err hub_resolve_models(cli_options *o, quire_error *err) {
    assert(o != NULL);
    if (o->engine.model) {
        TRY(hub_resolve_model(o, err));
    }
    TRY(resolve_draft(o, err));
    return resolve_adapters(o, err);
}
