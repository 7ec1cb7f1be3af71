#include "server/page.h"

#include <openssl/evp.h>

#include "base/mem.h"
#include "base/sha256.h"

/* The assembler includes the file; QUIRE_POOL_PAGE_PATH comes from the build. */
__asm__(".section .rodata, \"a\"\n"
        ".global quire_pool_page_begin\n"
        "quire_pool_page_begin:\n"
        ".incbin \"" QUIRE_POOL_PAGE_PATH "\"\n"
        ".global quire_pool_page_end\n"
        "quire_pool_page_end:\n"
        ".byte 0\n"
        ".previous\n");

extern const char quire_pool_page_begin[];
extern const char quire_pool_page_end[];

struct web_page {
    strbuf headers;
};

str page_body(const web_page *p) {
    (void)p;
    return (str){quire_pool_page_begin, (size_t)(quire_pool_page_end - quire_pool_page_begin)};
}

/* Adds the directive with 'sha256-...' of the text between an opening tag and its end;
 * nothing where html has no such tag. */
static quire_err add_hash(strbuf *to, const char *html, const char *directive, const char *open,
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

quire_err page_write_headers(const char *html, strbuf *to) {
    TRY(strbuf_add_str(
        to,
        "Content-Security-Policy: default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"));
    TRY(add_hash(to, html, "script-src", "<script>", "</script>"));
    TRY(add_hash(to, html, "style-src", "<style>", "</style>"));
    return strbuf_add_str(
        to,
        "\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-cache\r\n");
}

quire_err page_open(web_page **out) {
    web_page *p = mem_new(1, sizeof *p);
    TRY(mem_check(p));
    quire_err e = page_write_headers(quire_pool_page_begin, &p->headers);
    if (e != QUIRE_OK) {
        page_close(p);
        return e;
    }
    *out = p;
    return QUIRE_OK;
}

void page_close(web_page *p) {
    if (p != NULL) {
        strbuf_deinit(&p->headers);
        mem_free(p);
    }
}

const char *page_headers(const web_page *p) {
    return p->headers.p;
}
