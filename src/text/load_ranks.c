/* Loads tiktoken's rank files, whose lines are base64 and a rank. They lack pattern and
 * special tokens: these come from the caller, from tokenizer_config.json, or from the
 * number of ranks. */
#include <stdio.h>

#include "base/mem.h"
#include "base/str.h"
#include "base/utf8.h"
#include "text/chars.h"
#include "text/model_build.h"
#include "text/tables.h"
#include "text/tokenizer_impl.h"
#include "json/json.h"
#include "json/json_scan.h"

/* ---- the model of a rank file ---- */

/* A vocabulary of byte strings with ranks, as in tiktoken: two neighbours merge if
 * together they are in the vocabulary, lowest rank first. Rank files and tekken.json are
 * read into it. */

#define RANK_MAX_IDS (1 << 24)

typedef struct rank_token {
    size_t at; /* offset of its bytes in `bytes` */
    uint32_t n;
    int32_t id;
} rank_token;

typedef struct rank_special {
    size_t at;
    uint32_t n;
    int32_t id;
    bool is_control; /* not shown in decoded text, and found only where special tokens are parsed */
} rank_special;

typedef struct rank_model {
    strbuf bytes;
    rank_token *tokens; /* ids ascend with ranks */
    size_t n, cap;
    rank_special *specials;
    size_t n_specials, cap_specials;
    str pattern;      /* borrowed; in the syntax of Rust's regex */
    const char *file; /* name of the file for messages */
} rank_model;

static void rank_model_deinit(rank_model *m) {
    strbuf_deinit(&m->bytes);
    mem_free(m->tokens);
    mem_free(m->specials);
    *m = (rank_model){0};
}

/* Adds a token given in base64. QUIRE_BAD_FILE if that is malformed or empty, or the id
 * is not below RANK_MAX_IDS. */
static quire_err rank_model_add(rank_model *m, str base64, int64_t id) {
    size_t at = m->bytes.n;
    TRY(base64_decode(base64, &m->bytes));
    size_t n = m->bytes.n - at;
    if (id < 0 || id >= RANK_MAX_IDS || n == 0 || n > BPE_MAX_PIECE / 2 || m->n == RANK_MAX_IDS) {
        return QUIRE_BAD_FILE;
    }
    TRY(mem_grow(&m->tokens, &m->cap, m->n + 1, sizeof *m->tokens));
    m->tokens[m->n++] = (rank_token){at, (uint32_t)n, (int32_t)id};
    return QUIRE_OK;
}

static str special_text(const rank_model *m, const rank_special *s) {
    return (str){m->bytes.p + s->at, s->n};
}

/* Adds a special token. It is ignored if it has no text, or the id of a token or an
 * earlier special one. */
static quire_err rank_model_add_special(rank_model *m, str text, int64_t id, bool is_control) {
    if (id < 0 || id >= RANK_MAX_IDS || text.n > 4096 || !utf8_is_valid(text) ||
        m->n_specials == RANK_MAX_IDS) {
        return QUIRE_BAD_FILE;
    }
    size_t at = m->bytes.n;
    TRY(strbuf_add(&m->bytes, text.p, text.n));
    TRY(mem_grow(&m->specials, &m->cap_specials, m->n_specials + 1, sizeof *m->specials));
    m->specials[m->n_specials++] = (rank_special){at, (uint32_t)text.n, (int32_t)id, is_control};
    return QUIRE_OK;
}

/* The id of the special token with this text; -1: none. */
static int32_t rank_model_find_special(const rank_model *m, str text) {
    for (size_t i = 0; i < m->n_specials; i++) {
        if (text.n > 0 && str_eq(special_text(m, &m->specials[i]), text)) {
            return m->specials[i].id;
        }
    }
    return -1;
}

static int32_t count_ids(const rank_model *m) {
    int32_t n = 0;
    for (size_t i = 0; i < m->n; i++) {
        n = m->tokens[i].id >= n ? m->tokens[i].id + 1 : n;
    }
    for (size_t i = 0; i < m->n_specials; i++) {
        n = m->specials[i].id >= n ? m->specials[i].id + 1 : n;
    }
    return n;
}

