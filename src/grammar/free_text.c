/* Compiles free text, and tags that may begin anywhere in it.
 *
 * Free text is a loop: letters without any of the watched texts, then a special token
 * that is allowed, and so on. In parallel an automaton per trigger reads letters up to
 * the first occurrence of that trigger. */
#include "base/utf8.h"
#include "grammar/parts.h"

/* What begins a tag or ends the free text: letters, or a special token after letters. */
typedef struct trigger {
    str letters;
    int32_t mark;  /* special token; -1: letters only */
    uint32_t rule; /* rule of the tags with this trigger, plus 1; 0: none */
    str rest;      /* the part of a text after the token */
} trigger;

typedef struct free_text {
    parts *p;
    NFA_VEC(trigger) triggers;
    NFA_VEC(str) watched; /* texts of letters that free text may not contain */
    uint32_t n_ending; /* the first n_ending of watched end the free text; the end may contain the others */
    NFA_VEC(int32_t) marks; /* special tokens that free text may not contain */
    NFA_VEC(uint32_t) ways;
    bool has_pattern;
    uint32_t pattern;       /* dfa of texts in which the pattern matches */
    uint32_t pattern_first; /* dfa of those that end with the first match */
    uint32_t pattern_rule;  /* rule of the tag that it begins */
    const grammar_part *pattern_other;
} free_text;

static void free_text_push_way(free_text *f, uint32_t node) {
    (void)NFA_ADD(f->p->b, f->ways, node);
}

/* ---- triggers ---- */

static trigger trigger_of(parts *p, str text) {
    trigger t = {.mark = -1};
    if (text.n == 0 || !utf8_is_valid(text)) {
        (void)build_fail(p->b, QUIRE_INVALID, -1,
                         "a text that begins or ends a part of the grammar is empty or not UTF-8");
        return t;
    }
    part_piece first = parts_take(p, &text);
    if (first.mark < 0) {
        t.letters = first.text;
        first = text.n > 0 ? parts_take(p, &text) : first;
    }
    t.mark = first.mark;
    t.rest = text;
    return t;
}

/* Finds a trigger in the list, or adds it; returns its index. */
static uint32_t add_trigger(free_text *f, trigger t) {
    for (uint32_t i = 0; i < f->triggers.n && build_step(f->p->b, 1); i++) {
        if (f->triggers.p[i].mark == t.mark && str_eq(f->triggers.p[i].letters, t.letters) &&
            str_eq(f->triggers.p[i].rest, t.rest)) {
            return i;
        }
    }
    if (!NFA_ADD(f->p->b, f->triggers, t)) {
        return 0;
    }
    if (t.mark < 0) {
        (void)NFA_ADD(f->p->b, f->watched, t.letters);
    } else {
        (void)NFA_ADD(f->p->b, f->marks, t.mark);
    }
    return f->triggers.n - 1;
}

/* Watches texts that free text may not contain; the special tokens in them are forbidden
 * too. */
static void free_text_watch(free_text *f, const str *texts, size_t n) {
    for (size_t i = 0; i < n && build_step(f->p->b, 1); i++) {
        trigger t = trigger_of(f->p, texts[i]);
        t.rest = (str){0};
        (void)add_trigger(f, t);
    }
}

/* ---- the loop ---- */

/* Makes a node for the special tokens that free text may contain, leading to `next`;
 * NFA_FAIL_NODE: none. */
static uint32_t emit_specials(free_text *f, grammar_specials specials, uint32_t next) {
    parts *p = f->p;
    NFA_VEC(int32_t) ids = {0};
    if (specials == GRAMMAR_SPECIALS_ALL) {
        return build_node(p->b, NFA_MARK, NFA_RAW, build_mark_set(p->b, f->marks.p, f->marks.n, true), 0,
                          next);
    }
    for (size_t i = 0; i < p->marks.n && specials == GRAMMAR_SPECIALS_SHOWN && build_step(p->b, 1); i++) {
        bool taken = p->marks.list[i].hidden;
        for (uint32_t k = 0; k < f->marks.n && !taken && build_step(p->b, 1); k++) {
            taken = f->marks.p[k] == p->marks.list[i].id;
        }
        if (!taken) {
            (void)NFA_ADD(p->b, ids, p->marks.list[i].id);
        }
    }
    uint32_t set = ids.n > 0 ? build_mark_set(p->b, ids.p, ids.n, false) : 0;
    uint32_t node = ids.n > 0 ? build_node(p->b, NFA_MARK, NFA_RAW, set, 0, next) : NFA_FAIL_NODE;
    NFA_FREE(p->b, ids);
    return node;
}

