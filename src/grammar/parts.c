/* Compiles grammars made of parts. */
#include "grammar/parts.h"

#include <assert.h>

#include "base/utf8.h"
#include "grammar/compile.h"

void grammar_mark_spell(int32_t id, char out[GRAMMAR_MARK_BYTES]) {
    out[0] = (char)NFA_MARK_BYTE;
    for (uint32_t i = 0; i < NFA_MARK_DIGITS; i++) {
        out[i + 1] = (char)nfa_mark_digit(id, i);
    }
}

/* ---- texts ---- */

/* The longest special token that is a prefix of the text; NULL: none. */
static const grammar_mark *parts_mark_at(parts *p, str text) {
    const grammar_mark *best = NULL;
    for (size_t i = 0; i < p->marks.n; i++) {
        const grammar_mark *m = &p->marks.list[i];
        if (m->text.n > (best != NULL ? best->text.n : 0) && begins_with(text, m->text)) {
            best = m;
        }
    }
    return build_step(p->b, (int64_t)(p->marks.n / 64)) ? best : NULL;
}

part_piece parts_take(parts *p, str *rest) {
    assert(rest != NULL);
    const grammar_mark *m = parts_mark_at(p, *rest);
    size_t n = m != NULL ? m->text.n : 1;
    while (m == NULL && n < rest->n && parts_mark_at(p, (str){rest->p + n, rest->n - n}) == NULL &&
           build_step(p->b, 1)) {
        n++;
    }
    part_piece piece = {{rest->p, n}, m != NULL ? m->id : -1};
    *rest = (str){rest->p + n, rest->n - n};
    return piece;
}

uint32_t parts_emit_mark(parts *p, int32_t id, uint32_t next) {
    return build_node(p->b, NFA_MARK, NFA_RAW, build_mark_set(p->b, &id, 1, false), 0, next);
}

uint32_t parts_emit_text(parts *p, str text, uint32_t next) {
    NFA_VEC(part_piece) pieces = {0};
    if (!utf8_is_valid(text)) {
        (void)build_fail(p->b, QUIRE_INVALID, -1, "a text of the grammar is not UTF-8");
    }
    while (text.n > 0 && build_step(p->b, 1)) {
        (void)NFA_ADD(p->b, pieces, parts_take(p, &text));
    }
    while (pieces.n > 0 && p->b->failed == QUIRE_OK) {
        const part_piece *piece = &pieces.p[--pieces.n];
        next =
            piece->mark >= 0 ? parts_emit_mark(p, piece->mark, next) : build_bytes(p->b, piece->text, next);
    }
    NFA_FREE(p->b, pieces);
    return next;
}

/* ---- rules and lists ---- */

static uint32_t emit_rule(parts *p, const grammar_part *part, uint32_t next) {
    build *b = p->b;
    grammar_options own = *p->options;
    uint32_t first = b->a.rules.n;
    own.whitespace_pattern =
        part->whitespace_pattern.n > 0 ? part->whitespace_pattern : own.whitespace_pattern;
    b->options = &own;
    b->where = part->where;
    compile_rule(b, part->kind, part->text);
    b->options = p->options;
    b->where = NULL;
    return build_call(b, first, next);
}

/* Adds the texts of a regex, except some. */
static uint32_t emit_other(parts *p, const grammar_part *part, uint32_t next) {
    strbuf regex = {0};
    bool fits = true;
    for (size_t i = 0; i < part->n_texts && fits; i++) {
        fits = utf8_is_valid(part->texts[i]);
    }
    quire_err e = fits ? strbuf_addf(&regex, "^(?:%.*s)$", (int)part->text.n, part->text.p) : QUIRE_INVALID;
    if (e != QUIRE_OK) {
        (void)build_fail(p->b, e, -1,
                         fits ? "out of memory for the grammar" : "a text of the grammar is not UTF-8");
        return NFA_FAIL_NODE;
    }
    uint32_t all = dfa_pattern(&p->dfas, (str){regex.p, regex.n});
    strbuf_deinit(&regex);
    uint32_t left =
        dfa_combine(&p->dfas, all, dfa_names(&p->dfas, part->texts, (uint32_t)part->n_texts), DFA_AND_NOT);
    return dfa_is_empty(&p->dfas, left)
               ? NFA_FAIL_NODE
               : build_node(p->b, NFA_STRING, NFA_RAW, dfa_place(&p->dfas, left), 0, next);
}

static uint32_t emit_arguments(parts *p, const grammar_part *part, uint32_t next) {
    uint32_t first = p->b->a.rules.n, *kept = part->arguments->kept;
    if (kept != NULL && *kept > 0) {
        return build_call(p->b, *kept - 1, next);
    }
    p->b->where = part->where;
    compile_arguments(p, part->arguments);
    p->b->where = NULL;
    if (kept != NULL) {
        *kept = first + 1;
    }
    return build_call(p->b, first, next);
}

