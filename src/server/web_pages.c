#include "server/web_pages.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <openssl/evp.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/sha256.h"

/* ---- /pool ---- */

/* The assembler includes a file and a 0 byte; QUIRE_PAGES_PATH comes from the build. */
#define EMBED(symbol, file)                                                                                  \
    __asm__(".section .rodata, \"a\"\n"                                                                      \
            ".global " symbol "\n" symbol ":\n"                                                              \
            ".incbin \"" QUIRE_PAGES_PATH "/" file "\"\n"                                                    \
            ".global " symbol "_end\n" symbol "_end:\n"                                                      \
            ".byte 0\n"                                                                                      \
            ".previous\n")

EMBED("quire_pool_page", "pool.html");
EMBED("quire_sandbox_texts", "sandbox.txt");

extern const char quire_pool_page[], quire_pool_page_end[], quire_sandbox_texts[];

str page_body(void) {
    return (str){quire_pool_page, (size_t)(quire_pool_page_end - quire_pool_page)};
}

const char *page_sandbox_texts(void) {
    return quire_sandbox_texts;
}

/* Adds the directive with 'sha256-...' of the text between an opening tag and its end;
 * nothing where html has no such tag. */
static quire_err page_add_hash(strbuf *to, const char *html, const char *directive, const char *open,
                               const char *close) {
    uint8_t digest[SHA256_BYTES], text[64];
    const char *from = strstr(html, open);
    const char *end = from == NULL ? NULL : strstr(from, close);
    if (end == NULL) {
        return QUIRE_OK;
    }
    from += strlen(open);
    sha256(from, (size_t)(end - from), digest);
    EVP_EncodeBlock(text, digest, SHA256_BYTES);
    return strbuf_addf(to, "; %s 'sha256-%s'", directive, (const char *)text);
}

/* Writes the header lines of an HTML page: a Content-Security-Policy that allows the
 * script and the style in `html`, where it has them, data: images and requests to this
 * server, and nothing else. They occur once at most, in tags without attributes. */
static quire_err page_write_headers(const char *html, strbuf *to) {
    TRY(strbuf_add_str(
        to,
        "Content-Security-Policy: default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"));
    TRY(page_add_hash(to, html, "script-src", "<script>", "</script>"));
    TRY(page_add_hash(to, html, "style-src", "<style>", "</style>"));
    return strbuf_add_str(
        to,
        "\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-cache\r\n");
}

quire_err page_headers(strbuf *to) {
    return page_write_headers(quire_pool_page, to);
}

/* ---- / ---- */

#define TITLE "Quire"
#define STYLE                                                                                                \
    "body{font:16px/1.5 system-ui,sans-serif;max-width:40em;margin:3em auto;padding:0 "                      \
    "1em;color:#222;background:#fff}"                                                                        \
    "pre{padding:.6em;background:#f4f4f4;white-space:pre-wrap;overflow-wrap:anywhere}"                       \
    "dt{float:left;clear:left;width:11em;color:#666}dd{margin:0 0 .3em 11em;overflow-wrap:anywhere}"

static const struct {
    const char *path, *meaning;
} links[] = {
    {"/pool", "the pages of the KV cache, as they change"},
    {"/metrics", "counters for Prometheus"},
    {"/health", "whether the engine runs"},
    {"/ready", "whether it takes requests"},
    {"/v1/models", "the model, as OpenAI's API lists it"},
};

enum { N_LINKS = sizeof links / sizeof *links };

/* True for a host and port in plain characters, which mean nothing to HTML or a shell. */
static bool home_is_plain_host(str host) {
    bool is = host.n > 0 && host.n < 256 && host_parse(host, NULL) != HOST_MALFORMED;
    for (size_t i = 0; is && i < host.n; i++) {
        is = isalnum((unsigned char)host.p[i]) || (host.p[i] != '\0' && strchr(".-:_[]", host.p[i]) != NULL);
    }
    return is;
}

/* "http://HOST/v1", by the client's name for this server unless that is a strange one. */
static quire_err home_add_base_url(const server *s, str host, strbuf *to) {
    if (home_is_plain_host(host)) {
        return strbuf_addf(to, "http://%.*s/v1", (int)host.n, host.p);
    }
    return s->socket_file != NULL ? strbuf_add_str(to, "http://localhost/v1")
                                  : strbuf_addf(to, "%s/v1", s->url);
}

/* Appends a text between single quotes of a shell. */
static quire_err home_add_shell_text(strbuf *to, const strbuf *text) {
    TRY(strbuf_add_char(to, '\''));
    for (size_t i = 0; i < text->n; i++) {
        TRY(text->p[i] == '\'' ? strbuf_add_str(to, "'\\''") : strbuf_add_char(to, text->p[i]));
    }
    return strbuf_add_char(to, '\'');
}

/* body: scratch. */
static quire_err home_write_curl(const server *s, str host, strbuf *body, strbuf *out) {
    json_out o = {.to = body};
    json_begin(&o, '{');
    json_cstr(json_name(&o, "model"), s->model_name);
    json_raw(json_name(&o, "messages"), "[{\"role\":\"user\",\"content\":\"Hello!\"}]");
    json_end(&o, '}');
    TRY(o.err);
    TRY(strbuf_add_str(out, s->socket_file != NULL ? "curl --unix-socket FILE " : "curl "));
    TRY(home_add_base_url(s, host, out));
    TRY(strbuf_add_str(out, "/chat/completions -H 'Content-Type: application/json' "));
    if (auth_required(s->keys)) {
        TRY(strbuf_add_str(out, "-H \"Authorization: Bearer $KEY\" "));
    }
    TRY(strbuf_add_str(out, "-d "));
    return home_add_shell_text(out, body);
}

