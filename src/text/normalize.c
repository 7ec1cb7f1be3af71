#include "text/normalize.h"

#include <assert.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "base/str.h"
#include "base/turn.h"
#include "base/utf8.h"
#include "text/chars.h"

static void charsmap_deinit(charsmap *m) {
    mem_free(m->units);
    mem_free(m->texts);
    *m = (charsmap){0};
}

static void sp_rules_deinit(sp_rules *r) {
    charsmap_deinit(&r->map);
    *r = (sp_rules){0};
}

/* The replacement of text's prefix, whose length is *n: a user-defined symbol, a rule's
 * match, or a character. */
static str sp_rules_next_part(const sp_rules *r, str text, size_t *n) {
    str to;
    if (r->symbols != NULL && piece_trie_longest(r->symbols, PIECE_TRIE_ROOT, text, n) >= 0) {
        return (str){text.p, *n};
    }
    if (charsmap_find(&r->map, text, CHARSMAP_LONGEST, n, &to)) {
        return to;
    }
    (void)utf8_next(text.p, n);
    return (str){text.p, *n};
}

static quire_err add_space(const sp_rules *r, strbuf *out) {
    return strbuf_add_str(out, r->escape ? SP_MARK : " ");
}

static quire_err sp_rules_add_part(const sp_rules *r, str part, strbuf *out) {
    for (size_t i = 0; i < part.n;) {
        const char *space = r->escape ? memchr(part.p + i, ' ', part.n - i) : NULL;
        size_t upto = space != NULL ? (size_t)(space - part.p) : part.n;
        TRY(strbuf_add(out, part.p + i, upto - i));
        if (space != NULL) {
            TRY(add_space(r, out));
        }
        i = upto + (space != NULL);
    }
    return QUIRE_OK;
}

static str rest_of(str text, size_t n) {
    return (str){text.p + n, text.n - n};
}

/* Appends the normalized text; for empty text nothing. QUIRE_NO_MEMORY, errors of
 * turn_poll. */
static quire_err sp_rules_run(const sp_rules *r, str text, strbuf *out) {
    assert(r != NULL && out != NULL);
    size_t n, before = out->n;
    while (r->remove_extra && text.n > 0 && str_is(sp_rules_next_part(r, text, &n), " ")) {
        TRY(turn_poll(1));
        text = rest_of(text, n);
    }
    if (text.n == 0) {
        return QUIRE_OK;
    }
    if (r->dummy_prefix && !r->suffix) {
        TRY(add_space(r, out));
    }
    bool after_space = r->remove_extra;
    for (; text.n > 0; text = rest_of(text, n)) {
        str part = sp_rules_next_part(r, text, &n);
        TRY(turn_poll((uint32_t)(n / 16 + 1)));
        while (after_space && part.n > 0 && part.p[0] == ' ') {
            part = rest_of(part, 1);
        }
        TRY(sp_rules_add_part(r, part, out));
        after_space = part.n == 0 ? after_space : r->remove_extra && part.p[part.n - 1] == ' ';
    }
    str space = str_of(r->escape ? SP_MARK : " ");
    while (r->remove_extra && out->n - before >= space.n &&
           memcmp(out->p + out->n - space.n, space.p, space.n) == 0) {
        out->n -= space.n;
    }
    return r->dummy_prefix && r->suffix ? add_space(r, out) : QUIRE_OK;
}

void normalizer_deinit(normalizer *n) {
    assert(n != NULL);
    for (int32_t i = 0; i < n->n; i++) {
        mem_free(n->steps[i].content);
        matcher_deinit(&n->steps[i].match);
        charsmap_deinit(&n->steps[i].map);
        sp_rules_deinit(&n->steps[i].rules);
    }
    *n = (normalizer){0};
}

void norm_scratch_deinit(norm_scratch *s) {
    strbuf_deinit(&s->a);
    strbuf_deinit(&s->b);
    strbuf_deinit(&s->head);
    mem_free(s->chars);
    mem_free(s->classes);
    *s = (norm_scratch){0};
}

/* ---- Unicode normal forms ---- */

/* Whether a quick check shows that the form leaves text unchanged. Below U+0300 there are
 * no marks, and nothing composes with the character before it. The first character with a
 * canonical decomposition is U+00C0, with any decomposition U+00A0. */
static bool is_plainly_normal(str text, norm_kind form) {
    int32_t limit = form == NORM_NFC ? 0x300 : form == NORM_NFD ? 0xC0 : 0xA0;
    size_t len;
    for (size_t i = 0; i < text.n; i += len) {
        if (utf8_next(text.p + i, &len) >= limit) {
            return false;
        }
    }
    return true;
}

