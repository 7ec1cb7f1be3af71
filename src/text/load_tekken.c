/* Loads Mistral's tekken.json: ranks of byte strings, the pattern, and special tokens,
 * whose ids come first. */
#include <stdio.h>

#include "text/rank_model.h"
#include "json/json.h"
#include "json/json_scan.h"

#define BOS "<s>"
#define EOS "</s>"

/* The special tokens of files that do not list them. */
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
    int64_t n_specials, n_vocab; /* n_vocab: all ids, those of special tokens too */
    int64_t rank;
    str token;
    strbuf scratch, copy;
} tekken;

static quire_err read_entry_member(tekken *k, json_scan *s, str key) {
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

/* {"rank": 0, "token_bytes": "AA==", "token_str": "\u0000"} */
static quire_err read_entry(tekken *k, json_scan *s) {
    strbuf name = {.max = 4096};
    bool more = true;
    k->rank = -1;
    k->token = (str){"", 0};
    quire_err e = json_scan_open(s, '{');
    while (e == QUIRE_OK) {
        str key;
        e = json_scan_more(s, '}', &more);
        if (e != QUIRE_OK || !more) {
            break;
        }
        e = json_scan_key(s, &name, &key);
        e = e != QUIRE_OK ? e : read_entry_member(k, s, key);
    }
    strbuf_deinit(&name);
    TRY(e);
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

/* Special tokens; ids without one have a name of their own. */
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
