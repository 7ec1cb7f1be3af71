#include "server/auth.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/sha256.h"

#define MAX_FILE_BYTES (16u << 20)

typedef struct key {
    char *tenant; /* owned */
    uint8_t digest[SHA256_BYTES];
} key;

typedef struct key_set {
    key *keys;
    size_t n, cap;
} key_set;

struct auth {
    pthread_rwlock_t lock; /* guards `set` */
    key_set set;
    bool has_operator;
    uint8_t operator_digest[SHA256_BYTES];
};

static quire_err auth_add_key(key_set *a, str tenant, str text, quire_error *err) {
    char *name = mem_dup(tenant.p, tenant.n);
    if (name == NULL || mem_grow(&a->keys, &a->cap, a->n + 1, sizeof(key)) != QUIRE_OK) {
        mem_free(name);
        return err_set(err, QUIRE_NO_MEMORY, -1, "API keys: out of memory");
    }
    sha256(text.p, text.n, a->keys[a->n].digest);
    a->keys[a->n++].tenant = name;
    return QUIRE_OK;
}

static quire_err auth_read_file(const char *path, strbuf *text, quire_error *err) {
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        return err_set(err, QUIRE_IO, -1, "%s: %s", path, strerror(errno));
    }
    char block[4096];
    size_t n;
    quire_err e = QUIRE_OK;
    text->max = MAX_FILE_BYTES;
    while (e == QUIRE_OK && (n = fread(block, 1, sizeof(block), f)) > 0) {
        e = strbuf_add(text, block, n);
    }
    bool failed = ferror(f) != 0;
    fclose(f);
    OPENSSL_cleanse(block, sizeof(block));
    if (failed) {
        return err_set(err, QUIRE_IO, -1, "%s: reading failed", path);
    }
    return err_set(err, e, -1, "%s: more than %u bytes of keys", path, MAX_FILE_BYTES);
}

static bool auth_is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Trims white space, which a header cannot carry. */
static str auth_trim(str s) {
    while (s.n > 0 && auth_is_space(s.p[0])) {
        s = (str){s.p + 1, s.n - 1};
    }
    while (s.n > 0 && auth_is_space(s.p[s.n - 1])) {
        s.n--;
    }
    return s;
}

static quire_err auth_add_line(key_set *a, const char *path, int32_t number, str line, quire_error *err) {
    line = auth_trim(line);
    if (line.n == 0 || line.p[0] == '#') {
        return QUIRE_OK;
    }
    const char *colon = memchr(line.p, ':', line.n);
    if (colon == NULL) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: line %d: expected tenant:key", path, (int)number);
    }
    str tenant = auth_trim((str){line.p, (size_t)(colon - line.p)});
    str text = auth_trim((str){colon + 1, (size_t)(line.p + line.n - colon) - 1});
    if (tenant.n > QUIRE_TENANT_BYTES) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%s: line %d: the tenant's name has %zu bytes; at most %d are allowed", path,
                       (int)number, tenant.n, QUIRE_TENANT_BYTES);
    }
    if (tenant.n == 0 || text.n == 0) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: line %d: expected tenant:key", path, (int)number);
    }
    return auth_add_key(a, tenant, text, err);
}

static quire_err auth_add_lines(key_set *a, const char *path, const strbuf *text, quire_error *err) {
    size_t start = 0;
    int32_t number = 1;
    while (start < text->n) {
        const char *end = memchr(text->p + start, '\n', text->n - start);
        size_t n = end == NULL ? text->n - start : (size_t)(end - text->p) - start;
        TRY(auth_add_line(a, path, number++, (str){text->p + start, n}, err));
        start += n + 1;
    }
    return a->n > 0 ? QUIRE_OK
                    : err_set(err, QUIRE_BAD_FILE, -1,
                              "%s: has no keys: expected lines of the form tenant:key", path);
}

static quire_err auth_add_file(key_set *a, const char *path, quire_error *err) {
    strbuf text = {0};
    quire_err e = auth_read_file(path, &text, err);
    if (e == QUIRE_OK) {
        e = auth_add_lines(a, path, &text, err);
    }
    if (text.p != NULL) {
        OPENSSL_cleanse(text.p, text.n);
    }
    strbuf_deinit(&text);
    return e;
}

/* Trims a key that an option gives, and computes its digest. */
static quire_err auth_digest_of_option(const char *option, const char *text, str *trimmed,
                                       uint8_t digest[SHA256_BYTES], quire_error *err) {
    *trimmed = auth_trim(str_of(text));
    sha256(trimmed->p, trimmed->n, digest);
    return trimmed->n > 0 ? QUIRE_OK : err_set(err, QUIRE_INVALID, -1, "%s: the key is empty", option);
}

/* Adds a key without a tenant's name: its tenant is named by its digest. */
static quire_err auth_add_nameless(key_set *a, const char *text, quire_error *err) {
    uint8_t d[SHA256_BYTES];
    char name[32];
    str trimmed;
    TRY(auth_digest_of_option("--api-key", text, &trimmed, d, err));
    snprintf(name, sizeof name, "key-%02x%02x%02x%02x%02x%02x%02x%02x", d[0], d[1], d[2], d[3], d[4], d[5],
             d[6], d[7]);
    return auth_add_key(a, str_of(name), trimmed, err);
}

static void auth_drop_keys(key_set *a) {
    for (size_t i = 0; i < a->n; i++) {
        mem_free(a->keys[i].tenant);
    }
    mem_free(a->keys);
    *a = (key_set){0};
}

/* Loads the keys of options and file. On failure `a` has some of them. */
static quire_err auth_load_keys(key_set *a, const char *const *keys, int32_t n, const char *file,
                                quire_error *err) {
    for (int32_t i = 0; i < n; i++) {
        TRY(auth_add_nameless(a, keys[i], err));
    }
    return file != NULL ? auth_add_file(a, file, err) : QUIRE_OK;
}

