#include "answer/reasoning_frame.h"

#include <assert.h>
#include <string.h>

#define NEWLINES 2 /* most newlines between the closing mark and the answer */

bool reasoning_begins(const reasoning_frame *f) {
    assert(f != NULL);
    return f->format != NULL && (f->start == OUTPUT_START_REASONING ||
                                 (f->start == OUTPUT_START_UNKNOWN && f->format->syntax == REASONING_FIRST));
}

bool reasoning_frame_is_empty(const reasoning_frame *f) {
    assert(f != NULL);
    if (f->format == NULL || f->format->syntax == REASONING_KEPT) {
        return true;
    }
    reasoning_marks m;
    reasoning_format_marks(f->format, &m);
    return f->start == OUTPUT_START_CONTENT && f->format->syntax != REASONING_HARMONY &&
           m.n_before + m.n_behind == 0;
}

static grammar_part one_of_texts(part_arena *a, const str *texts, size_t n) {
    grammar_part *parts = part_arena_new(a, n, sizeof *parts);
    for (size_t i = 0; parts != NULL && i < n; i++) {
        parts[i] = part_text(texts[i]);
    }
    return (grammar_part){.part = GRAMMAR_PART_ONE_OF, .parts = parts, .n_parts = parts != NULL ? n : 0};
}

static grammar_part optional(part_arena *a, grammar_part part) {
    return part_repeat(a, part, 0, 1);
}

static bool is_token(const grammar_marks *marks, str text) {
    for (size_t i = 0; i < marks->n; i++) {
        if (str_eq(marks->list[i].text, text)) {
            return true;
        }
    }
    return false;
}

/* An optional mark, one of those that the format drops around the answer. */
static grammar_part dropped(part_arena *a, const str *texts, int n) {
    return n > 0 ? optional(a, one_of_texts(a, texts, (size_t)n)) : part_text((str){"", 0});
}

/* The reasoning: text up to the closing mark, without special tokens that begin calls. */
static grammar_part thoughts(part_arena *a, const reasoning_frame *f, const grammar_marks *marks,
                             const reasoning_marks *m) {
    str *never = part_arena_new(a, FORMAT_MARKS, sizeof *never),
        *close = part_arena_new(a, (size_t)m->n, sizeof *close);
    format_shape shape = {0};
    if (never == NULL || close == NULL) {
        return part_text((str){"", 0}); /* the arena has failed */
    }
    memcpy(close, m->close, (size_t)m->n * sizeof *close);
    grammar_part part = part_until(close, (size_t)m->n);
    if (f->calls != NULL) {
        answer_format_shape(f->calls, &shape);
    }
    for (int i = 0; i < shape.n; i++) {
        const format_mark *k = &shape.marks[i];
        if ((k->role == ROLE_OPEN || k->role == ROLE_SECTION) && is_token(marks, k->text)) {
            never[part.n_never++] = k->text;
        }
    }
    part.never = never;
    return part;
}

/* Messages of harmony: reasoning (channel `analysis`), then the answer. */
static grammar_part around_final(part_arena *a, const reasoning_marks *m, grammar_part thought,
                                 const grammar_part *answer) {
    const grammar_part analysis[] = {part_text(m->open[0]), thought, part_text(m->next)};
    const grammar_part all[] = {part_repeat(a, part_sequence(a, analysis, 3), 0, GRAMMAR_NO_MAX),
                                part_text(m->before[0]), *answer};
    return part_sequence(a, all, 3);
}

grammar_part reasoning_frame_around(part_arena *a, const reasoning_frame *frame, const grammar_marks *marks,
                                    const grammar_part *answer) {
    if (reasoning_frame_is_empty(frame)) {
        return *answer;
    }
    reasoning_marks m;
    reasoning_format_marks(frame->format, &m);
    grammar_part thought = thoughts(a, frame, marks, &m);
    if (frame->format->syntax == REASONING_HARMONY) {
        return around_final(a, &m, thought, answer);
    }
    grammar_part open = one_of_texts(a, m.open, (size_t)m.n);
    const grammar_part closing[] = {thought, part_repeat(a, part_text(str_of("\n")), 0, NEWLINES)};
    grammar_part reasoning = part_sequence(a, closing, 2);
    if (frame->start == OUTPUT_START_CONTENT) {
        reasoning = part_text((str){"", 0});
    } else if (!reasoning_begins(frame)) {
        reasoning = optional(a, part_sequence(a, (const grammar_part[]){open, reasoning}, 2));
    } else if (frame->start == OUTPUT_START_UNKNOWN) {
        reasoning = part_sequence(a, (const grammar_part[]){optional(a, open), reasoning}, 2);
    }
    const grammar_part all[] = {reasoning, dropped(a, m.before, m.n_before), *answer,
                                dropped(a, m.behind, m.n_behind)};
    return part_sequence(a, all, 4);
}
