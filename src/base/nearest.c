#include "base/nearest.h"

#include <stdint.h>

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

size_t edit_distance(str a, str b) {
    /* edits from a's beginning to each of b's */
    size_t rows[3][EDIT_MAX + 1], *two_back = rows[0], *above = rows[1], *row = rows[2];
    if (a.n > EDIT_MAX || b.n > EDIT_MAX) {
        return SIZE_MAX;
    }
    for (size_t j = 0; j <= b.n; j++) {
        above[j] = j;
    }
    for (size_t i = 1; i <= a.n; i++) {
        row[0] = i;
        for (size_t j = 1; j <= b.n; j++) {
            row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + (a.p[i - 1] != b.p[j - 1]));
            if (i > 1 && j > 1 && a.p[i - 1] == b.p[j - 2] && a.p[i - 2] == b.p[j - 1]) {
                row[j] = least(row[j], two_back[j - 2] + 1);
            }
        }
        size_t *oldest = two_back;
        two_back = above;
        above = row;
        row = oldest;
    }
    return above[b.n];
}

void nearest_offer(nearest *n, str name) {
    size_t distance = edit_distance(n->wanted, name);
    if (distance <= NEAREST_MAX_EDITS && distance <= n->wanted.n / 3 &&
        (n->best.n == 0 || distance < n->distance)) {
        n->best = name;
        n->distance = distance;
    }
}

void nearest_offer_all(nearest *n, const char *names) {
    while (*names) {
        size_t length = strcspn(names, " ");
        nearest_offer(n, (str){names, length});
        names += length + (names[length] == ' ');
    }
}
