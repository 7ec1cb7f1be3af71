#include "json/json_pair.h"

#include "base/turn.h"

typedef struct pairing {
    str text; /* was checked */
    size_t at;
    strbuf scratch;
    json_pair_take *take;
    void *user;
} pairing;

static void json_pair_skip_space(pairing *p) {
    p->at = json_lex_space(p->text, p->at);
}

static quire_err pair_number(pairing *p, json_place place, const json_value *v) {
    json_number number;
    const char *what;
    size_t from = p->at;
    TRY(json_lex_number(p->text, &p->at, &number, &what));
    return p->take(p->user, (str){p->text.p + from, p->at - from}, &number, place, v);
}

static quire_err json_pair_do(pairing *p, json_place place, const json_value *v);

/* Reads a member's name, and finds its value in the tree. */
static quire_err pair_name(pairing *p, const json_value *object, json_place *place,
                           const json_value **member) {
    json_letters letters;
    const char *what;
    size_t from = p->at + 1;
    TRY(json_lex_string(p->text, &p->at, SIZE_MAX, &letters, &what));
    strbuf_clear(&p->scratch);
    TRY(json_lex_unescape((str){p->text.p + from, p->at - 1 - from}, &p->scratch));
    place->name = p->scratch.n > 0 ? p->scratch.p : "";
    *member = json_get(object, place->name);
    json_pair_skip_space(p);
    p->at++; /* the colon */
    json_pair_skip_space(p);
    return QUIRE_OK;
}

/* An array or object: calls itself as deep as the tree is. */
static quire_err pair_container(pairing *p, const json_value *v, bool is_object) {
    p->at++;
    json_pair_skip_space(p);
    for (size_t i = 0; p->text.p[p->at] != (is_object ? '}' : ']'); i++) {
        const json_value *inside = is_object ? NULL : json_at(v, i);
        json_place place = {.parent = v, .index = i};
        if (p->text.p[p->at] == ',') {
            p->at++;
            json_pair_skip_space(p);
        }
        if (is_object) {
            TRY(pair_name(p, v, &place, &inside));
        }
        TRY(json_pair_do(p, place, inside));
        json_pair_skip_space(p);
    }
    p->at++;
    return QUIRE_OK;
}

/* The value at p->at is v in the tree, or was replaced by v. */
static quire_err json_pair_do(pairing *p, json_place place, const json_value *v) {
    json_letters letters;
    const char *what;
    char c = p->text.p[p->at];
    TRY(turn_poll(1));
    if (c == '{' || c == '[') {
        return pair_container(p, v, c == '{');
    }
    if (c == '"') {
        return json_lex_string(p->text, &p->at, SIZE_MAX, &letters, &what);
    }
    return c == '-' || (c >= '0' && c <= '9') ? pair_number(p, place, v)
                                              : json_lex_word(p->text, &p->at, &what);
}

quire_err json_pair(str text, const json_value *root, json_pair_take *take, void *user) {
    pairing p = {.text = text, .take = take, .user = user};
    json_pair_skip_space(&p);
    quire_err e = json_pair_do(&p, (json_place){0}, root);
    strbuf_deinit(&p.scratch);
    return e;
}
