#include "lab/bench/text_samples.h"

#include "base/rng.h"
#include "base/utf8.h"

static const char *const names[N_SAMPLES] = {"English", "code", "Chinese", "one letter", "white space"};

const char *sample_name(sample_kind kind) {
    return names[kind];
}

static const char *const COMMON[] = {
    "the",   "of",    "and",     "to",     "in",    "a",      "is",    "that",  "was",  "for",    "it",
    "with",  "as",    "his",     "on",     "be",    "at",     "by",    "had",   "not",  "are",    "but",
    "from",  "or",    "have",    "an",     "they",  "which",  "one",   "you",   "were", "her",    "all",
    "she",   "there", "would",   "their",  "we",    "him",    "been",  "has",   "when", "who",    "will",
    "more",  "no",    "if",      "out",    "so",    "said",   "what",  "up",    "its",  "about",  "into",
    "than",  "them",  "can",     "only",   "other", "new",    "some",  "could", "time", "these",  "two",
    "may",   "then",  "do",      "first",  "any",   "my",     "now",   "such",  "like", "our",    "over",
    "man",   "me",    "even",    "most",   "made",  "after",  "also",  "did",   "many", "before", "must",
    "years", "back",  "through", "much",   "where", "your",   "way",   "well",  "down", "should", "because",
    "each",  "just",  "those",   "people", "too",   "little", "state", "good",  "very", "make",   "world",
    "still", "own",   "see",     "men",    "work",  "long",   "here",  "get",   "both", "between"};
static const char *const STEMS[] = {
    "government", "action",     "form",     "nation",   "press",   "port",   "structure", "count",
    "direct",     "vision",     "sign",     "measure",  "creat",   "light",  "friend",    "season",
    "memory",     "special",    "organ",    "histor",   "electr",  "market", "compute",   "region",
    "settle",     "establish",  "discover", "translat", "connect", "invent", "consider",  "appoint",
    "album",      "university", "church",   "army",     "species", "river",  "music",     "village",
    "football",   "character",  "language", "science"};
static const char *const ENDINGS[] = {"", "", "", "", "s", "ed", "ing", "er", "'s", "ion", "ly", "able"};
static const char *const TYPES[] = {"int32_t", "size_t",  "const char *", "bool",
                                    "double",  "uint8_t", "void",         "static int"};
static const char *const PATTERNS[] = {"if (%s != NULL && %s > 0) {\n",
                                       "return %s(%s, sizeof *%s);\n",
                                       "for (size_t %s = 0; %s < %s->n; %s++) {\n",
                                       "%s->%s[%s] += 0x1F * (%s - 1);\n",
                                       "}\n",
                                       "} else {\n",
                                       "/* The %s of a %s, in bytes. */\n",
                                       "%s = %s(\"%s: %%d\\n\", %s);\n",
                                       "\n",
                                       "switch (%s) {\n",
                                       "case %s:\n",
                                       "break;\n"};
#define N_OF(a) (sizeof(a) / sizeof *(a))

static uint32_t text_samples_draw(uint64_t *state, size_t n) {
    return (uint32_t)(rng_next(state) % n);
}

/* An index below n, low ones more often: twice as likely each time that it is halved. */
static uint32_t draw_frequent(uint64_t *state, size_t n) {
    size_t upto = n;
    while (upto > 1 && text_samples_draw(state, 8) != 0) {
        upto = upto / 2 + 1;
        if (text_samples_draw(state, 2) == 0) {
            break;
        }
    }
    return text_samples_draw(state, upto);
}

static quire_err text_samples_add_word(uint64_t *state, bool capital, strbuf *out) {
    size_t at = out->n;
    if (text_samples_draw(state, 100) < 60) {
        TRY(strbuf_add_str(out, COMMON[draw_frequent(state, N_OF(COMMON))]));
    } else {
        TRY(strbuf_add_str(out, STEMS[text_samples_draw(state, N_OF(STEMS))]));
        TRY(strbuf_add_str(out, ENDINGS[text_samples_draw(state, N_OF(ENDINGS))]));
    }
    if (capital) {
        out->p[at] = (char)(out->p[at] - 'a' + 'A');
    }
    return QUIRE_OK;
}