static uint32_t emit_string(free_text *f, uint32_t letters, uint32_t next) {
    return build_node(f->p->b, NFA_STRING, NFA_RAW, dfa_place(&f->p->dfas, letters), 0, next);
}

/* The texts of x without a match of the pattern. */
static uint32_t without_pattern(free_text *f, uint32_t x) {
    return f->has_pattern ? dfa_combine(&f->p->dfas, x, f->pattern, DFA_AND_NOT) : x;
}

/* Adds letters up to a match of the pattern. They lead to the tag, or after `other` back
 * to the loop. */
static void push_pattern(free_text *f, uint32_t loop, uint32_t after) {
    dfa_pool *dfas = &f->p->dfas;
    uint32_t never = f->watched.n > 0 ? dfa_search(dfas, f->watched.p, f->watched.n, 0, DFA_NEVER) : DFA_ANY;
    uint32_t until = dfa_combine(dfas, f->pattern_first, never, DFA_AND);
    if (!dfa_is_empty(dfas, until)) {
        uint32_t tag = build_call(f->p->b, f->pattern_rule, after),
                 other = parts_emit(f->p, f->pattern_other, loop);
        free_text_push_way(f, emit_string(f, until, build_split2(f->p->b, tag, other)));
    }
}

/* A dfa of texts that end with `letters` and contain an earlier watched text that does
 * not end free text. */
static uint32_t watched_before(free_text *f, str letters) {
    strbuf regex = {0};
    quire_err e = QUIRE_OK;
    uint32_t found = DFA_ANY;
    size_t len;
    for (uint32_t i = f->n_ending; i <= f->watched.n; i++) {
        str text = i < f->watched.n ? f->watched.p[i] : letters;
        TRY_DONE(e, strbuf_add_str(&regex, i == f->n_ending    ? "(?:"
                                           : i == f->watched.n ? ")[\\x00-\\u{10FFFF}]*"
                                                               : "|"));
        for (size_t at = 0; at < text.n; at += len) {
            TRY_DONE(e,
                     strbuf_addf(&regex, "\\u{%X}", (unsigned)utf8_decode(text.p + at, text.n - at, &len)));
        }
    }
    TRY_DONE(e, strbuf_add_str(&regex, "$"));
    found = dfa_pattern(&f->p->dfas, (str){regex.p, regex.n});
done:
    strbuf_deinit(&regex);
    if (e != QUIRE_OK) {
        (void)build_fail(f->p->b, e, -1, "out of memory for the grammar");
    }
    return found;
}

/* Adds letters up to and including a trigger, leading to `next`. */
static void push_trigger(free_text *f, const trigger *t, uint32_t without, uint32_t next) {
    dfa_pool *dfas = &f->p->dfas;
    if (t->mark >= 0) {
        uint32_t ends = dfa_combine(dfas, dfa_search(dfas, &t->letters, 1, 0, DFA_LAST), without, DFA_AND);
        if (!dfa_is_empty(dfas, ends)) {
            free_text_push_way(f, emit_string(f, ends, parts_emit_mark(f->p, t->mark, next)));
        }
        return;
    }
    uint32_t i = 0;
    while (i < f->n_ending && !str_eq(f->watched.p[i], t->letters) && build_step(f->p->b, 1)) {
        i++;
    }
    uint32_t until = without_pattern(f, dfa_search(dfas, f->watched.p, f->n_ending, i, DFA_FIRST));
    if (f->n_ending < f->watched.n) {
        until = dfa_combine(dfas, until, watched_before(f, t->letters), DFA_AND_NOT);
    }
    if (!dfa_is_empty(dfas, until)) {
        free_text_push_way(f, emit_string(f, until, next));
    }
}

/* Writes the loop into its node. It exits to `out`, and after trigger i to targets[i]
 * (NFA_FAIL_NODE: no exit). A tag that the pattern begins leads to after_tag. */
