#include "answer/reasoning_frame.h"

#include <string.h>

#define NEWLINES 2 /* most of them between the closing mark and the answer */

bool reasoning_begins(const reasoning_frame *f) {
    return f->format != NULL && (f->start == OUTPUT_START_REASONING ||
                                 (f->start == OUTPUT_START_UNKNOWN && f->format->rule == REASONING_FIRST));
}

bool reasoning_frame_is_empty(const reasoning_frame *f) {
    return f->format == NULL || f->format->rule == REASONING_KEPT ||
           (f->start == OUTPUT_START_CONTENT && f->format->rule != REASONING_HARMONY &&
            f->format->drops[0] == NULL);
}

/* Texts of a format as a list. */
static str *list_texts(part_arena *a, const char *const *texts, size_t most, size_t *n) {
    str *list = part_arena_new(a, most, sizeof *list);
    *n = 0;
    for (size_t i = 0; list != NULL && i < most && texts[i] != NULL; i++) {
        list[(*n)++] = str_of(texts[i]);
    }
    return list;
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

static bool is_token(const grammar_marks *marks, const char *text) {
    for (size_t i = 0; i < marks->n; i++) {
        if (str_is(marks->list[i].text, text)) {
            return true;
        }
    }
    return false;
}

/* Any text up to the closing mark, without special tokens that begin a call. */
static grammar_part thoughts(part_arena *a, const reasoning_frame *f, const grammar_marks *marks,
                             const char *const *close, size_t most) {
    size_t n, n_never = 0;
    const str *texts = list_texts(a, close, most, &n);
    grammar_part part = part_until(texts, n);
    str *never = f->calls != NULL ? part_arena_new(a, FORMAT_MARKS, sizeof *never) : NULL;
    for (size_t i = 0; never != NULL && i < FORMAT_MARKS && f->calls->marks[i].text != NULL; i++) {
        const format_mark *m = &f->calls->marks[i];
        if ((m->role == ROLE_OPEN || m->role == ROLE_SECTION) && is_token(marks, m->text)) {
            never[n_never++] = str_of(m->text);
        }
    }
    part.never = never;
    part.n_never = n_never;
    return part;
}

/* Messages of harmony: analyses, then the answer. */
static grammar_part around_final(part_arena *a, const reasoning_frame *f, const grammar_marks *marks,
                                 const grammar_part *answer) {
    static const char *const end[] = {"<|end|>"};
    const grammar_part analysis[] = {part_text(str_of("<|channel|>analysis<|message|>")),
                                     thoughts(a, f, marks, end, 1), part_text(str_of("<|start|>assistant"))};
    const grammar_part all[] = {part_repeat(a, part_sequence(a, analysis, 3), 0, GRAMMAR_NO_MAX),
                                part_text(str_of("<|channel|>final<|message|>")), *answer};
    return part_sequence(a, all, 3);
}

/* The marks that the format drops, before the answer (every second one from `from`) or
 * behind it. */
static grammar_part dropped(part_arena *a, const reasoning_format *f, size_t from) {
    str texts[2];
    size_t n = 0;
    for (size_t i = from; i < sizeof f->drops / sizeof *f->drops; i += 2) {
        if (f->drops[i] != NULL) {
            texts[n++] = str_of(f->drops[i]);
        }
    }
    return n > 0 ? optional(a, one_of_texts(a, texts, n)) : part_text((str){"", 0});
}

grammar_part reasoning_frame_around(part_arena *a, const reasoning_frame *frame, const grammar_marks *marks,
                                    const grammar_part *answer) {
    const reasoning_format *f = frame->format;
    if (reasoning_frame_is_empty(frame)) {
        return *answer;
    }
    if (f->rule == REASONING_HARMONY) {
        return around_final(a, frame, marks, answer);
    }
    size_t n_open;
    const str *opens = list_texts(a, f->open, 2, &n_open);
    grammar_part open = one_of_texts(a, opens, n_open);
    const grammar_part closing[] = {thoughts(a, frame, marks, f->close, 2),
                                    part_repeat(a, part_text(str_of("\n")), 0, NEWLINES)};
    grammar_part reasoning = part_sequence(a, closing, 2);
    if (frame->start == OUTPUT_START_CONTENT) {
        reasoning = part_text((str){"", 0});
    } else if (!reasoning_begins(frame)) {
        reasoning = optional(a, part_sequence(a, (const grammar_part[]){open, reasoning}, 2));
    } else if (frame->start == OUTPUT_START_UNKNOWN) {
        reasoning = part_sequence(a, (const grammar_part[]){optional(a, open), reasoning}, 2);
    }
    bool has_pairs = f->drops[1] != NULL; /* else the one mark stands behind the answer */
    const grammar_part all[] = {reasoning, has_pairs ? dropped(a, f, 0) : part_text((str){"", 0}), *answer,
                                dropped(a, f, has_pairs)};
    return part_sequence(a, all, 4);
}
