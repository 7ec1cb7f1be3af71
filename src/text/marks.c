#include "text/marks.h"

#include "base/mem.h"

void text_marks_deinit(text_marks *m) {
    mem_free(m->runs);
    *m = (text_marks){0};
}

quire_err text_marks_add(text_marks *m, size_t start, size_t end) {
    if (start == end) {
        return QUIRE_OK;
    }
    if (m->n > 0 && m->runs[m->n - 1].end == start) {
        m->runs[m->n - 1].end = end;
        return QUIRE_OK;
    }
    TRY(mem_grow(&m->runs, &m->cap, m->n + 1, sizeof *m->runs));
    m->runs[m->n++] = (mark_run){start, end};
    return QUIRE_OK;
}

void text_marks_cut(text_marks *m, size_t n) {
    while (m->n > 0 && m->runs[m->n - 1].start >= n) {
        m->n--;
    }
    if (m->n > 0 && m->runs[m->n - 1].end > n) {
        m->runs[m->n - 1].end = n;
    }
}

size_t text_marks_find(const text_marks *m, size_t at) {
    size_t low = 0, high = m->n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (m->runs[mid].end > at) {
            high = mid;
        } else {
            low = mid + 1;
        }
    }
    return low;
}

bool text_marks_allow(const text_marks *m, size_t start, size_t end) {
    size_t i = text_marks_find(m, start);
    return i == m->n || m->runs[i].start >= end;
}
