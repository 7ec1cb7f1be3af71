#include "server/host.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

/* True for ":8000" or nothing. */
static bool is_port(str s) {
    for (size_t i = 1; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9') {
            return false;
        }
    }
    return s.n == 0 || (s.p[0] == ':' && s.n <= sizeof ":65535" - 1);
}

static host_kind parse_v6(const char *text) {
    struct in6_addr at;
    if (inet_pton(AF_INET6, text, &at) != 1) {
        return HOST_MALFORMED;
    }
    return IN6_IS_ADDR_LOOPBACK(&at) ? HOST_LOOPBACK : HOST_ADDRESS;
}

static host_kind parse_name(const char *text) {
    struct in_addr at;
    if (inet_pton(AF_INET, text, &at) == 1) {
        return ntohl(at.s_addr) >> 24 == 127 ? HOST_LOOPBACK : HOST_ADDRESS;
    }
    if (strcasecmp(text, "localhost") == 0) {
        return HOST_LOOPBACK;
    }
    return strchr(text, '.') != NULL ? HOST_NAME : HOST_LABEL;
}

host_kind host_parse(str header, str *name) {
    char text[256];
    if (header.n == 0) {
        return HOST_MALFORMED;
    }
    bool bracketed = header.p[0] == '[';
    const char *end = memchr(header.p, bracketed ? ']' : ':', header.n);
    if (bracketed && end == NULL) {
        return HOST_MALFORMED;
    }
    str host = {header.p + bracketed, end == NULL ? header.n : (size_t)(end - header.p) - bracketed};
    str port =
        end == NULL ? (str){"", 0} : (str){end + bracketed, header.n - (size_t)(end - header.p) - bracketed};
    if (host.n == 0 || host.n >= sizeof text || memchr(host.p, '\0', host.n) != NULL || !is_port(port)) {
        return HOST_MALFORMED;
    }
    memcpy(text, host.p, host.n);
    text[host.n] = '\0';
    if (name != NULL) {
        *name = host;
    }
    return bracketed ? parse_v6(text) : parse_name(text);
}