static quire_err add_sentence(uint64_t *state, strbuf *out) {
    uint32_t n = 6 + text_samples_draw(state, 20);
    for (uint32_t i = 0; i < n; i++) {
        bool capital = i == 0 || text_samples_draw(state, 20) == 0;
        TRY(text_samples_draw(state, 40) == 0 ? strbuf_addf(out, "%u", 1 + text_samples_draw(state, 2000))
                                              : text_samples_add_word(state, capital, out));
        TRY(i + 1 == n ? QUIRE_OK
                       : strbuf_add_str(out, text_samples_draw(state, 10) == 0   ? ", "
                                             : text_samples_draw(state, 50) == 0 ? "'s "
                                                                                 : " "));
    }
    return strbuf_add_str(out, text_samples_draw(state, 5) == 0    ? ".\n\n"
                               : text_samples_draw(state, 12) == 0 ? "? "
                                                                   : ". ");
}

static quire_err text_samples_add_name(uint64_t *state, strbuf *out) {
    TRY(strbuf_add_str(out, STEMS[text_samples_draw(state, N_OF(STEMS))]));
    return text_samples_draw(state, 2) == 0
               ? QUIRE_OK
               : strbuf_addf(out, "_%s", COMMON[text_samples_draw(state, N_OF(COMMON))]);
}

/* A line: a pattern whose %s are names, or a declaration. */
static quire_err add_line(uint64_t *state, strbuf *out) {
    TRY(strbuf_add(out, "                ", 4 * text_samples_draw(state, 5)));
    if (text_samples_draw(state, 4) == 0) {
        TRY(strbuf_addf(out, "%s ", TYPES[text_samples_draw(state, N_OF(TYPES))]));
        TRY(text_samples_add_name(state, out));
        return strbuf_addf(out, " = %u;\n", text_samples_draw(state, 4096));
    }
    const char *p = PATTERNS[text_samples_draw(state, N_OF(PATTERNS))];
    for (; *p != '\0'; p++) {
        if (p[0] == '%' && p[1] == 's') {
            TRY(text_samples_add_name(state, out));
            p++;
        } else {
            TRY(strbuf_add_char(out, *p));
        }
    }
    return QUIRE_OK;
}

/* Characters of frequency by place, as frequent ones lie together in no block: every 37th
 * of the block of unified ideographs. */
static quire_err add_chinese(uint64_t *state, strbuf *out) {
    enum { FIRST = 0x4E00, N_CHARS = 20902 };
    uint32_t n = 4 + text_samples_draw(state, 16);
    for (uint32_t i = 0; i < n; i++) {
        TRY(utf8_add(out, FIRST + (int32_t)(draw_frequent(state, 4096) * 37 % N_CHARS)));
    }
    /* a full stop, a comma */
    return strbuf_add_str(out, text_samples_draw(state, 3) == 0 ? "\xE3\x80\x82" : "\xEF\xBC\x8C");
}

static quire_err add_some(sample_kind kind, uint64_t *state, strbuf *out) {
    switch (kind) {
    case SAMPLE_ENGLISH:
        return add_sentence(state, out);
    case SAMPLE_CODE:
        return add_line(state, out);
    case SAMPLE_CHINESE:
        return add_chinese(state, out);
    default:
        return strbuf_add_char(out, kind == SAMPLE_LETTER ? 'a' : ' ');
    }
}

quire_err sample_make(sample_kind kind, size_t n_bytes, strbuf *out) {
    uint64_t state = 1;
    size_t end = out->n + n_bytes;
    while (out->n < end) {
        TRY(add_some(kind, &state, out));
    }
    return QUIRE_OK;
}