static quire_err home_add_escaped(strbuf *to, const char *text) {
    for (; *text != '\0'; text++) {
        const char *entity = *text == '&'   ? "&amp;"
                             : *text == '<' ? "&lt;"
                             : *text == '>' ? "&gt;"
                             : *text == '"' ? "&quot;"
                                            : NULL;
        TRY(entity != NULL ? strbuf_add_str(to, entity) : strbuf_add_char(to, *text));
    }
    return QUIRE_OK;
}

/* "3 d 04:05:06" */
static quire_err home_add_uptime(strbuf *to, int64_t s) {
    if (s >= 86400) {
        TRY(strbuf_addf(to, "%" PRId64 " d ", s / 86400));
    }
    return strbuf_addf(to, "%02d:%02d:%02d", (int)(s / 3600 % 24), (int)(s / 60 % 60), (int)(s % 60));
}

/* What a client is given: the base URL, and a request to try. text, body: scratch. */
static quire_err home_add_first_steps(const server *s, const home_request *r, strbuf *text, strbuf *body,
                                      strbuf *to) {
    TRY(home_add_base_url(s, r->host, text));
    TRY(strbuf_add_str(to, "<p>Base URL for OpenAI's clients: <code>"));
    TRY(home_add_escaped(to, text->p));
    strbuf_clear(text);
    TRY(home_write_curl(s, r->host, body, text));
    TRY(strbuf_add_str(to, "</code></p>\n<pre>"));
    TRY(home_add_escaped(to, text->p));
    return strbuf_add_str(to, "</pre>\n");
}

static quire_err home_add_paths(const home_request *r, strbuf *to) {
    const char *path;
    TRY(strbuf_add_str(to, "<p>All paths:"));
    for (size_t i = 0; (path = r->known(i)) != NULL; i++) {
        TRY(strbuf_addf(to, " <code>%s%s</code>", path, i > 0 && path[strlen(path) - 1] == '/' ? ".." : ""));
    }
    return strbuf_add_str(to, "</p>\n");
}

quire_err home_write_html(const server *s, const home_request *r, strbuf *to) {
    quire_stats st;
    quire_engine_stats(s->engine, &st);
    TRY(strbuf_add_str(to,
                       "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>" TITLE
                       "</title>\n<style>" STYLE "</style>\n<h1>" TITLE "</h1>\n<dl>\n<dt>model</dt><dd>"));
    TRY(home_add_escaped(to, s->model_name));
    TRY(strbuf_add_str(to, "</dd>\n<dt>version</dt><dd>" QUIRE_VERSION "</dd>\n<dt>uptime</dt><dd>"));
    TRY(home_add_uptime(to, clock_unix_s() - s->started_s));
    TRY(strbuf_addf(to,
                    "</dd>\n<dt>sequences running</dt><dd>%" PRId64 "</dd>\n<dt>waiting</dt><dd>%" PRId64
                    "</dd>\n</dl>\n",
                    (int64_t)st.n_requests_running, (int64_t)st.n_requests_waiting));
    strbuf text = {0}, body = {0};
    quire_err e = home_add_first_steps(s, r, &text, &body, to);
    strbuf_deinit(&text);
    strbuf_deinit(&body);
    TRY(e);
    TRY(strbuf_add_str(to, "<ul>\n"));
    for (int i = 0; i < N_LINKS; i++) {
        TRY(strbuf_addf(to, "<li><a href=\"%s\">%s</a>: %s</li>\n", links[i].path, links[i].path,
                        links[i].meaning));
    }
    TRY(strbuf_add_str(to, "</ul>\n"));
    TRY(home_add_paths(r, to));
    if (auth_required(s->keys)) {
        TRY(strbuf_add_str(to, "<p>Requests below /v1 need an API key, sent as the header "
                               "<code>Authorization: Bearer KEY</code>. "
                               "The page at /pool asks for one.</p>\n"));
    }
    return strbuf_add_str(to, "</html>\n");
}

static void home_write_base_url(const server *s, str host, json_out *o) {
    strbuf url = {0};
    quire_err e = home_add_base_url(s, host, &url);
    o->err = o->err != QUIRE_OK ? o->err : e;
    json_cstr(json_name(o, "base_url"), url.p);
    strbuf_deinit(&url);
}

void home_write_json(const server *s, const home_request *r, json_out *o) {
    quire_stats st;
    const char *path;
    quire_engine_stats(s->engine, &st);
    json_begin(o, '{');
    json_cstr(json_name(o, "model"), s->model_name);
    json_cstr(json_name(o, "version"), QUIRE_VERSION);
    json_int(json_name(o, "uptime_s"), clock_unix_s() - s->started_s);
    json_int(json_name(o, "running"), st.n_requests_running);
    json_int(json_name(o, "waiting"), st.n_requests_waiting);
    json_bool(json_name(o, "needs_key"), auth_required(s->keys));
    home_write_base_url(s, r->host, o);
    json_begin(json_name(o, "links"), '[');
    for (int i = 0; i < N_LINKS; i++) {
        json_cstr(json_item(o), links[i].path);
    }
    json_end(o, ']');
    json_begin(json_name(o, "paths"), '[');
    for (size_t i = 0; (path = r->known(i)) != NULL; i++) {
        json_cstr(json_item(o), path);
    }
    json_end(o, ']');
    json_end(o, '}');
}

quire_err home_write_headers(strbuf *to) {
    return page_write_headers("<style>" STYLE "</style>", to);
}
