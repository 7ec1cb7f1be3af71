/* Bytes of any kind as HTTP requests: a connection that gets them at once and one that
 * gets them in pieces find the same requests. The first byte chooses the pieces. */
#include "base/str.h"
#include "fuzz.h"
#include "server/auth.h"
#include "server/http.h"

enum { HEAD = 512, BODY = 300, MOST_REQUESTS = 64 };

/* A request as far as its answer depends on it. */
typedef struct found {
    http_event end;
    int status;
    uint64_t hash; /* of its path, host and body */
} found;

static uint64_t hash_of(const http_request *r) {
    uint64_t h = STR_HASH_START;
    const strbuf *parts[] = {&r->path, &r->host, &r->body, &r->content_type, &r->authorization};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        h = str_hash(h, (str){parts[i]->n > 0 ? parts[i]->p : "", parts[i]->n}) + 1;
    }
    return h;
}

/* Reads requests from the bytes, `piece` at a time (0: all at once); returns how many
 * were found. */
static int read_all(str bytes, size_t piece, found *out) {
    http_request r;
    int n = 0;
    http_event e = HTTP_WANTS_MORE;
    http_init(&r, HEAD, BODY);
    for (size_t at = 0, used; at < bytes.n && e != HTTP_REFUSED && n < MOST_REQUESTS; at += used) {
        size_t left = bytes.n - at;
        e = http_feed(&r, bytes.p + at, piece > 0 && piece < left ? piece : left, &used);
        fuzz_check(used <= left && r.n_body_bytes <= BODY && r.body.n == r.n_body_bytes);
        fuzz_check(e == HTTP_REFUSED || used > 0);
        if (e == HTTP_GOT_ALL || e == HTTP_REFUSED) {
            fuzz_check((e == HTTP_REFUSED) == (r.status >= 400 && r.message != NULL));
            out[n++] = (found){e, r.status, e == HTTP_GOT_ALL ? hash_of(&r) : 0};
        }
        if (e == HTTP_GOT_ALL) {
            str name;
            (void)host_parse((str){r.host.n > 0 ? r.host.p : "", r.host.n}, &name);
            http_next(&r);
        }
    }
    http_deinit(&r);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    found whole[MOST_REQUESTS], pieces[MOST_REQUESTS];
    if (size == 0) {
        return 0;
    }
    str bytes = {(const char *)data + 1, size - 1};
    int n = read_all(bytes, 0, whole);
    fuzz_check(read_all(bytes, (size_t)data[0] % 17 + 1, pieces) == n);
    for (int i = 0; i < n; i++) {
        fuzz_check(whole[i].end == pieces[i].end && whole[i].hash == pieces[i].hash);
    }
    return 0;
}