/* Adds the tokens in the byte-level alphabet, as in every byte-level vocabulary. */
static quire_err rank_model_add_tokens(const rank_model *m, tokenizer *t) {
    strbuf spelled = {0};
    quire_err e = piece_table_init(&t->vocab, count_ids(m), m->n, 2 * m->bytes.n);
    for (size_t i = 0; i < m->n && e == QUIRE_OK; i++) {
        strbuf_clear(&spelled);
        TRY_DONE(e, byte_level_add(&spelled, (str){m->bytes.p + m->tokens[i].at, m->tokens[i].n}));
        TRY_DONE(e, piece_table_add(&t->vocab, m->tokens[i].id, (str){spelled.p, spelled.n}));
    }
done:
    strbuf_deinit(&spelled);
    return e;
}

/* Adds special tokens whose ids are unused. used: [number of ids], all false. */
static quire_err add_unused_specials(const rank_model *m, tokenizer *t, bool *used) {
    for (size_t i = 0; i < m->n; i++) {
        used[m->tokens[i].id] = true;
    }
    for (size_t i = 0; i < m->n_specials; i++) {
        const rank_special *s = &m->specials[i];
        str text = special_text(m, s);
        if (text.n == 0 || used[s->id]) { /* of two with the same id the first counts */
            continue;
        }
        used[s->id] = true;
        if (!t->vocab.borrowed) {
            TRY(piece_table_add_hidden(&t->vocab, s->id, text));
        }
        TRY(added_set_add(
            &t->added,
            &(added_token){.id = s->id, .content = text, .pattern = text, .special = s->is_control}));
    }
    return added_set_finish(&t->added, t->vocab.n);
}

static quire_err add_specials(const rank_model *m, tokenizer *t) {
    bool *used = mem_new((size_t)t->vocab.n, sizeof *used);
    TRY(mem_check(used));
    quire_err e = add_unused_specials(m, t, used);
    mem_free(used);
    return e;
}

/* Derives the merges: a token is the merge of any two tokens that form it, ranked by its
 * id. */
static quire_err derive_merges(const rank_model *m, tokenizer *t, quire_error *err) {
    float *scores = mem_new((size_t)t->vocab.n, sizeof *scores);
    TRY(mem_check(scores));
    for (int32_t i = 0; i < t->vocab.n; i++) {
        scores[i] = -(float)i; /* exact, since ids are below 2^24 */
    }
    quire_err e = bpe_derive_merges(&t->model.bpe, scores);
    mem_free(scores);
    return e == QUIRE_UNSUPPORTED
               ? err_set(err, e, -1, "%s: a token of more than %d bytes", m->file, BPE_MAX_PIECE / 2)
               : e;
}

/* Builds *t, except for its post-processor, bos and eos. tables: from a packed model, or
 * empty. */
static quire_err rank_model_build(const rank_model *m, str tables, tokenizer *t, quire_error *err) {
    bpe *b = &t->model.bpe;
    piece_model_init(&t->model, &piece_model_bpe, &t->vocab, -1);
    if (m->n == 0) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: no tokens", m->file);
    }
    TRY(tables.n > 0 ? tables_take(t, tables, err) : rank_model_add_tokens(m, t));
    if (tables.n > 0) {
        TRY(model_check_tables(t, count_ids(m), err));
    }
    TRY(add_specials(m, t));
    b->ignore_merges = true; /* a piece that is a token is not split */
    TRY(pretokenizer_add_split_as(&t->pretokenizer, m->pattern, REGEX_RUST, err));
    TRY(pretokenizer_add_byte_level(&t->pretokenizer, false, false, err));
    t->decoder.steps[t->decoder.n++] = (decode_step){.kind = DECODE_BYTE_LEVEL};
    TRY(bpe_begin(b, m->n * 2));
    if (!(tables.n > 0)) {
        TRY(derive_merges(m, t, err));
    }
    return bpe_finish(b, false);
}

#define TAIL    "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define ENGLISH "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LEAD    "[^\\r\\n\\p{L}\\p{N}]?"
#define UPPER   "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER   "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define GPT2    "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define CL100K                                                                                               \
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| "                                   \
    "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)"                                        \
    "|\\s"
