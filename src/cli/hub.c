#include "cli/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/pull_progress.h"
#include "json/json_out.h"

#define MAX_TOKEN_FILE 4096

/* ---- options ---- */

/* Removes white space around a token. */
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

/* Reads the token's file, if there is one. */
static quire_err hub_read_token(const char *path, strbuf *out, quire_error *err) {
    out->max = MAX_TOKEN_FILE;
    quire_err e = path ? files_read(path, out, err) : QUIRE_NOT_FOUND;
    if (e != QUIRE_OK && e != QUIRE_NOT_FOUND) {
        return err_prefix(err, e, "the hub's token");
    }
    return QUIRE_OK;
}

/* The flag's token, else that of the variable, else the file's. Empty: there is none. */
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
    /* an empty flag is refused */
    out->options.token = out->token.n > 0 ? out->token.p : o->hf_token ? "" : NULL;
    return read_timeout(env->hub_timeout, &out->options.stall_s, err);
}

void hub_close(hub_setup *s) {
    strbuf_deinit(&s->token);
}

/* ---- pulls ---- */

quire_err hub_fetch_model(const cli_options *o, const char *name, quire_hub_when when, char **path,
                          quire_error *err) {
    hub_setup s;
    pull_progress shown;
    quire_err e = hub_open(o, &s, err);
    if (e == QUIRE_OK) {
        pull_progress_init(&shown, name, o->quiet, o->environment.plain_terminal);
        s.options.progress = pull_progress_show;
        s.options.user = &shown;
        e = quire_hub_pull(&s.options, name, when, path, err);
        pull_progress_end(&shown, e == QUIRE_OK);
    }
    hub_close(&s);
    return e;
}

/* Writes the name with what --hf-file and --revision add to it. */
static quire_err whole_name(const cli_options *o, strbuf *out, quire_error *err) {
    const char *model = o->engine.model;
    if ((o->hf_file && strchr(model, ':')) || (o->revision && strchr(model, '@'))) {
        return err_set(err, QUIRE_INVALID, -1, "%s: names its %s already; leave %s out", model,
                       o->hf_file && strchr(model, ':') ? "file" : "revision",
                       o->hf_file && strchr(model, ':') ? "--hf-file" : "--revision");
    }
    const char *at = strchr(model, '@');
    size_t n = at ? (size_t)(at - model) : strlen(model);
    quire_err e =
        strbuf_addf(out, "%.*s%s%s%s%s%s", (int)n, model, o->hf_file ? ":" : "", o->hf_file ? o->hf_file : "",
                    at ? at : "", o->revision ? "@" : "", o->revision ? o->revision : "");
    return e == QUIRE_OK ? e : err_set(err, e, -1, "%s: out of memory", model);
}

/* Whether a model is one of the hub: no file here, and a name. */
static bool hub_is_name(const char *model) {
    return access(model, F_OK) != 0 && quire_hub_is_name(model);
}

/* Says of a failure that the name may have been meant as a path. */
static quire_err hub_explain(quire_err e, quire_error *err) {
    return e == QUIRE_NOT_FOUND || e == QUIRE_IO
               ? err_prefix(err, e, "there is no such file here; at the hub")
               : e;
}

void hub_name_server(cli_options *o) {
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
                             "%s: --hf-file and --revision go with ORG/NAME of the hub", model)
                   : QUIRE_OK;
    }
    quire_err e = whole_name(o, &name, err);
    e = e == QUIRE_OK ? hub_fetch_model(o, name.p, QUIRE_HUB_MISSING, &o->model_path, err) : e;
    strbuf_deinit(&name);
    if (e != QUIRE_OK) {
        return o->hf_repo ? e : hub_explain(e, err);
    }
    o->engine.model = o->model_path;
    return QUIRE_OK;
}

/* Writes the object with another "model". */
static quire_err replace_model(const json_value *config, const char *path, strbuf *out) {
    json_out o = {.to = out};
    json_begin(&o, '{');
    for (json_member m = {0}; json_next(config, &m);) {
        json_name(&o, m.name);
        if (strcmp(m.name, "model") == 0) {
            json_cstr(&o, path);
        } else {
            json_add(&o, m.value);
        }
    }
    json_end(&o, '}');
    return o.err;
}

/* The draft model of --speculative-config; what is wrong with that is said where it is
 * read. */
static quire_err resolve_draft(cli_options *o, quire_error *err) {
    json_value *config =
        o->engine.speculative_config ? json_document(str_of(o->engine.speculative_config)) : NULL;
    str model = json_get_str(config, "model");
    char *name = mem_dup(model.p, model.n), *path = NULL;
    quire_err e = mem_check_for(name, "a model's name", err);
    if (e == QUIRE_OK && strlen(name) == model.n && hub_is_name(name)) {
        e = hub_fetch_model(o, name, QUIRE_HUB_MISSING, &path, err);
        e = e == QUIRE_OK ? replace_model(config, path, &o->draft_config) : hub_explain(e, err);
        o->engine.speculative_config = e == QUIRE_OK ? o->draft_config.p : o->engine.speculative_config;
    }
    quire_free(path);
    mem_free(name);
    json_drop(config);
    return e;
}

quire_err hub_resolve_models(cli_options *o, quire_error *err) {
    TRY(o->engine.model ? hub_resolve_model(o, err) : QUIRE_OK);
    return resolve_draft(o, err);
}
