#include "lab/bench/text_samples.h"

#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "text/chars.h"
#include "json/json_out.h"

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

/* A random index below n; halving an index doubles its probability. */
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
        if (i + 1 != n) {
            TRY(strbuf_add_str(out, text_samples_draw(state, 10) == 0   ? ", "
                                    : text_samples_draw(state, 50) == 0 ? "'s "
                                                                        : " "));
        }
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

/* Adds a line: a pattern whose %s are names, or a declaration. */
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

/* Adds Chinese text. Frequent characters are not adjacent in Unicode, so every 37th of
 * the block of unified ideographs is used. */
static quire_err add_chinese(uint64_t *state, strbuf *out) {
    enum { FIRST = 0x4E00, N_CHARS = 20902 };
    uint32_t n = 4 + text_samples_draw(state, 16);
    for (uint32_t i = 0; i < n; i++) {
        TRY(utf8_add(out, FIRST + (int32_t)(draw_frequent(state, 4096) * 37 % N_CHARS)));
    }
    /* a full stop or a comma */
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

#define MARK  "\xE2\x96\x81"
#define GPT2  "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define BYTES 256

static const char *const made_names[N_MADE] = {"ranks", "SentencePiece BPE", "Unigram", "WordPiece",
                                               "WordLevel"};

const char *made_name(made_kind kind) {
    return made_names[kind];
}

/* Texts that grow in one buffer, with what GGUF files say about each. */
typedef struct text_list {
    strbuf bytes;
    size_t *ends; /* [n] */
    int32_t *types;
    float *scores;
    size_t n, cap_ends, cap_types, cap_scores;
} text_list;

static void list_deinit(text_list *l) {
    strbuf_deinit(&l->bytes);
    mem_free(l->ends);
    mem_free(l->types);
    mem_free(l->scores);
}

/* Adds a text in two parts. */
static quire_err list_add(text_list *l, const char *lead, str text, vocab_type type, float score) {
    TRY(mem_grow(&l->ends, &l->cap_ends, l->n + 1, sizeof *l->ends));
    TRY(mem_grow(&l->types, &l->cap_types, l->n + 1, sizeof *l->types));
    TRY(mem_grow(&l->scores, &l->cap_scores, l->n + 1, sizeof *l->scores));
    TRY(strbuf_add_str(&l->bytes, lead));
    TRY(strbuf_add(&l->bytes, text.p, text.n));
    l->types[l->n] = (int32_t)type;
    l->scores[l->n] = score;
    l->ends[l->n++] = l->bytes.n;
    return QUIRE_OK;
}

/* Called with the bytes of each piece that is not special, and its rank. */
typedef quire_err piece_fn(void *context, str bytes, int32_t rank);

static quire_err each_piece(const tokenizer *from, piece_fn *add, void *context) {
    strbuf bytes = {0};
    quire_err e = QUIRE_OK;
    for (int32_t id = 0; id < tokenizer_n_tokens(from); id++) {
        strbuf_clear(&bytes);
        if (!tokenizer_is_special(from, id)) {
            TRY_DONE(e, byte_level_add_bytes(&bytes, tokenizer_piece(from, id)));
        }
        if (bytes.n > 0) {
            TRY_DONE(e, add(context, (str){bytes.p, bytes.n}, id));
        }
    }
done:
    strbuf_deinit(&bytes);
    return e;
}

/* Takes the space before a word off. False: the rest is no text without white space. */
static bool as_word(str *piece, bool *is_word) {
    *is_word = piece->n > 1 && piece->p[0] == ' ';
    *piece = (str){piece->p + *is_word, piece->n - *is_word};
    return utf8_is_valid(*piece) && memchr(piece->p, ' ', piece->n) == NULL &&
           !str_contains(*piece, str_of(MARK));
}

/* ---- through GGUF's vocabularies ---- */

static quire_err add_marked(void *context, str piece, int32_t rank) {
    bool is_word;
    return as_word(&piece, &is_word) ? list_add(context, is_word ? MARK : "", piece, VOCAB_NORMAL,
                                                -5.0f - log2f((float)rank + 2.0f))
                                     : QUIRE_OK;
}

/* Also adds a word for each character, since punctuation is a word by itself. */
static quire_err add_wordpiece(void *context, str piece, int32_t rank) {
    size_t len;
    bool is_word;
    str word = piece;
    if (as_word(&word, &is_word) && !is_word && (utf8_next(word.p, &len), len == word.n)) {
        TRY(list_add(context, MARK, word, VOCAB_NORMAL, 0));
    }
    return add_marked(context, piece, rank);
}

static quire_err fill_sentencepiece(const tokenizer *from, text_list *l) {
    TRY(list_add(l, "<unk>", str_of(""), VOCAB_UNKNOWN, 0));
    for (int b = 0; b < BYTES; b++) {
        char name[8];
        (void)snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        TRY(list_add(l, name, str_of(""), VOCAB_BYTE, 0));
    }
    TRY(list_add(l, MARK, str_of(""), VOCAB_NORMAL, -5));
    return each_piece(from, add_marked, l);
}

static quire_err fill_wordpiece(const tokenizer *from, text_list *l) {
    static const char *const specials[] = {"[UNK]", "[CLS]", "[SEP]"};
    for (int i = 0; i < 3; i++) {
        TRY(list_add(l, specials[i], str_of(""), i == 0 ? VOCAB_UNKNOWN : VOCAB_CONTROL, 0));
    }
    return each_piece(from, add_wordpiece, l);
}

static quire_err open_listed(made_kind kind, const text_list *l, tokenizer **out, quire_error *err) {
    str *tokens = mem_new(l->n, sizeof *tokens);
    TRY(mem_check(tokens));
    for (size_t i = 0; i < l->n; i++) {
        size_t at = i == 0 ? 0 : l->ends[i - 1];
        tokens[i] = (str){l->bytes.p + at, l->ends[i] - at};
    }
    vocab v = {.source = VOCAB_GGUF,
               .n_tokens = (int32_t)l->n,
               .tokens = tokens,
               .scores = l->scores,
               .types = l->types};
    v.model = str_of(kind == MADE_WORDPIECE ? "bert" : kind == MADE_UNIGRAM ? "t5" : "llama");
    v.bos = v.eos = v.pad = v.sep = v.add_bos = v.add_eos = v.add_space_prefix = -1;
    v.remove_extra_whitespaces = v.strip_accents = -1;
    v.unk = v.lowercase = 0;
    quire_err e = tokenizer_open(&v, out, err);
    mem_free(tokens);
    return e;
}

/* ---- through a rank file ---- */

typedef struct rank_file {
    strbuf *text;
    int32_t n;
} rank_file;

static quire_err add_rank(void *context, str bytes, int32_t rank) {
    rank_file *f = context;
    (void)rank;
    if (bytes.n == 1 && f->n >= BYTES) { /* all bytes come first */
        return QUIRE_OK;
    }
    TRY(base64_encode(bytes, f->text));
    return strbuf_addf(f->text, " %d\n", (int)f->n++);
}

static quire_err fill_ranks(const tokenizer *from, strbuf *file) {
    rank_file f = {.text = file};
    for (int b = 0; b < BYTES; b++) {
        TRY(add_rank(&f, (str){(const char[]){(char)b}, 1}, b));
    }
    return each_piece(from, add_rank, &f);
}

/* ---- through tokenizer.json ---- */

static quire_err made_vocab_add_word(void *context, str piece, int32_t rank) {
    json_out *o = context;
    bool is_word;
    char name[1024];
    if (as_word(&piece, &is_word) && is_word && piece.n < sizeof name) {
        (void)snprintf(name, sizeof name, "%.*s", (int)piece.n, piece.p);
        json_int(json_name(o, name), rank + 1);
    }
    return o->err;
}

static quire_err fill_words(const tokenizer *from, strbuf *json) {
    json_out o = {.to = json};
    json_begin(&o, '{');
    json_begin(json_name(&o, "pre_tokenizer"), '{');
    json_cstr(json_name(&o, "type"), "Whitespace");
    json_end(&o, '}');
    json_begin(json_name(&o, "model"), '{');
    json_cstr(json_name(&o, "type"), "WordLevel");
    json_cstr(json_name(&o, "unk_token"), "[UNK]");
    json_begin(json_name(&o, "vocab"), '{');
    json_int(json_name(&o, "[UNK]"), 0);
    TRY(each_piece(from, made_vocab_add_word, &o));
    json_end(&o, '}');
    json_end(&o, '}');
    json_end(&o, '}');
    return o.err;
}

static quire_err make(made_kind kind, const tokenizer *from, text_list *l, tokenizer **out,
                      quire_error *err) {
    str file;
    switch (kind) {
    case MADE_RANKS:
        TRY(fill_ranks(from, &l->bytes));
        file = (str){l->bytes.p, l->bytes.n};
        return tokenizer_open(&(vocab){.source = VOCAB_RANKS, .model_bytes = file, .pattern = str_of(GPT2)},
                              out, err);
    case MADE_WORDLEVEL:
        TRY(fill_words(from, &l->bytes));
        file = (str){l->bytes.p, l->bytes.n};
        return tokenizer_open(&(vocab){.source = VOCAB_TOKENIZER_JSON, .tokenizer_json = file}, out, err);
    default:
        TRY(kind == MADE_WORDPIECE ? fill_wordpiece(from, l) : fill_sentencepiece(from, l));
        return open_listed(kind, l, out, err);
    }
}

quire_err made_open(made_kind kind, const tokenizer *from, tokenizer **out, quire_error *err) {
    text_list l = {0};
    quire_err e = make(kind, from, &l, out, err);
    list_deinit(&l);
    return e == QUIRE_NO_MEMORY ? err_set(err, e, -1, "out of memory for a tokenizer to measure") : e;
}
