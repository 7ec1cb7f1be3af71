#include "text/seams.h"

#include "base/mem.h"

void encode_seams_deinit(encode_seams *s) {
    mem_free(s->at);
    *s = (encode_seams){0};
}

quire_err encode_seams_add(encode_seams *s, encode_seam seam) {
    TRY(mem_grow(&s->at, &s->cap, s->n + 1, sizeof *s->at));
    s->at[s->n++] = seam;
    return QUIRE_OK;
}