#define O200K                                                                                                \
    LEAD "[" UPPER "]*[" LOWER "]+" ENGLISH "?|" LEAD "[" UPPER "]+[" LOWER "]*" ENGLISH                     \
         "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" TAIL
#define LLAMA3 ENGLISH "|" LEAD "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" TAIL
#define QWEN   ENGLISH "|" LEAD "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" TAIL
#define KIMI                                                                                                 \
    "[\\p{Han}]+|" LEAD "[" UPPER "&&[^\\p{Han}]]*[" LOWER "&&[^\\p{Han}]]+" ENGLISH "?|" LEAD "[" UPPER     \
    "&&[^\\p{Han}]]+[" LOWER "&&[^\\p{Han}]]*" ENGLISH "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" TAIL

/* A special token at an id (-1: the next one), or a numbered series {first, count}. */
typedef struct special_rule {
    int32_t id;
    const char *text; /* series: a format with %d */
    int32_t first, count;
} special_rule;

typedef struct rank_set {
    size_t n_ranks;
    const char *pattern, *bos, *eos;
    const special_rule *specials; /* terminated by a rule without text */
} rank_set;

static const special_rule r50k[] = {{50256, "<|endoftext|>", 0, 0}, {0}};
static const special_rule cl100k[] = {{100257, "<|endoftext|>", 0, 0},   {100258, "<|fim_prefix|>", 0, 0},
                                      {100259, "<|fim_middle|>", 0, 0},  {100260, "<|fim_suffix|>", 0, 0},
                                      {100276, "<|endofprompt|>", 0, 0}, {0}};
static const special_rule o200k[] = {{199999, "<|endoftext|>", 0, 0}, {200018, "<|endofprompt|>", 0, 0}, {0}};
static const special_rule llama3[] = {{128000, "<|begin_of_text|>", 0, 0},
                                      {128001, "<|end_of_text|>", 0, 0},
                                      {128002, "<|reserved_special_token_%d|>", 0, 2},
                                      {128004, "<|finetune_right_pad_id|>", 0, 0},
                                      {128005, "<|reserved_special_token_%d|>", 2, 1},
                                      {128006, "<|start_header_id|>", 0, 0},
                                      {128007, "<|end_header_id|>", 0, 0},
                                      {128008, "<|eom_id|>", 0, 0},
                                      {128009, "<|eot_id|>", 0, 0},
                                      {128010, "<|python_tag|>", 0, 0},
                                      {128011, "<|reserved_special_token_%d|>", 3, 245},
                                      {0}};
static const special_rule llama4[] = {{200000, "<|begin_of_text|>", 0, 0},
                                      {-1, "<|end_of_text|>", 0, 0},
                                      {-1, "<|fim_prefix|>", 0, 0},
                                      {-1, "<|fim_middle|>", 0, 0},
                                      {-1, "<|fim_suffix|>", 0, 0},
                                      {-1, "<|header_start|>", 0, 0},
                                      {-1, "<|header_end|>", 0, 0},
                                      {-1, "<|eom|>", 0, 0},
                                      {-1, "<|eot|>", 0, 0},
                                      {-1, "<|step|>", 0, 0},
                                      {-1, "<|text_post_train_reserved_special_token_%d|>", 0, 6},
                                      {-1, "<|python_start|>", 0, 0},
                                      {-1, "<|python_end|>", 0, 0},
                                      {-1, "<|finetune_right_pad|>", 0, 0},
                                      {-1, "<|text_post_train_reserved_special_token_%d|>", 6, 61},
                                      {-1, "<|image_start|>", 0, 0},
                                      {-1, "<|image_end|>", 0, 0},
                                      {-1, "<|vision_reserved_special_token_%d|>", 0, 2},
                                      {-1, "<|tile_x_separator|>", 0, 0},
                                      {-1, "<|tile_y_separator|>", 0, 0},
                                      {-1, "<|vision_reserved_special_token_%d|>", 2, 4},
                                      {-1, "<|image|>", 0, 0},
                                      {-1, "<|vision_reserved_special_token_%d|>", 6, 1},
                                      {-1, "<|patch|>", 0, 0},
                                      {-1, "<|vision_reserved_special_token_%d|>", 7, 1041},
                                      {-1, "<|reasoning_reserved_special_token_%d|>", 0, 8},
                                      {-1, "<|reasoning_thinking_start|>", 0, 0},
                                      {-1, "<|reasoning_thinking_end|>", 0, 0},
                                      {0}};
