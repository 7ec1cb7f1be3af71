/* The filter urlize: URLs and mail addresses of a text become links, by the rules of Jinja's own function. */
#include "jinja/jinja_filters.h"

typedef struct linking {
    jrun *r;
    str attributes; /* rel and target, escaped */
    int64_t limit;  /* characters shown of a URL; -1: all */
    const jvalue *schemes;
    size_t n_schemes; /* further ones, such as "tel:" */
} linking;

static bool is_word(int32_t c) {
    return c == '_' || jchar_is_alpha(c) || jchar_is_numeric(c);
}

static bool is_letter(char c) {
    return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static str from(str s, size_t at) {
    return (str){s.p + at, s.n - at};
}

/* Whether s begins with a lower-case word in any case. */
static bool begins(str s, const char *word) {
    size_t n = strlen(word);
    bool is = s.n >= n;
    for (size_t i = 0; i < n && is; i++) {
        is = (is_letter(s.p[i]) ? (s.p[i] | 0x20) : s.p[i]) == word[i];
    }
    return is;
}

/* What may follow a host, up to the end: a port, then a path. */
static bool ends_url(str s) {
    if (s.n > 1 && s.p[0] == ':' && is_digit(s.p[1])) {
        size_t n = 1;
        while (n < s.n && n < 6 && is_digit(s.p[n])) {
            n++;
        }
        s = from(s, n);
    }
    return s.n == 0 || strchr("/?#", s.p[0]) != NULL;
}

/* The bytes of the host's characters (words, % and -, with dots) at the beginning of s. */
static size_t host_size(str s) {
    size_t n = 0;
    for (size_t size; n < s.n; n += size) {
        int32_t c = jchar_at(s.p + n, s.n - n, &size);
        if (!is_word(c) && c != '%' && c != '-' && c != '.') {
            break;
        }
    }
    return n;
}

/* Whether a label ends a host behind a scheme or www: 2 to 63 letters, or xn-- and word characters. */
static bool is_top_label(str label) {
    bool idna = begins(label, "xn--"), is = idna ? label.n >= 6 : label.n >= 2 && label.n <= 63;
    for (size_t i = idna ? 4 : 0; i < label.n && is; i++) {
        is = idna ? label.p[i] != '-' : is_letter(label.p[i]);
    }
    return is;
}

/* Whether a label ends a host that has neither. */
static bool is_basic_label(str label) {
    static const char *const names[] = {"com", "net", "int", "edu", "gov", "org", "info", "mil"};
    bool is = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        is = is || (label.n == strlen(names[i]) && begins(label, names[i]));
    }
    return is;
}

/* Whether no label is empty, and all but the last, where there are such, have two characters at least. */
static bool labels_are_sound(str host, size_t least, size_t *last) {
    size_t start = 0;
    for (size_t i = 0; i < host.n; i++) {
        if (host.p[i] == '.') {
            if (i - start < least) {
                return false;
            }
            start = i + 1;
        }
    }
    *last = start;
    return start < host.n;
}

/* Four numbers with dots, or numbers in brackets with colons. */
static size_t address_size(str s) {
    size_t n = 0, parts = 0;
    if (s.n > 0 && s.p[0] == '[') {
        for (n = 1; n < s.n && (hex_digit(s.p[n]) >= 0 || s.p[n] == ':'); n++) {
            parts += s.p[n] == ':';
        }
        return parts >= 2 && n < s.n && s.p[n] == ']' ? n + 1 : 0;
    }
    for (;; n++) {
        size_t start = n;
        while (n < s.n && n - start < 3 && is_digit(s.p[n])) {
            n++;
        }
        parts += n > start;
        if (n == start || parts == 4) {
            return parts == 4 && n > start ? n : 0;
        }
        if (n >= s.n || s.p[n] != '.') {
            return 0;
        }
    }
}

static size_t scheme_size(str s) {
    return begins(s, "https://") ? 8 : begins(s, "http://") ? 7 : 0;
}

