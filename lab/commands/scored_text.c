#include "lab/commands/scored_text.h"

quire_err scored_text_read(const cli_options *o, const char *name, scored_text *memory, score_text *out,
                           quire_error *err) {
    *memory = (scored_text){.text = {0}};
    if (!o->argument == !o->ids_file) {
        return err_set(err, QUIRE_INVALID, -1,
                       "quire %s needs a text: MODEL FILE, or MODEL --ids-file FILE, one of them", name);
    }
    *out = (score_text){.name = o->ids_file ? o->ids_file : o->argument};
    if (o->ids_file) {
        TRY(id_list_read(o->ids_file, &memory->ids, err));
        out->ids = memory->ids.ids;
        out->n_ids = memory->ids.n;
        return QUIRE_OK;
    }
    TRY(files_read_text(o->argument, &memory->text, err));
    out->text = (str){memory->text.n > 0 ? memory->text.p : "", memory->text.n};
    return QUIRE_OK;
}

void scored_text_deinit(scored_text *memory) {
    strbuf_deinit(&memory->text);
    id_list_deinit(&memory->ids);
}
