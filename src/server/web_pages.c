#include "server/web_pages.h"

#include <assert.h>
#include <ctype.h>
#include <openssl/evp.h>

#include "base/clock.h"
#include "base/sha256.h"

/* ---- the pages: files inside the program ---- */

/* Embeds a file and a 0 byte through the assembler; the build sets QUIRE_PAGES_PATH. */
#define EMBED(symbol, file)                                                                                  \
    __asm__(".section .rodata, \"a\"\n"                                                                      \
            ".global " symbol "\n" symbol ":\n"                                                              \
            ".incbin \"" QUIRE_PAGES_PATH "/" file "\"\n"                                                    \
            ".global " symbol "_end\n" symbol "_end:\n"                                                      \
            ".byte 0\n"                                                                                      \
            ".previous\n")

EMBED("quire_home_page", "home.html");
EMBED("quire_pool_page", "pool.html");
EMBED("quire_sandbox_texts", "sandbox.txt");
EMBED("quire_openapi_notes", "openapi.json");

extern const char quire_home_page[], quire_home_page_end[], quire_pool_page[], quire_pool_page_end[],
    quire_sandbox_texts[], quire_openapi_notes[];

str page_body(web_page page) {
    assert(page == PAGE_HOME || page == PAGE_POOL);
    return page == PAGE_HOME ? (str){quire_home_page, (size_t)(quire_home_page_end - quire_home_page)}
                             : (str){quire_pool_page, (size_t)(quire_pool_page_end - quire_pool_page)};
}

const char *page_sandbox_texts(void) {
    return quire_sandbox_texts;
}

const char *page_openapi_notes(void) {
    return quire_openapi_notes;
}

/* Appends a directive with 'sha256-...' of the text between an opening tag and its end;
 * nothing if html has no such tag. */
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

quire_err page_headers(web_page page, strbuf *to) {
    const char *html = page_body(page).p;
    TRY(strbuf_add_str(
        to,
        "Content-Security-Policy: default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"));
    TRY(page_add_hash(to, html, "script-src", "<script>", "</script>"));
    TRY(page_add_hash(to, html, "style-src", "<style>", "</style>"));
    TRY(strbuf_add_str(to, "\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: "
                           "no-referrer\r\nCache-Control: no-cache\r\n"));
    return page == PAGE_HOME ? strbuf_add_str(to, HOME_VARY) : QUIRE_OK;
}

/* ---- / as JSON ---- */

/* Whether host has only characters that are not special in HTML or a shell. */
static bool home_is_plain_host(str host) {
    bool is = host.n > 0 && host.n < 256 && host_parse(host, NULL) != HOST_MALFORMED;
    for (size_t i = 0; is && i < host.n; i++) {
        is = isalnum((unsigned char)host.p[i]) || (host.p[i] != '\0' && strchr(".-:_[]", host.p[i]) != NULL);
    }
    return is;
}

/* Appends "http://HOST/v1", with the client's name for the host unless it is unusual. */
static quire_err home_add_base_url(const server *s, str host, strbuf *to) {
    if (home_is_plain_host(host)) {
        return strbuf_addf(to, "http://%.*s/v1", (int)host.n, host.p);
    }
    return s->socket_file != NULL ? strbuf_add_str(to, "http://localhost/v1")
                                  : strbuf_addf(to, "%s/v1", s->url);
}

static void home_write_base_url(const server *s, str host, json_out *o) {
    strbuf url = {0};
    quire_err e = home_add_base_url(s, host, &url);
    o->err = o->err != QUIRE_OK ? o->err : e;
    json_cstr(json_name(o, "base_url"), url.p);
    strbuf_deinit(&url);
}

void home_write_json(const server *s, str host, path_at known, json_out *o) {
    static const char *const links[] = {"/pool", "/metrics", "/health", "/ready", "/v1/models"};
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
    home_write_base_url(s, host, o);
    json_begin(json_name(o, "links"), '[');
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        json_cstr(json_item(o), links[i]);
    }
    json_end(o, ']');
    json_begin(json_name(o, "paths"), '[');
    for (size_t i = 0; (path = known(i)) != NULL; i++) {
        json_cstr(json_item(o), path);
    }
    json_end(o, ']');
    json_end(o, '}');
}
