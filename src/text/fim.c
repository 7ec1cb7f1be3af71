#include "text/fim.h"

#define BAR  "\xEF\xBD\x9C" /* U+FF5C */
#define LINE "\xE2\x96\x81" /* U+2581 */

typedef struct fim_spelling {
    const char *pre, *suf, *mid; /* mid NULL: none, and the suffix comes first */
} fim_spelling;

static const fim_spelling fim_spellings[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
    {"<" BAR "fim" LINE "begin" BAR ">", "<" BAR "fim" LINE "hole" BAR ">", "<" BAR "fim" LINE "end" BAR ">"},
    {LINE "<PRE>", LINE "<SUF>", LINE "<MID>"},
    {"<PRE>", "<SUF>", "<MID>"},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},
    {"[PREFIX]", "[SUFFIX]", NULL},
};

static const char *const fim_repos[] = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>",
                                        "<reponame>"};
static const char *const fim_files[] = {"<|file_sep|>", "<file_sep>"};

/* What a spelling is looked up in. */
typedef struct fim_vocabulary {
    const added_set *added;
    const piece_table *pieces;
} fim_vocabulary;

static int32_t fim_look_up(const fim_vocabulary *t, str piece) {
    int32_t id = added_set_find(t->added, piece);
    return id >= 0 ? id : piece_table_find(t->pieces, piece);
}

static int32_t fim_find_one(const fim_vocabulary *t, const char *const *texts, size_t n) {
    int32_t id = -1;
    for (size_t i = 0; i < n && id < 0; i++) {
        id = fim_look_up(t, str_of(texts[i]));
    }
    return id;
}

/* Whether three ids are tokens, each another one. */
static bool fim_are_apart(int32_t a, int32_t b, int32_t c) {
    return a >= 0 && b >= 0 && c >= 0 && a != b && b != c && a != c;
}

static void fim_find_spelling(const fim_vocabulary *t, fim_marks *m) {
    for (size_t i = 0; i < sizeof fim_spellings / sizeof *fim_spellings; i++) {
        const fim_spelling *s = &fim_spellings[i];
        int32_t pre = fim_look_up(t, str_of(s->pre)), suf = fim_look_up(t, str_of(s->suf));
        int32_t mid = s->mid != NULL ? fim_look_up(t, str_of(s->mid)) : -1;
        bool is_whole = s->mid != NULL ? fim_are_apart(pre, suf, mid) : pre >= 0 && suf >= 0;
        if (is_whole) {
            m->pre = pre;
            m->suf = suf;
            m->mid = mid;
            m->suffix_first = s->mid == NULL;
            return;
        }
    }
}

fim_marks fim_find(const vocab *v, const added_set *added, const piece_table *pieces) {
    const fim_vocabulary all = {added, pieces}, *t = &all;
    fim_marks m = {.pre = -1, .suf = -1, .mid = -1, .repo = -1, .file = -1};
    bool is_keyed = v->source == VOCAB_GGUF && fim_are_apart(v->fim_pre, v->fim_suf, v->fim_mid);
    if (is_keyed) {
        m.pre = v->fim_pre;
        m.suf = v->fim_suf;
        m.mid = v->fim_mid;
    } else {
        fim_find_spelling(t, &m);
    }
    if (m.pre >= 0) {
        m.repo = fim_find_one(t, fim_repos, sizeof fim_repos / sizeof *fim_repos);
        m.file = fim_find_one(t, fim_files, sizeof fim_files / sizeof *fim_files);
    }
    return m;
}

bool fim_is_mark(const fim_marks *m, int32_t id) {
    return id >= 0 && (id == m->pre || id == m->suf || id == m->mid || id == m->repo || id == m->file);
}
