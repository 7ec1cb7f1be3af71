#include "text/wordpiece.h"

#include "base/turn.h"

void wordpiece_deinit(wordpiece *w) {
    piece_trie_deinit(&w->trie);
}

static bool wordpiece_is_too_long(const wordpiece *w, str word) {
    int32_t n = 0;
    for (size_t i = 0; i < word.n && n <= w->max_chars; i++) {
        n += ((uint8_t)word.p[i] & 0xC0) != 0x80;
    }
    return n > w->max_chars;
}

quire_err wordpiece_encode(const wordpiece *w, str word, token_list *out) {
    size_t before = out->n, n = 0;
    int32_t node = w->begins;
    bool good = !wordpiece_is_too_long(w, word);
    for (str rest = word; good && rest.n > 0; rest = (str){rest.p + n, rest.n - n}) {
        bool misled = rest.p > word.p && w->mark.n > 0 && rest.n >= w->mark.n &&
                      memcmp(rest.p, w->mark.p, w->mark.n) == 0;
        int32_t id = node < 0 || misled ? -1 : piece_trie_longest(&w->trie, node, rest, &n);
        good = id >= 0;
        TRY(turn_poll(1));
        TRY(good ? token_list_add(out, id) : QUIRE_OK);
        node = w->continues;
    }
    if (good) {
        return QUIRE_OK;
    }
    out->n = before;
    return token_list_add(out, w->unk);
}