/* Sorts each run of marks by combining class, stably. Insertion sort for short runs,
 * which are normal; counting sort for long ones, which only hostile texts have. tmp holds
 * as many characters as the longest run. */
static void sort_marks(int32_t *chars, uint8_t *classes, size_t n, int32_t *tmp) {
    if (n <= 32) {
        for (size_t i = 1; i < n; i++) {
            int32_t c = chars[i];
            uint8_t k = classes[i];
            size_t j = i;
            for (; j > 0 && classes[j - 1] > k; j--) {
                chars[j] = chars[j - 1];
                classes[j] = classes[j - 1];
            }
            chars[j] = c;
            classes[j] = k;
        }
        return;
    }
    size_t starts[257] = {0};
    for (size_t i = 0; i < n; i++) {
        starts[classes[i] + 1]++;
    }
    for (size_t k = 1; k < 257; k++) {
        starts[k] += starts[k - 1];
    }
    for (size_t i = 0; i < n; i++) {
        tmp[starts[classes[i]]++] = chars[i];
    }
    memcpy(chars, tmp, n * sizeof *chars);
}

/* Decomposes text into s->chars; *n: number of characters. */
static quire_err decompose(str text, utf8proc_option_t options, norm_scratch *s, size_t *n) {
    size_t len;
    *n = 0;
    for (size_t i = 0; i < text.n; i += len) {
        int32_t c = utf8_next(text.p + i, &len), boundary = 0;
        TRY(turn_poll(1));
        TRY(mem_grow(&s->chars, &s->cap_chars, *n + 32, sizeof *s->chars));
        utf8proc_ssize_t made = utf8proc_decompose_char(c, s->chars + *n, 32, options, &boundary);
        if (made < 0 || made > 32) { /* Unicode's longest decomposition has 18 characters */
            return QUIRE_INTERNAL;
        }
        *n += (size_t)made;
    }
    return QUIRE_OK;
}

static quire_err order_marks(norm_scratch *s, size_t n) {
    TRY(mem_grow(&s->classes, &s->cap_classes, n, 1));
    TRY(mem_grow(&s->chars, &s->cap_chars, 2 * n, sizeof *s->chars));
    for (size_t i = 0; i < n; i++) {
        s->classes[i] =
            s->chars[i] < 0x300 ? 0 : (uint8_t)utf8proc_get_property(s->chars[i])->combining_class;
    }
    for (size_t i = 0; i < n;) {
        size_t start = i;
        while (i < n && s->classes[i] != 0) {
            i++;
        }
        sort_marks(s->chars + start, s->classes + start, i - start, s->chars + n);
        i += i == start;
    }
    return QUIRE_OK;
}

static quire_err form_stretch(str text, norm_kind form, norm_scratch *s, strbuf *out) {
    if (text.n == 0) {
        return QUIRE_OK;
    }
    bool compat = form == NORM_NFKC || form == NORM_NFKD, compose = form == NORM_NFC || form == NORM_NFKC;
    utf8proc_option_t options = (utf8proc_option_t)(UTF8PROC_STABLE | (compat ? UTF8PROC_COMPAT : 0));
    size_t n;
    TRY(decompose(text, (utf8proc_option_t)(options | UTF8PROC_DECOMPOSE), s, &n));
    TRY(order_marks(s, n));
    if (compose) {
        utf8proc_ssize_t composed = utf8proc_normalize_utf32(s->chars, (utf8proc_ssize_t)n,
                                                             (utf8proc_option_t)(options | UTF8PROC_COMPOSE));
        if (composed < 0) {
            return QUIRE_INTERNAL;
        }
        n = (size_t)composed;
    }
    for (size_t i = 0; i < n; i++) {
        TRY(utf8_add(out, s->chars[i]));
    }
    return QUIRE_OK;
}

/* Length of text's ASCII prefix that no form changes. Excludes the character before other
 * text, since that may be a mark that composes with it. */
static size_t ascii_bytes(str text) {
    size_t n = 0;
    while (n < text.n && (uint8_t)text.p[n] < 0x80) {
        n++;
    }
    return n == text.n || n == 0 ? n : n - 1;
}

/* Normalizes stretch by stretch. Inert characters end a stretch, since nothing composes
 * with them or moves across them; ASCII is copied, since it composes with nothing before
 * it. */