static const special_rule qwen[] = {{151643, "<|endoftext|>", 0, 0},
                                    {-1, "<|im_start|>", 0, 0},
                                    {-1, "<|im_end|>", 0, 0},
                                    {-1, "<|extra_%d|>", 0, 205},
                                    {0}};
static const special_rule kimi[] = {
    {163584, "[BOS]", 0, 0}, {163585, "[EOS]", 0, 0}, {163586, "<|im_end|>", 0, 0}, {0}};

static const rank_set sets[] = {{50256, GPT2, NULL, "<|endoftext|>", r50k},
                                {50280, GPT2, NULL, "<|endoftext|>", r50k},
                                {100256, CL100K, NULL, "<|endoftext|>", cl100k},
                                {199998, O200K, NULL, "<|endoftext|>", o200k},
                                {128000, LLAMA3, "<|begin_of_text|>", "<|end_of_text|>", llama3},
                                {200000, O200K, "<|begin_of_text|>", "<|end_of_text|>", llama4},
                                {151643, QWEN, NULL, "<|endoftext|>", qwen},
                                {163584, KIMI, NULL, "[EOS]", kimi}};

static quire_err add_rules(const special_rule *rules, rank_model *m) {
    int32_t id = 0;
    for (const special_rule *r = rules; r->text != NULL; r++) {
        id = r->id >= 0 ? r->id : id;
        if (r->count == 0) {
            TRY(rank_model_add_special(m, str_of(r->text), id++, true));
        }
        const char *hole = strstr(r->text, "%d");
        for (int32_t i = r->first; i < r->first + r->count; i++) {
            char text[80];
            int n = snprintf(text, sizeof text, "%.*s%d%s", (int)(hole - r->text), r->text, (int)i, hole + 2);
            TRY(rank_model_add_special(m, (str){text, (size_t)n}, id++, true));
        }
    }
    return QUIRE_OK;
}

/* Reads a line "base64 rank"; skips an empty one. */
static quire_err load_ranks_read_line(str line, rank_model *m) {
    while (line.n > 0 && (line.p[line.n - 1] == '\r' || line.p[line.n - 1] == ' ')) {
        line.n--;
    }
    const char *space = line.n == 0 ? NULL : memchr(line.p, ' ', line.n);
    if (line.n == 0) {
        return QUIRE_OK;
    }
    int64_t rank = 0;
    size_t at = space == NULL ? line.n : (size_t)(space - line.p) + 1, digits = line.n - at;
    for (; at < line.n && line.p[at] >= '0' && line.p[at] <= '9'; at++) {
        rank = rank * 10 + (line.p[at] - '0');
        if (rank >= RANK_MAX_IDS) {
            return QUIRE_BAD_FILE;
        }
    }
    return digits == 0 || at < line.n ? QUIRE_BAD_FILE
                                      : rank_model_add(m, (str){line.p, (size_t)(space - line.p)}, rank);
}

static quire_err read_ranks(str file, rank_model *m, quire_error *err) {
    for (size_t at = 0, number = 1; at < file.n; number++) {
        const char *end = memchr(file.p + at, '\n', file.n - at);
        size_t n = end != NULL ? (size_t)(end - file.p) - at : file.n - at;
        quire_err e = load_ranks_read_line((str){file.p + at, n}, m);
        if (e == QUIRE_BAD_FILE) {
            return err_set(err, e, (int64_t)at, "%s: line %zu is not a token in base64 and its rank", m->file,
                           number);
        }
        TRY(e);
        at += n + 1;
    }
    return QUIRE_OK;
}

static quire_err load_ranks_add_configured(json_value *config, rank_model *m) {
    for (json_member o = {0}; json_next(json_get(config, "added_tokens_decoder"), &o);) {
        int64_t id;
        if (config_token_id(o.name, &id)) {
            TRY(rank_model_add_special(m, json_get_str(o.value, "content"), id,
                                       json_get_bool(o.value, "special", false)));
        }
    }
    return QUIRE_OK;
}