static bool is_url(str s) {
    size_t scheme = scheme_size(s), www = begins(s, "www.") ? 4 : 0, last;
    if (scheme > 0 || www > 0) {
        str rest = from(s, scheme + www), host = {rest.p, host_size(rest)};
        size_t address = scheme > 0 ? address_size(rest) : 0;
        if (labels_are_sound(host, 1, &last) && is_top_label(from(host, last)) && ends_url(from(rest, host.n))) {
            return true;
        }
        if (address > 0 && ends_url(from(rest, address))) {
            return true;
        }
    }
    str host = {s.p, host_size(s)};
    return labels_are_sound(host, 2, &last) && last > 0 && is_basic_label(from(host, last)) && ends_url(from(s, host.n));
}

/* Characters, @, and a host with a dot. */
static bool is_mail(str s) {
    for (size_t at = s.n; at-- > 1;) {
        size_t size, i = at + 1, dot = 0;
        if (s.p[at] != '@' || i >= s.n || !is_word(jchar_at(s.p + i, s.n - i, &size))) {
            continue;
        }
        for (; i < s.n; i += size) {
            int32_t c = jchar_at(s.p + i, s.n - i, &size);
            if (!is_word(c) && c != '.' && c != '-') {
                break;
            }
            dot = c == '.' ? i : c == '-' ? 0 : dot;
        }
        if (i == s.n && dot > at + 1 && dot + 1 < s.n) {
            return true;
        }
    }
    return false;
}

static quire_err add_link(const linking *l, const char *scheme, str url, str shown, bool attributes) {
    jrun *r = l->r;
    bool cut = attributes && l->limit >= 0 && jstr_length(shown) > (size_t)l->limit;
    TRY(jrun_add(r, str_of("<a href=\"")));
    TRY(jrun_add(r, str_of(scheme)));
    TRY(jrun_add(r, url));
    TRY(jrun_add(r, str_of("\"")));
    TRY(attributes ? jrun_add(r, l->attributes) : QUIRE_OK);
    TRY(jrun_add(r, str_of(">")));
    TRY(jrun_add(r, cut ? jstr_part(shown, 0, (size_t)l->limit) : shown));
    TRY(cut ? jrun_add(r, str_of("...")) : QUIRE_OK);
    return jrun_add(r, str_of("</a>"));
}

static quire_err add_middle(const linking *l, str s) {
    bool www = str_begins(s, "www.");
    if (is_url(s)) {
        bool whole = str_begins(s, "https://") || str_begins(s, "http://");
        return add_link(l, whole ? "" : "https://", s, s, true);
    }
    if (str_begins(s, "mailto:") && is_mail(from(s, 7))) {
        return add_link(l, "", s, from(s, 7), false);
    }
    if (!www && s.n > 0 && s.p[0] != '@' && memchr(s.p, ':', s.n) == NULL && is_mail(s)) {
        return add_link(l, "mailto:", s, s, false);
    }
    linking whole = *l;
    whole.limit = -1;
    for (size_t i = 0; i < l->n_schemes; i++) {
        str scheme;
        TRY(jrun_want_text(l->r, l->schemes[i], "a scheme", &scheme));
        if (s.n > scheme.n && str_eq((str){s.p, scheme.n}, scheme)) {
            return add_link(&whole, "", s, s, true);
        }
    }
    return jrun_add(l->r, s);
}

/* Bytes of a bracket at the beginning of s that is not part of a URL, or 0. */
static size_t opening_size(str s) {
    return str_begins(s, "(") || str_begins(s, "<") ? 1 : str_begins(s, "&lt;") ? 4 : 0;
}

/* The same for what ends a sentence, at the end of s. */
static size_t closing_size(str s) {
    return s.n > 0 && strchr(")>.,\n", s.p[s.n - 1]) != NULL && s.p[s.n - 1] != '\0' ? 1 : str_ends(s, "&gt;") ? 4 : 0;
}

static size_t count(str s, const char *what) {
    size_t n = 0;
    for (size_t at = 0; (at = jstr_find(s, str_of(what), at)) != SIZE_MAX; at += strlen(what)) {
        n++;
    }
    return n;
}

