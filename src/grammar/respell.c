/* Respells the characters of a grammar's rules for strings: each node that reads some
 * becomes nodes that read their spelling. */
#include "base/utf8.h"

#include "grammar/avoid.h"
#include <assert.h>

/* ---- JSON ---- */

static bool respell_is_plain(char c) {
    return c >= 0x20 && c <= 0x7E && c != '"' && c != '\\';
}

/* The bytes of a node, copied; they may move while nodes are added. */
static char *copy_bytes(build *b, const nfa_node *node) {
    char *bytes = mem_new(node->n, 1);
    if (bytes == NULL) {
        (void)build_fail(b, QUIRE_NO_MEMORY, -1, "out of memory for the grammar");
    } else if (node->n == UINT16_MAX) { /* a character may end in another node */
        (void)build_fail(b, QUIRE_TOO_LARGE, -1, "a text of the grammar is too long for a string");
    }
    for (uint16_t i = 0; bytes != NULL && i < node->n; i++) {
        bytes[i] = (char)b->a.bytes.p[node->arg + i];
    }
    return bytes;
}

static void respell_replace(build *b, uint32_t i, uint32_t with) {
    if (b->failed == QUIRE_OK) {
        b->a.nodes.p[i] = b->a.nodes.p[with];
    }
}

static void respell_bytes_json(build *b, uint32_t i) {
    nfa_node node = b->a.nodes.p[i];
    uint32_t next = node.next;
    char *bytes = copy_bytes(b, &node);
    size_t at = node.n, len;
    while (bytes != NULL && at > 0 && build_step(b, 1)) {
        size_t from = at;
        while (from > 0 && respell_is_plain(bytes[from - 1])) {
            from--;
        }
        next = build_bytes(b, (str){bytes + from, at - from}, next);
        at = from;
        /* one character, and all like it */
        while (from > 0 && !respell_is_plain(bytes[from - 1]) && build_step(b, 1)) {
            from--;
            while (from > 0 && ((uint8_t)bytes[from] & 0xC0u) == 0x80u) {
                from--;
            }
            uint32_t c = (uint32_t)utf8_next(bytes + from, &len);
            next = build_node(b, NFA_CLASS, NFA_PLAIN, build_class(b, &(nfa_range){c, c}, 1), 0, next);
            at = from;
        }
    }
    mem_free(bytes);
    respell_replace(b, i, next);
}

void respell_json(build *b, uint32_t first) {
    assert(b != NULL);
    uint32_t n = b->a.nodes.n;
    for (uint32_t i = first; i < n && build_step(b, 1); i++) {
        nfa_node *node = &b->a.nodes.p[i];
        if (node->op == NFA_CLASS) {
            node->mode = NFA_PLAIN;
        } else if (node->op == NFA_BYTES) {
            respell_bytes_json(b, i);
        }
    }
}

/* ---- Python ---- */

static const struct {
    uint32_t c;
    const char *spelt;
} escapes[] = {{'\t', "\\t"}, {'\n', "\\n"}, {'\r', "\\r"}, {'"', "\\\""}, {'\\', "\\\\"}};
enum { N_ESCAPES = sizeof escapes / sizeof *escapes };

/* What c is written as; NULL: itself. */
static const char *escape_of(uint32_t c) {
    for (size_t i = 0; i < N_ESCAPES; i++) {
        if (escapes[i].c == c) {
            return escapes[i].spelt;
        }
    }
    return NULL;
}

static void respell_bytes_python(build *b, uint32_t i) {
    nfa_node node = b->a.nodes.p[i];
    char *bytes = copy_bytes(b, &node);
    strbuf text = {0};
    quire_err e = QUIRE_OK;
    bool fits = true;
    for (uint16_t k = 0; bytes != NULL && k < node.n && e == QUIRE_OK; k++) {
        const char *spelt = escape_of((uint8_t)bytes[k]);
        fits = fits && (spelt != NULL || (uint8_t)bytes[k] >= 0x20);
        e = spelt != NULL ? strbuf_add_str(&text, spelt) : strbuf_add_char(&text, bytes[k]);
    }
    if (e != QUIRE_OK) {
        (void)build_fail(b, e, -1, "out of memory for the grammar");
    }
    uint32_t with = fits ? build_bytes(b, (str){text.p, text.n}, node.next) : NFA_FAIL_NODE;
    strbuf_deinit(&text);
    mem_free(bytes);
    respell_replace(b, i, with);
}

/* Adds the part of a range whose characters are written as themselves: no control
 * character, no quote, no backslash. */
static void add_plain(build *b, nfa_range r, nfa_range *to, uint32_t *n) {
    static const uint32_t cuts[] = {0x20, '"', '\\', NFA_MAX_CHAR + 1};
    for (size_t i = 0; i + 1 < sizeof cuts / sizeof *cuts && build_step(b, 1); i++) {
        uint32_t lo = i == 0 ? cuts[0] : cuts[i] + 1, hi = cuts[i + 1] - 1;
        lo = lo > r.lo ? lo : r.lo;
        hi = hi < r.hi ? hi : r.hi;
        if (lo <= hi) {
            to[(*n)++] = (nfa_range){lo, hi};
        }
    }
}

static void respell_class_python(build *b, uint32_t i) {
    nfa_node node = b->a.nodes.p[i];
    nfa_class class = b->a.classes.p[node.arg];
    nfa_range *plain = mem_new((size_t) class.n * 3 + 1, sizeof *plain);
    uint32_t ways[N_ESCAPES + 1], n = 0, n_plain = 0;
    if (plain == NULL) {
        (void)build_fail(b, QUIRE_NO_MEMORY, -1, "out of memory for the grammar");
        return;
    }
    for (uint32_t k = 0; k < class.n; k++) {
        add_plain(b, b->a.ranges.p[class.first + k], plain, &n_plain);
    }
    for (size_t e = 0; e < N_ESCAPES; e++) {
        bool has = false;
        for (uint32_t k = 0; k < class.n; k++) {
            const nfa_range *r = &b->a.ranges.p[class.first + k];
            has = has || (r->lo <= escapes[e].c && escapes[e].c <= r->hi);
        }
        if (has) {
            ways[n++] = build_bytes(b, str_of(escapes[e].spelt), node.next);
        }
    }
    if (n_plain > 0) {
        ways[n++] = build_node(b, NFA_CLASS, NFA_RAW, build_class(b, plain, n_plain), 0, node.next);
    }
    mem_free(plain);
    respell_replace(b, i, n > 0 ? build_split(b, ways, n) : NFA_FAIL_NODE);
}

void respell_python(build *b, uint32_t first) {
    assert(b != NULL);
    uint32_t n = b->a.nodes.n;
    for (uint32_t i = first; i < n && build_step(b, 1); i++) {
        nfa_op op = (nfa_op)b->a.nodes.p[i].op;
        if (op == NFA_BYTES) {
            respell_bytes_python(b, i);
        } else if (op == NFA_CLASS) {
            respell_class_python(b, i);
        }
    }
}