static quire_err load_ranks_load(tokenizer *t, const vocab *v, json_value *config, rank_model *m,
                                 quire_error *err) {
    const rank_set *set = NULL;
    TRY(read_ranks(v->model_bytes, m, err));
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        set = sets[i].n_ranks == m->n ? &sets[i] : set;
    }
    if (set == NULL && v->pattern.n == 0) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "%s: no known tokenizer has %zu ranks, so its pre-tokenizer is unknown; convert it to "
                       "a tokenizer.json",
                       m->file, m->n);
    }
    m->pattern = v->pattern.n > 0 ? v->pattern : str_of(set->pattern);
    TRY(load_ranks_add_configured(config, m)); /* of two with the same id the first counts */
    for (int32_t i = 0; i < v->n_specials; i++) {
        TRY(rank_model_add_special(m, v->specials[i].text, v->specials[i].id, true));
    }
    if (set != NULL && v->pattern.n == 0) {
        TRY(add_rules(set->specials, m));
    }
    TRY(rank_model_build(m, v->tables, t, err));
    str bos = config_special(config, "bos_token"), eos = config_special(config, "eos_token");
    bos = bos.n == 0 && set != NULL && set->bos != NULL ? str_of(set->bos) : bos;
    eos = eos.n == 0 && set != NULL ? str_of(set->eos) : eos;
    return config_surround(t, config, rank_model_find_special(m, bos), rank_model_find_special(m, eos),
                           set != NULL && set->bos != NULL, false);
}

quire_err tokenizer_load_ranks(tokenizer *t, const vocab *v, quire_error *err) {
    rank_model m = {.file = "the rank file"};
    json_value *config = json_model_document(v->tokenizer_config_json);
    quire_err e = load_ranks_load(t, v, config, &m, err);
    e = e == QUIRE_BAD_FILE && (err == NULL || err->code != e)
            ? err_set(err, e, -1, "tokenizer_config.json: a malformed added token")
            : e;
    json_drop(config);
    rank_model_deinit(&m);
    return e;
}

/* Loads Mistral's tekken.json: ranks of byte strings, the pattern, and special tokens,
 * which have the first ids. */

#define BOS "<s>"
#define EOS "</s>"

/* The special tokens for files that do not list them. */
static const char *const first_specials[] = {"<unk>",
                                             "<s>",
                                             "</s>",
                                             "[INST]",
                                             "[/INST]",
                                             "[AVAILABLE_TOOLS]",
                                             "[/AVAILABLE_TOOLS]",
                                             "[TOOL_RESULTS]",
                                             "[/TOOL_RESULTS]",
                                             "[TOOL_CALLS]",
                                             "[IMG]",
                                             "<pad>",
                                             "[IMG_BREAK]",
                                             "[IMG_END]",
                                             "[PREFIX]",
                                             "[MIDDLE]",
                                             "[SUFFIX]"};

typedef struct tekken {
    rank_model *m;
    int64_t n_specials, n_vocab; /* n_vocab: number of ids, special tokens included */
    int64_t rank;
    str token;
    strbuf scratch, copy;
} tekken;

static quire_err read_entry_member(void *user, json_scan *s, str key) {
    tekken *k = user;
    str span;
    if (str_is(key, "rank")) {
        return json_scan_int(s, &k->rank);
    }
    if (str_is(key, "token_bytes")) {
        TRY(json_scan_string(s, &k->scratch, &span));
        strbuf_clear(&k->copy);
        TRY(strbuf_add(&k->copy, span.p, span.n));
        k->token = (str){k->copy.p, k->copy.n};
        return QUIRE_OK;
    }
    return json_scan_span(s, &span);
}

/* Reads {"rank": 0, "token_bytes": "AA==", "token_str": "\u0000"}. */
static quire_err read_entry(tekken *k, json_scan *s) {
    k->rank = -1;
    k->token = (str){"", 0};
    TRY(json_scan_members(s, read_entry_member, k));
    if (k->rank < 0 || k->rank >= RANK_MAX_IDS) {
        return QUIRE_BAD_FILE;
    }
    return k->rank + k->n_specials < k->n_vocab ? rank_model_add(k->m, k->token, k->rank + k->n_specials)
                                                : QUIRE_OK;
}