static quire_err unicode_form(str text, norm_kind form, norm_scratch *s, strbuf *out) {
    size_t done = 0, len;
    for (size_t i = 0; i < text.n; i += len) {
        size_t plain = ascii_bytes((str){text.p + i, text.n - i});
        if (plain > 0) {
            TRY(form_stretch((str){text.p + done, i - done}, form, s, out));
            TRY(strbuf_add(out, text.p + i, plain));
            TRY(turn_poll((uint32_t)plain / 16));
            done = i += plain;
            if (i == text.n) {
                break;
            }
        }
        if (!char_is_inert(utf8_next(text.p + i, &len))) {
            continue;
        }
        TRY(form_stretch((str){text.p + done, i - done}, form, s, out));
        TRY(strbuf_add(out, text.p + i, len));
        done = i + len;
    }
    return form_stretch((str){text.p + done, text.n - done}, form, s, out);
}

/* ---- precompiled rules ---- */

#define MAX_GRAPHEME 5 /* bytes of the longest grapheme that a rule may replace as a whole */

/* Length of the first grapheme in text. */
static size_t grapheme_at(str text) {
    size_t n, len;
    utf8proc_int32_t state = 0;
    int32_t before = utf8_next(text.p, &n);
    for (; n < text.n; n += len) {
        int32_t c = utf8_next(text.p + n, &len);
        if (utf8proc_grapheme_break_stateful(before, c, &state)) {
            break;
        }
        before = c;
    }
    return n;
}

static quire_err map_graphemes(const charsmap *m, str text, strbuf *out) {
    size_t n, len, n_rule;
    str to;
    for (size_t i = 0; i < text.n; i += n) {
        str g = {text.p + i, n = grapheme_at((str){text.p + i, text.n - i})};
        TRY(turn_poll((uint32_t)n));
        if (n <= MAX_GRAPHEME && charsmap_find(m, g, CHARSMAP_SHORTEST, &n_rule, &to)) {
            TRY(strbuf_add(out, to.p, to.n));
            continue;
        }
        for (size_t k = 0; k < n; k += len) {
            (void)utf8_next(g.p + k, &len);
            str c = {g.p + k, len};
            to = charsmap_find(m, c, CHARSMAP_SHORTEST, &n_rule, &to) ? to : c;
            TRY(strbuf_add(out, to.p, to.n));
        }
    }
    return QUIRE_OK;
}

/* ---- character by character ---- */

static int32_t nmt_char(int32_t c) {
    if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F) {
        return -1;
    }
    bool space = c == '\t' || c == '\n' || c == 0xC || c == '\r' || c == 0x1680 ||
                 (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF ||
                 c == 0xFFFD;
    return space ? ' ' : c;
}

static int32_t bert_clean_char(int32_t c) {
    if (c == '\t' || c == '\n' || c == '\r') {
        return ' ';
    }
    return c == 0 || c == 0xFFFD || char_is_other(c) ? -1 : char_is_space(c) ? ' ' : c;
}