static void emit_loop(free_text *f, uint32_t loop, grammar_specials specials, const uint32_t *targets,
                      uint32_t after_tag, uint32_t out) {
    build *b = f->p->b;
    uint32_t without =
        f->watched.n > 0 ? dfa_search(&f->p->dfas, f->watched.p, f->watched.n, 0, DFA_NEVER) : DFA_ANY;
    without = without_pattern(f, without);
    f->ways.n = 0;
    free_text_push_way(f, out);
    free_text_push_way(f, emit_specials(f, specials, loop));
    for (uint32_t i = 0; i < f->triggers.n; i++) {
        if (f->triggers.p[i].letters.n == 0 && targets[i] != NFA_FAIL_NODE) {
            free_text_push_way(f, parts_emit_mark(f->p, f->triggers.p[i].mark, targets[i]));
        }
    }
    uint32_t after = b->failed == QUIRE_OK ? build_split(b, f->ways.p, f->ways.n) : NFA_FAIL_NODE;
    f->ways.n = 0;
    free_text_push_way(f, emit_string(f, without, after));
    for (uint32_t i = 0; i < f->triggers.n && build_step(b, 1); i++) {
        if (f->triggers.p[i].letters.n > 0 && targets[i] != NFA_FAIL_NODE) {
            push_trigger(f, &f->triggers.p[i], without, targets[i]);
        }
    }
    if (f->has_pattern) {
        push_pattern(f, loop, after_tag);
    }
    build_patch(b, loop, b->failed == QUIRE_OK ? build_split(b, f->ways.p, f->ways.n) : NFA_FAIL_NODE,
                NFA_FAIL_NODE);
}

static uint32_t emit_until(free_text *f, const grammar_part *part, uint32_t next) {
    build *b = f->p->b;
    uint32_t loop = build_loop(b);
    for (size_t i = 0; i < part->n_texts && build_step(b, 1); i++) {
        (void)add_trigger(f, trigger_of(f->p, part->texts[i]));
    }
    uint32_t n = f->triggers.n;
    f->n_ending = f->watched.n;
    free_text_watch(f, part->never, part->n_never);
    uint32_t *targets = build_new(b, (size_t)f->triggers.n + 1, sizeof *targets);
    if (targets == NULL) {
        return NFA_FAIL_NODE;
    }
    for (uint32_t i = 0; i < n && part->part == GRAMMAR_PART_UNTIL; i++) {
        targets[i] = parts_emit_text(f->p, f->triggers.p[i].rest, next);
    }
    emit_loop(f, loop, part->specials, targets, NFA_FAIL_NODE,
              part->part == GRAMMAR_PART_UNTIL ? NFA_FAIL_NODE : next);
    mem_free(targets);
    return loop;
}

/* ---- tags ---- */

/* The trigger of a tag, with the part of its `begin` that follows. A special token in
 * `begin` takes precedence over a trigger of letters inside it. */
static trigger trigger_of_tag(free_text *f, const grammar_part *part, str begin) {
    str given = {0};
    for (size_t i = 0; i < part->n_texts && build_step(f->p->b, 1); i++) {
        if (begins_with(begin, part->texts[i]) && (given.n == 0 || part->texts[i].n < given.n)) {
            given = part->texts[i];
        }
    }
    if (given.n == 0) {
        (void)build_fail(f->p->b, QUIRE_INVALID, -1,
                         "the tag that begins with \"%.*s\" begins with none of the triggers",
                         begin.n < 60 ? (int)begin.n : 60, begin.p);
        return (trigger){.mark = -1};
    }
    trigger t = trigger_of(f->p, given), own = trigger_of(f->p, begin);
    if (t.mark < 0 && own.letters.n >= given.n) {
        t.rest = (str){begin.p + given.n, begin.n - given.n};
        return t;
    }
    return own;
}

/* Collects the triggers of the tags; each gets a rule, which is written in a second
 * pass. */
static void emit_tags(free_text *f, const grammar_part *part) {
    build *b = f->p->b;
    NFA_VEC(uint32_t) ways = {0}, of = {0};
    for (size_t i = 0; i < part->n_tags && build_step(b, 1); i++) {
        trigger t = trigger_of_tag(f, part, part->tags[i].begin);
        str rest = t.rest;
        t.rest = (str){0};
        (void)NFA_ADD(b, of, add_trigger(f, t));
        uint32_t way = parts_emit_text(f->p, rest, parts_emit(f->p, part->tags[i].rest, NFA_RETURN_NODE));
        (void)NFA_ADD(b, ways, way);
    }
    for (uint32_t t = 0; t < f->triggers.n && b->failed == QUIRE_OK; t++) {
        f->ways.n = 0;
        for (uint32_t i = 0; i < ways.n && build_step(b, 1); i++) {
            if (of.p[i] == t) {
                free_text_push_way(f, ways.p[i]);
            }
        }
        if (f->ways.n > 0) {
            uint32_t rule = build_rule(b);
            build_rule_set(b, rule, build_split(b, f->ways.p, f->ways.n));
            f->triggers.p[t].rule = rule + 1;
        }
    }
    NFA_FREE(b, ways);
    NFA_FREE(b, of);
}