/* Brackets that are open in the middle take their ends back from behind it. */
static void balance(str *middle, str *tail) {
    static const char *const brackets[][2] = {{"(", ")"}, {"<", ">"}, {"&lt;", "&gt;"}};
    for (size_t b = 0; b < 3; b++) {
        size_t opened = count(*middle, brackets[b][0]), there = count(*tail, brackets[b][1]);
        if (opened <= count(*middle, brackets[b][1])) {
            continue;
        }
        for (size_t i = 0; i < opened && i < there; i++) {
            size_t end = jstr_find(*tail, str_of(brackets[b][1]), 0) + strlen(brackets[b][1]);
            middle->n += end;
            *tail = from(*tail, end);
        }
    }
}

static quire_err add_word(const linking *l, str word) {
    size_t head = 0, end = word.n, size;
    TRY(jrun_step(l->r, 1 + word.n / 8));
    while ((size = opening_size(from(word, head))) > 0) {
        head += size;
    }
    while ((size = closing_size((str){word.p + head, end - head})) > 0) {
        end -= size;
    }
    str middle = {word.p + head, end - head}, tail = from(word, end);
    balance(&middle, &tail);
    TRY(jrun_add(l->r, (str){word.p, head}));
    TRY(add_middle(l, middle));
    return jrun_add(l->r, tail);
}

/* Adds NAME="VALUE" with the value escaped to *out. */
static quire_err add_attribute(jrun *r, const char *name, jvalue value, str *out) {
    TRY(jrun_escape(r, value, &value));
    TRY(jrun_append(r, *out, str_of(name), out));
    TRY(jrun_append(r, *out, value.u.s, out));
    return jrun_append(r, *out, str_of("\""), out);
}

/* The words of rel, sorted and each once, with noopener and perhaps nofollow. */
static quire_err add_rel(jrun *r, jvalue rel, bool nofollow, str *out) {
    jvalue words = rel, unique;
    const jvalue *items;
    size_t n;
    str all = str_of(nofollow ? "nofollow noopener " : "noopener "), given = {0};
    TRY(jgiven(rel) ? jrun_want_text(r, rel, "rel", &given) : QUIRE_OK);
    TRY(jrun_append(r, all, given, &all));
    words = jstring(all);
    TRY(jcall_function(r, jinja_find_method(words, str_of("split")), &words, &(jargs){0}, &words));
    TRY(jcall_function(r, jinja_find_filter(str_of("unique")), &words, &(jargs){0}, &unique));
    TRY(jcall_function(r, jinja_find_filter(str_of("sort")), &unique, &(jargs){0}, &unique));
    TRY(jrun_items(r, unique, &items, &n));
    str joined = {0};
    for (size_t i = 0; i < n; i++) {
        TRY(i > 0 ? jrun_append(r, joined, str_of(" "), &joined) : QUIRE_OK);
        TRY(jrun_append(r, joined, items[i].u.s, &joined));
    }
    return add_attribute(r, " rel=\"", jstring(joined), out);
}

JFUNCTION(filter_urlize) {
    linking l = {.r = r, .limit = -1};
    jvalue escaped;
    TRY(jgiven(args[1]) ? jrun_want_integer(r, args[1], "the limit", &l.limit) : QUIRE_OK);
    l.limit = l.limit < 0 ? -1 : l.limit;
    TRY(add_rel(r, args[4], jflag(args[2]), &l.attributes));
    TRY(jgiven(args[3]) ? add_attribute(r, " target=\"", args[3], &l.attributes) : QUIRE_OK);
    TRY(jgiven(args[5]) ? jrun_items(r, args[5], &l.schemes, &l.n_schemes) : QUIRE_OK);
    TRY(jrun_escape(r, args[0], &escaped));
    str s = escaped.u.s;
    jout_clear(&r->scratch);
    for (size_t i = 0; i < s.n;) { /* blanks, and what stands between them */
        size_t start = i, size;
        bool blank = jchar_is_space(jchar_at(s.p + i, s.n - i, &size));
        while (i < s.n && jchar_is_space(jchar_at(s.p + i, s.n - i, &size)) == blank) {
            i += size;
        }
        str word = {s.p + start, i - start};
        TRY(blank ? jrun_add(r, word) : add_word(&l, word));
    }
    TRY(jrun_scratch(r, out));
    out->safe = r->autoescape;
    return QUIRE_OK;
}