quire_err auth_load(const char *const *keys, int32_t n, const char *file, auth **out, quire_error *err) {
    *out = NULL;
    auth *a = mem_new(1, sizeof(*a));
    TRY(mem_check_for(a, "API keys", err));
    pthread_rwlock_init(&a->lock, NULL);
    quire_err e = auth_load_keys(&a->set, keys, n, file, err);
    if (e != QUIRE_OK) {
        auth_free(a);
        return e;
    }
    *out = a;
    return QUIRE_OK;
}

void auth_free(auth *a) {
    if (a == NULL) {
        return;
    }
    auth_drop_keys(&a->set);
    pthread_rwlock_destroy(&a->lock);
    mem_free(a);
}

/* Locks the set for reading. The cast of const is safe: the caller changes no keys. */
static const key_set *auth_lock(const auth *a) {
    pthread_rwlock_rdlock((pthread_rwlock_t *)&a->lock);
    return &a->set;
}

static void auth_unlock(const auth *a) {
    pthread_rwlock_unlock((pthread_rwlock_t *)&a->lock);
}

int64_t auth_count(const auth *a) {
    int64_t n = (int64_t)auth_lock(a)->n;
    auth_unlock(a);
    return n;
}

bool auth_required(const auth *a) {
    return auth_count(a) > 0;
}

/* The digest of the key in a header's value "Bearer KEY"; false: it has none. */
static bool auth_digest_of_header(str header, uint8_t out[SHA256_BYTES]) {
    static const char scheme[] = "Bearer ";
    size_t n_scheme = sizeof(scheme) - 1;
    if (header.n <= n_scheme || strncasecmp(header.p, scheme, n_scheme) != 0) {
        return false;
    }
    str trimmed = auth_trim((str){header.p + n_scheme, header.n - n_scheme});
    sha256(trimmed.p, trimmed.n, out);
    return true;
}

static const key *auth_find_key(const key_set *a, const uint8_t digest[SHA256_BYTES]) {
    const key *found = NULL;
    for (size_t i = 0; i < a->n; i++) {
        if (CRYPTO_memcmp(a->keys[i].digest, digest, SHA256_BYTES) == 0) {
            found = &a->keys[i];
        }
    }
    return found;
}

bool auth_check(const auth *a, str header, char tenant[QUIRE_TENANT_BYTES + 1]) {
    assert(header.p != NULL || header.n == 0);
    uint8_t digest[SHA256_BYTES];
    if (!auth_digest_of_header(header, digest)) {
        return false;
    }
    const key *found = auth_find_key(auth_lock(a), digest);
    if (found != NULL) {
        snprintf(tenant, QUIRE_TENANT_BYTES + 1, "%s", found->tenant);
    }
    auth_unlock(a);
    return found != NULL;
}

static quire_err auth_operator_is_tenant(quire_error *err) {
    return err_set(err, QUIRE_INVALID, -1,
                   "--operator-key: it is also a tenant's API key; give the operator a different one");
}

quire_err auth_set_operator(auth *a, const char *text, quire_error *err) {
    assert(!a->has_operator);
    uint8_t digest[SHA256_BYTES];
    str trimmed;
    TRY(auth_digest_of_option("--operator-key", text, &trimmed, digest, err));
    if (auth_find_key(&a->set, digest) != NULL) {
        return auth_operator_is_tenant(err);
    }
    memcpy(a->operator_digest, digest, SHA256_BYTES);
    a->has_operator = true;
    return QUIRE_OK;
}

quire_err auth_reload(auth *a, const char *const *keys, int32_t n, const char *file, quire_error *err) {
    key_set fresh = {0};
    quire_err e = auth_load_keys(&fresh, keys, n, file, err);
    if (e == QUIRE_OK && a->has_operator && auth_find_key(&fresh, a->operator_digest) != NULL) {
        e = auth_operator_is_tenant(err);
    }
    if (e != QUIRE_OK) {
        auth_drop_keys(&fresh);
        return e;
    }
    pthread_rwlock_wrlock(&a->lock);
    key_set old = a->set;
    a->set = fresh;
    pthread_rwlock_unlock(&a->lock);
    auth_drop_keys(&old);
    return QUIRE_OK;
}

bool auth_has_operator(const auth *a) {
    return a->has_operator;
}

bool auth_is_operator(const auth *a, str header) {
    uint8_t digest[SHA256_BYTES];
    return a->has_operator && auth_digest_of_header(header, digest) &&
           CRYPTO_memcmp(a->operator_digest, digest, SHA256_BYTES) == 0;
}

/* ---- the Host header ---- */

/* Whether s is a port such as ":8000", or empty. */
static bool host_is_port(str s) {
    for (size_t i = 1; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9') {
            return false;
        }
    }
    return s.n == 0 || (s.p[0] == ':' && s.n <= sizeof ":65535" - 1);
}

static host_kind host_parse_v6(const char *text) {
    struct in6_addr at;
    if (inet_pton(AF_INET6, text, &at) != 1) {
        return HOST_MALFORMED;
    }
    return IN6_IS_ADDR_LOOPBACK(&at) ? HOST_LOOPBACK : HOST_ADDRESS;
}

static host_kind host_parse_name(const char *text) {
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
    if (host.n == 0 || host.n >= sizeof text || memchr(host.p, '\0', host.n) != NULL || !host_is_port(port)) {
        return HOST_MALFORMED;
    }
    memcpy(text, host.p, host.n);
    text[host.n] = '\0';
    if (name != NULL) {
        *name = host;
    }
    return bracketed ? host_parse_v6(text) : host_parse_name(text);
}