static bool is_chinese(int32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) ||
           (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

/* Maps c to at most 3 characters; returns how many. */
static int normalize_map_char(norm_kind kind, int32_t c, int32_t out[3]) {
    out[0] = c;
    switch (kind) {
    case NORM_LOWERCASE:
        return char_lower(c, out);
    case NORM_STRIP_ACCENTS:
        return !char_is_mark(c);
    case NORM_DROP_NONSPACING:
        return !char_is_nonspacing(c);
    case NORM_NMT:
        out[0] = nmt_char(c);
        return out[0] >= 0;
    case NORM_BERT_CLEAN:
        out[0] = bert_clean_char(c);
        return out[0] >= 0;
    case NORM_BERT_CHINESE:
        if (!is_chinese(c)) {
            return 1;
        }
        out[0] = out[2] = ' ';
        out[1] = c;
        return 3;
    default:
        return 1;
    }
}

/* Length of the prefix of text that such steps leave unchanged: printable ASCII, for
 * lower case without capitals. */
static size_t plain_bytes(norm_kind kind, str text) {
    size_t n = 0;
    while (n < text.n && text.p[n] >= ' ' && text.p[n] <= '~' &&
           !(kind == NORM_LOWERCASE && text.p[n] >= 'A' && text.p[n] <= 'Z')) {
        n++;
    }
    return n;
}

static quire_err map_chars(norm_kind kind, str text, strbuf *out) {
    size_t len;
    for (size_t i = 0; i < text.n; i += len) {
        size_t plain = plain_bytes(kind, (str){text.p + i, text.n - i});
        TRY(strbuf_add(out, text.p + i, plain));
        TRY(turn_poll((uint32_t)plain / 16));
        i += plain;
        if (i == text.n) {
            break;
        }
        int32_t mapped[3];
        int n = normalize_map_char(kind, utf8_next(text.p + i, &len), mapped);
        TRY(turn_poll(1));
        for (int k = 0; k < n; k++) {
            TRY(utf8_add(out, mapped[k]));
        }
    }
    return QUIRE_OK;
}

static str strip(const norm_step *step, str text) {
    size_t len;
    while (step->left && text.n > 0 && char_is_space(utf8_next(text.p, &len))) {
        text = (str){text.p + len, text.n - len};
    }
    while (step->right && text.n > 0) {
        size_t at = text.n - 1;
        while (at > 0 && ((unsigned char)text.p[at] & 0xC0) == 0x80) {
            at--;
        }
        if (!char_is_space(utf8_next(text.p + at, &len))) {
            break;
        }
        text.n = at;
    }
    return text;
}

static quire_err run_rules(const sp_rules *rules, str text, bool continues, strbuf *out) {
    sp_rules own = *rules;
    own.dummy_prefix = own.dummy_prefix && (own.suffix || !continues);
    return sp_rules_run(&own, text, out);
}

static quire_err normalize_run_step(const norm_step *step, str text, norm_scratch *s, regex_scratch *rs,
                                    strbuf *out) {
    switch (step->kind) {
    case NORM_NFC:
    case NORM_NFD:
    case NORM_NFKC:
    case NORM_NFKD:
        return unicode_form(text, step->kind, s, out);
    case NORM_PREPEND:
        if (!s->continues) {
            TRY(strbuf_add(out, step->content, step->n_content));
        }
        return strbuf_add(out, text.p, text.n);
    case NORM_REPLACE:
        return matcher_replace(&step->match, rs, text, (str){step->content, step->n_content}, out);
    case NORM_BYTE_LEVEL:
        return byte_level_add(out, text);
    case NORM_PRECOMPILED:
        return map_graphemes(&step->map, text, out);
    case NORM_SENTENCEPIECE:
        return run_rules(&step->rules, text, s->continues, out);
    default:
        return map_chars(step->kind, text, out);
    }
}

/* ---- where the first character of the input is ---- */

/* Moves s->front past replacements: a replacement counts if the whole match is in
 * front. */
static quire_err replaced_front(const norm_step *step, str text, norm_scratch *s, regex_scratch *rs) {
    match_iter it = {.subject = text};
    size_t front = 0, done = 0;
    for (bool found = true; found && done < s->front;) {
        TRY(matcher_next(&step->match, rs, &it, &found));
        found = found && it.start + (it.end > it.start) <= s->front;
        size_t upto = found ? it.start : s->front;
        front += upto - done + (found && it.end <= s->front ? step->n_content : 0);
        done = found ? it.end : upto;
    }
    s->front = front;
    return QUIRE_OK;
}

/* Moves s->front from a step's input to its output. If the character composes with the
 * next ones, the result counts; if Precompiled rules remove it, the next character
 * does. */
static quire_err move_front(const norm_step *step, str text, str made, norm_scratch *s, regex_scratch *rs) {
    if (s->front == 0 || made.n == 0) {
        s->front = 0;
        return QUIRE_OK;
    }
    if (step->kind == NORM_REPLACE) {
        return replaced_front(step, text, s, rs);
    }
    strbuf_clear(&s->head);
    TRY(normalize_run_step(step, (str){text.p, s->front}, s, rs, &s->head));
    size_t n = s->head.n;
    if (n == 0 ? step->kind == NORM_PRECOMPILED : n > made.n || memcmp(s->head.p, made.p, n) != 0) {
        (void)utf8_next(made.p, &n);
    }
    s->front = n;
    return QUIRE_OK;
}

str normalizer_lead(const normalizer *n) {
    assert(n != NULL);
    for (int32_t i = 0; i < n->n; i++) {
        if (n->steps[i].kind == NORM_PREPEND) {
            return (str){n->steps[i].content, n->steps[i].n_content};
        }
    }
    return (str){"", 0};
}

/* Worst cases in Unicode's tables: compatibility forms turn four bytes into one; U+1FBE
 * with two marks, seven bytes, composes to the two of U+0390; U+212A becomes lower case,
 * three bytes to one. */
static size_t step_shrinks(const norm_step *step) {
    switch (step->kind) {
    case NORM_PREPEND:
    case NORM_BYTE_LEVEL:
        return 1;
    case NORM_NFC:
    case NORM_NFD:
    case NORM_NFKC:
    case NORM_NFKD:
    case NORM_LOWERCASE:
        return 4;
    case NORM_SENTENCEPIECE:
        return step->rules.map.n_units == 0 && !step->rules.remove_extra;
    case NORM_REPLACE:
        return step->match.re == NULL && step->n_content >= step->match.n_literal ? 1 : 0;
    default:
        return 0;
    }
}

size_t normalizer_shrinks(const normalizer *n) {
    assert(n != NULL);
    size_t all = 1;
    for (int32_t i = 0; i < n->n && all > 0; i++) {
        all = all > 4096 ? 0 : all * step_shrinks(&n->steps[i]);
    }
    return all;
}

quire_err normalizer_run(const normalizer *n, str text, norm_scratch *s, regex_scratch *rs, str *out) {
    assert(n != NULL);
    const strbuf *in = NULL; /* where the present text is; NULL: the input */
    for (int32_t i = 0; i < n->n && text.n > 0; i++) {
        const norm_step *step = &n->steps[i];
        if (step->kind == NORM_STRIP) {
            str whole = text;
            text = strip(step, text);
            size_t n_gone = (size_t)(text.p - whole.p);
            s->front = s->front > n_gone ? s->front - n_gone : 0;
        } else if (step->kind > NORM_NFKD || !is_plainly_normal(text, step->kind)) {
            strbuf *to = in == &s->a ? &s->b : &s->a;
            strbuf_clear(to);
            TRY(normalize_run_step(step, text, s, rs, to));
            str made = {to->n > 0 ? to->p : "", to->n};
            TRY(move_front(step, text, made, s, rs));
            text = made;
            in = to;
        }
    }
    *out = text;
    return QUIRE_OK;
}

/* Units have the byte in bits 0..7, in bit 8 whether a rule ends here, in bit 9 and bits
 * 10..30 the offset of the children; bit 31 marks a value. */
static uint32_t offset_of(uint32_t unit) {
    return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}

static uint32_t label_of(uint32_t unit) {
    return unit & ((1u << 31) | 0xFF);
}

quire_err charsmap_open(str blob, charsmap *out) {
    uint32_t n_bytes;
    *out = (charsmap){0};
    if (blob.n == 0) {
        return QUIRE_OK;
    }
    if (blob.n < sizeof n_bytes) {
        return QUIRE_BAD_FILE;
    }
    memcpy(&n_bytes, blob.p, sizeof n_bytes);
    if (n_bytes == 0 || n_bytes % sizeof *out->units != 0 || n_bytes > blob.n - sizeof n_bytes) {
        return QUIRE_BAD_FILE;
    }
    out->n_texts = blob.n - sizeof n_bytes - n_bytes;
    out->units = (void *)mem_dup(blob.p + sizeof n_bytes, n_bytes);
    out->texts = mem_dup(blob.p + sizeof n_bytes + n_bytes, out->n_texts);
    if (out->units == NULL || out->texts == NULL) {
        charsmap_deinit(out);
        return QUIRE_NO_MEMORY;
    }
    out->n_units = n_bytes / sizeof *out->units;
    return QUIRE_OK;
}

quire_err charsmap_open_base64(str text, charsmap *out) {
    strbuf blob = {0};
    quire_err e = base64_decode(text, &blob);
    TRY_DONE(e, charsmap_open((str){blob.p, blob.n}, out));
done:
    strbuf_deinit(&blob);
    return e;
}

bool charsmap_find(const charsmap *m, str text, charsmap_rule which, size_t *n, str *to) {
    assert(m != NULL);
    bool found = false;
    size_t at = m->n_units > 0 ? offset_of(m->units[0]) : 0, i = 0;
    for (; i < text.n; i++) {
        uint8_t byte = (uint8_t)text.p[i];
        at ^= byte;
        if (at >= m->n_units || label_of(m->units[at]) != byte) {
            break;
        }
        uint32_t unit = m->units[at];
        at ^= offset_of(unit);
        if ((unit & (1u << 8)) == 0) {
            continue;
        }
        size_t value = at < m->n_units ? m->units[at] & 0x7FFFFFFF : SIZE_MAX;
        if (value <= m->n_texts) {
            *n = i + 1;
            *to = str_of(m->texts + value);
            found = true;
        }
        if (which == CHARSMAP_SHORTEST) {
            break;
        }
    }
    (void)turn_poll((uint32_t)(i / 16)); /* an error reappears at the caller's next poll */
    return found;
}