/* Writes a loop of free text in which each tag leads to `after`. */
static void emit_tagged(free_text *f, const grammar_part *part, uint32_t loop, uint32_t after, uint32_t out) {
    build *b = f->p->b;
    uint32_t *targets = build_new(b, (size_t)f->triggers.n + 1, sizeof *targets);
    if (targets == NULL) {
        return;
    }
    for (uint32_t i = 0; i < f->triggers.n && b->failed == QUIRE_OK; i++) {
        targets[i] =
            f->triggers.p[i].rule > 0 ? build_call(b, f->triggers.p[i].rule - 1, after) : NFA_FAIL_NODE;
    }
    emit_loop(f, loop, part->specials, targets, after, out);
    mem_free(targets);
}

/* Makes the automata of the pattern, and the rule of the tag that it begins. */
static void open_pattern(free_text *f, const grammar_part *part) {
    dfa_pool *dfas = &f->p->dfas;
    strbuf more = {0};
    quire_err e = strbuf_addf(&more, "(?:%.*s)[\\x00-\\u{10FFFF}]", (int)part->pattern.n, part->pattern.p);
    if (e != QUIRE_OK) {
        (void)build_fail(f->p->b, e, -1, "out of memory for the grammar");
        return;
    }
    f->has_pattern = true;
    f->pattern = dfa_pattern(dfas, part->pattern);
    f->pattern_first = dfa_combine(dfas, f->pattern, dfa_pattern(dfas, (str){more.p, more.n}), DFA_AND_NOT);
    strbuf_deinit(&more);
    f->pattern_other = part->other;
    uint32_t node = parts_emit(f->p, part->behind, NFA_RETURN_NODE);
    f->pattern_rule = build_rule(f->p->b);
    build_rule_set(f->p->b, f->pattern_rule, node);
}

/* Adds a tag without text before it, leading to `after`. */
static uint32_t emit_first_tag(free_text *f, uint32_t after) {
    build *b = f->p->b;
    f->ways.n = 0;
    for (uint32_t i = 0; i < f->triggers.n && build_step(b, 1); i++) {
        trigger t = f->triggers.p[i];
        uint32_t tag = t.rule > 0 ? build_call(b, t.rule - 1, after) : NFA_FAIL_NODE;
        tag = t.rule > 0 && t.mark >= 0 ? parts_emit_mark(f->p, t.mark, tag) : tag;
        free_text_push_way(f, t.rule > 0 ? parts_emit_text(f->p, t.letters, tag) : tag);
    }
    return b->failed == QUIRE_OK ? build_split(b, f->ways.p, f->ways.n) : NFA_FAIL_NODE;
}

static uint32_t emit_tagged_text(free_text *f, const grammar_part *part, uint32_t next) {
    emit_tags(f, part);
    if (part->pattern.n > 0) {
        open_pattern(f, part);
    }
    free_text_watch(f, part->texts, part->n_texts);
    free_text_watch(f, part->never, part->n_never);
    f->n_ending = f->watched.n;
    if (part->begins_with_tag && part->stop_after_first) {
        return emit_first_tag(f, next);
    }
    uint32_t loop = build_loop(f->p->b);
    emit_tagged(f, part, loop, part->stop_after_first ? next : loop, next);
    return part->begins_with_tag ? emit_first_tag(f, loop) : loop;
}

uint32_t parts_emit_free(parts *p, const grammar_part *part, uint32_t next) {
    free_text f = {.p = p};
    uint32_t first =
        part->part == GRAMMAR_PART_TAGS ? emit_tagged_text(&f, part, next) : emit_until(&f, part, next);
    NFA_FREE(p->b, f.triggers);
    NFA_FREE(p->b, f.watched);
    NFA_FREE(p->b, f.marks);
    NFA_FREE(p->b, f.ways);
    return p->b->failed == QUIRE_OK ? first : NFA_FAIL_NODE;
}
