#include "server/home.h"

#include <inttypes.h>

#include "base/clock.h"

#define TITLE "Quire"
#define STYLE "body{font:16px/1.5 system-ui,sans-serif;max-width:40em;margin:3em auto;padding:0 1em;color:#222;background:#fff}" \
              "dt{float:left;clear:left;width:11em;color:#666}dd{margin:0 0 .3em 11em;overflow-wrap:anywhere}"

static const struct {
    const char *path, *meaning;
} links[] = {
    {"/pool", "the pages of the KV cache, as they change"}, {"/metrics", "counters for Prometheus"},
    {"/health", "whether the engine runs"},                 {"/v1/models", "the model, as OpenAI's API lists it"},
};

enum { N_LINKS = sizeof links / sizeof *links };

static quire_err add_escaped(strbuf *to, const char *text) {
    for (; *text != '\0'; text++) {
        const char *entity = *text == '&' ? "&amp;" : *text == '<' ? "&lt;" : *text == '>' ? "&gt;" : *text == '"' ? "&quot;" : NULL;
        TRY(entity != NULL ? strbuf_add_str(to, entity) : strbuf_add_char(to, *text));
    }
    return QUIRE_OK;
}

/* "3 d 04:05:06" */
static quire_err add_uptime(strbuf *to, int64_t s) {
    if (s >= 86400) {
        TRY(strbuf_addf(to, "%" PRId64 " d ", s / 86400));
    }
    return strbuf_addf(to, "%02d:%02d:%02d", (int)(s / 3600 % 24), (int)(s / 60 % 60), (int)(s % 60));
}

quire_err home_write_html(const server *s, strbuf *to) {
    quire_stats st;
    quire_engine_stats(s->engine, &st);
    TRY(strbuf_add_str(to, "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>" TITLE "</title>\n<style>" STYLE
                           "</style>\n<h1>" TITLE "</h1>\n<dl>\n<dt>model</dt><dd>"));
    TRY(add_escaped(to, s->model_name));
    TRY(strbuf_add_str(to, "</dd>\n<dt>version</dt><dd>" QUIRE_VERSION "</dd>\n<dt>uptime</dt><dd>"));
    TRY(add_uptime(to, clock_unix_s() - s->started_s));
    TRY(strbuf_addf(to, "</dd>\n<dt>sequences running</dt><dd>%" PRId64 "</dd>\n<dt>waiting</dt><dd>%" PRId64 "</dd>\n</dl>\n<ul>\n",
                    (int64_t)st.n_requests_running, (int64_t)st.n_requests_waiting));
    for (int i = 0; i < N_LINKS; i++) {
        TRY(strbuf_addf(to, "<li><a href=\"%s\">%s</a>: %s</li>\n", links[i].path, links[i].path, links[i].meaning));
    }
    TRY(strbuf_add_str(to, "</ul>\n"));
    if (auth_required(s->keys)) {
        TRY(strbuf_add_str(to, "<p>Requests below /v1 need an API key, sent as the header <code>Authorization: Bearer KEY</code>. "
                               "The page at /pool asks for one.</p>\n"));
    }
    return strbuf_add_str(to, "</html>\n");
}

void home_write_json(const server *s, json_out *o) {
    quire_stats st;
    quire_engine_stats(s->engine, &st);
    json_begin(o, '{');
    json_cstr(json_name(o, "model"), s->model_name);
    json_cstr(json_name(o, "version"), QUIRE_VERSION);
    json_int(json_name(o, "uptime_s"), clock_unix_s() - s->started_s);
    json_int(json_name(o, "running"), st.n_requests_running);
    json_int(json_name(o, "waiting"), st.n_requests_waiting);
    json_bool(json_name(o, "needs_key"), auth_required(s->keys));
    json_begin(json_name(o, "links"), '[');
    for (int i = 0; i < N_LINKS; i++) {
        json_cstr(json_item(o), links[i].path);
    }
    json_end(o, ']');
    json_end(o, '}');
}

quire_err home_write_headers(strbuf *to) {
    return page_write_headers("<style>" STYLE "</style>", to);
}