static quire_err load_tekken_read_vocab(tekken *k, str file) {
    str list;
    bool more;
    TRY(json_scan_member(file, "vocab", &list));
    json_scan s = {.text = list};
    TRY(json_scan_open(&s, '['));
    for (;;) {
        TRY(json_scan_more(&s, ']', &more));
        if (!more) {
            return QUIRE_OK;
        }
        TRY(read_entry(k, &s));
    }
}

/* Reads the special tokens; those that are not listed get names by their ids. */
static quire_err read_specials(tekken *k, json_value *list) {
    for (size_t i = 0; list != NULL && i < json_length(list); i++) {
        json_value *o = json_at(list, i);
        int64_t id = json_get_int32(o, "rank", -1);
        if (id >= k->n_specials) {
            return QUIRE_BAD_FILE;
        }
        TRY(rank_model_add_special(k->m, json_get_str(o, "token_str"), id,
                                   json_get_bool(o, "is_control", true)));
    }
    for (int64_t i = 0;
         list == NULL && i < (int64_t)(sizeof first_specials / sizeof *first_specials) && i < k->n_specials;
         i++) {
        TRY(rank_model_add_special(k->m, str_of(first_specials[i]), i, true));
    }
    for (int64_t i = 0; i < k->n_specials; i++) {
        char text[40];
        int n = snprintf(text, sizeof text, "<SPECIAL_%lld>", (long long)i);
        TRY(rank_model_add_special(k->m, (str){text, (size_t)n}, i, true));
    }
    return QUIRE_OK;
}

static quire_err load_tekken_load(tokenizer *t, const vocab *v, tekken *k, json_value **docs,
                                  quire_error *err) {
    str config, specials;
    TRY(json_scan_member(v->model_bytes, "config", &config));
    docs[0] = json_model_document(config);
    quire_err e = json_scan_member(v->model_bytes, "special_tokens", &specials);
    docs[1] = e == QUIRE_OK ? json_model_document(specials) : NULL;
    k->n_specials = json_get_int32(docs[0], "default_num_special_tokens", -1);
    k->n_vocab = json_get_int32(docs[0], "default_vocab_size", -1);
    k->m->pattern = json_get_str(docs[0], "pattern");
    if ((e != QUIRE_OK && e != QUIRE_NOT_FOUND) || k->n_specials < 0 || k->n_specials > 65536 ||
        k->n_vocab > RANK_MAX_IDS || k->m->pattern.n == 0) {
        return QUIRE_BAD_FILE;
    }
    TRY(load_tekken_read_vocab(k, v->model_bytes));
    TRY(read_specials(k, docs[1]));
    TRY(rank_model_build(k->m, v->tables, t, err));
    t->bos = rank_model_find_special(k->m, str_of(BOS));
    t->eos = rank_model_find_special(k->m, str_of(EOS));
    TRY(strbuf_add_str(&t->bos_text, t->bos >= 0 ? BOS : ""));
    TRY(strbuf_add_str(&t->eos_text, t->eos >= 0 ? EOS : ""));
    return t->bos >= 0 ? tokenizer_surround(t, t->bos, -1) : QUIRE_OK;
}

quire_err tokenizer_load_tekken(tokenizer *t, const vocab *v, quire_error *err) {
    rank_model m = {.file = "tekken.json"};
    tekken k = {.m = &m};
    json_value *docs[2] = {NULL, NULL};
    quire_error why = {0};
    quire_err e = load_tekken_load(t, v, &k, docs, &why);
    if (e == QUIRE_BAD_FILE || e == QUIRE_NOT_FOUND || e == QUIRE_TOO_LARGE) {
        e = why.code == e ? err_set(err, e, why.position, "%s", why.message)
                          : err_set(err, QUIRE_BAD_FILE, -1, "tekken.json: malformed");
    } else if (e != QUIRE_OK && why.code == e) {
        err_set(err, e, why.position, "%s", why.message);
    }
    json_drop(docs[0]);
    json_drop(docs[1]);
    strbuf_deinit(&k.scratch);
    strbuf_deinit(&k.copy);
    rank_model_deinit(&m);
    return e;
}