static uint32_t emit_one_of(parts *p, const grammar_part *part, uint32_t next) {
    NFA_VEC(uint32_t) ways = {0};
    for (size_t i = 0; i < part->n_parts && build_step(p->b, 1); i++) {
        uint32_t way = parts_emit(p, &part->parts[i], next);
        (void)NFA_ADD(p->b, ways, way);
    }
    uint32_t split = ways.n > 0 ? build_split(p->b, ways.p, ways.n) : NFA_FAIL_NODE;
    NFA_FREE(p->b, ways);
    return split;
}

/* Adds an element, then (separator, element) repeated; the element is a rule, as it
 * occurs twice. */
static uint32_t emit_separated(parts *p, const grammar_part *part, uint32_t next) {
    build *b = p->b;
    uint32_t rule = build_rule(b), max = part->max == GRAMMAR_NO_MAX ? NFA_NONE : part->max - 1;
    build_rule_set(b, rule, parts_emit(p, &part->parts[0], NFA_RETURN_NODE));
    uint32_t again = parts_emit(p, &part->parts[1], build_call(b, rule, NFA_RETURN_NODE));
    uint32_t more = max > 0 ? build_repeat(b, again, part->min > 0 ? part->min - 1 : 0, max, next) : next;
    uint32_t first = build_call(b, rule, more);
    return part->min > 0 ? first : build_split2(b, first, next);
}

static uint32_t parts_emit_repeat(parts *p, const grammar_part *part, uint32_t next) {
    if (part->max < part->min || part->n_parts == 0 || part->n_parts > 2) {
        (void)build_fail(p->b, QUIRE_INVALID, -1, "a repeat's minimum is larger than its maximum");
        return NFA_FAIL_NODE;
    }
    if (part->max == 0) {
        return next;
    }
    if (part->n_parts == 2) {
        return emit_separated(p, part, next);
    }
    if (part->max == 1) {
        uint32_t one = parts_emit(p, &part->parts[0], next);
        return part->min == 1 ? one : build_split2(p->b, one, next);
    }
    return build_repeat(p->b, parts_emit(p, &part->parts[0], NFA_RETURN_NODE), part->min,
                        part->max == GRAMMAR_NO_MAX ? NFA_NONE : part->max, next);
}

static uint32_t emit_kind(parts *p, const grammar_part *part, uint32_t next) {
    switch (part->part) {
    case GRAMMAR_PART_TEXT:
        return parts_emit_text(p, part->text, next);
    case GRAMMAR_PART_MARKS:
        return build_node(p->b, NFA_MARK, NFA_RAW,
                          build_mark_set(p->b, part->ids, part->n_ids, part->negated), 0, next);
    case GRAMMAR_PART_RULE:
        return emit_rule(p, part, next);
    case GRAMMAR_PART_OTHER:
        return emit_other(p, part, next);
    case GRAMMAR_PART_ARGUMENTS:
        return emit_arguments(p, part, next);
    case GRAMMAR_PART_SEQUENCE:
        for (size_t i = part->n_parts; i > 0 && build_step(p->b, 1); i--) {
            next = parts_emit(p, &part->parts[i - 1], next);
        }
        return next;
    case GRAMMAR_PART_ONE_OF:
        return emit_one_of(p, part, next);
    case GRAMMAR_PART_REPEAT:
        return parts_emit_repeat(p, part, next);
    case GRAMMAR_PART_FREE:
    case GRAMMAR_PART_UNTIL:
    case GRAMMAR_PART_TAGS:
        break;
    }
    return parts_emit_free(p, part, next);
}

uint32_t parts_emit(parts *p, const grammar_part *part, uint32_t next) {
    assert(p != NULL);
    if (++p->depth > GRAMMAR_PARTS_DEPTH) {
        (void)build_fail(p->b, QUIRE_TOO_LARGE, -1, "the grammar's parts nest deeper than %d",
                         GRAMMAR_PARTS_DEPTH);
    }
    uint32_t first = p->b->failed == QUIRE_OK ? emit_kind(p, part, next) : NFA_FAIL_NODE;
    p->depth--;
    return first;
}

quire_err grammar_compile_parts(const grammar_part *root, const grammar_marks *marks,
                                const grammar_options *options, grammar **out, quire_error *err) {
    build b;
    *out = NULL;
    build_init(&b, options, err);
    parts p = {.b = &b, .options = b.options};
    if (marks != NULL) {
        p.marks = *marks;
    }
    dfa_pool_init(&p.dfas, &b);
    uint32_t rule = build_rule(&b);
    build_rule_set(&b, rule, parts_emit(&p, root, NFA_RETURN_NODE));
    dfa_pool_deinit(&p.dfas);
    return compile_finish(&b, out);
}
