#include "file/open_file.h"

#include "base/mem.h"

quire_err open_file_join(strbuf *out, const char *dir, const char *name, quire_error *err) {
    quire_err e = strbuf_addf(out, "%s/%s", dir, name);
    return e == QUIRE_OK ? e : err_set(err, e, -1, "%s: no memory for the path of %s", dir, name);
}

quire_err open_file_map(model_file *f, const char *path, size_t max_bytes, file_map *out, quire_error *err) {
    if (!mem_grow_(&f->maps, &f->cap_maps, f->n_maps + 1, sizeof *f->maps)) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "%s: no memory to map it", path);
    }
    TRY(file_map_open(path, max_bytes, out, err));
    f->maps[f->n_maps++] = *out;
    return QUIRE_OK;
}
