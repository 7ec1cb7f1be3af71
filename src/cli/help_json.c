#include "cli/help_json.h"

#include "cli/set_flag.h"
#include "json/json_out.h"

static void write_names(json_out *o, const char *names) {
    json_begin(o, '[');
    while (*names) {
        str name = flag_next_name(&names);
        json_text(json_item(o), name.p, name.n);
    }
    json_end(o, ']');
}

static void write_flag(json_out *o, const flag *f, cli_options *defaults) {
    char value[128];
    static const char *const kinds[] = {"notice", "notice", "notice", "later", "refused"};
    json_begin(o, '{');
    write_names(json_name(o, "names"), f->names);
    json_cstr(json_name(o, "here"), f->type < FLAG_TAKEN ? "works" : kinds[f->type - FLAG_TAKEN]);
    json_cstr(json_name(o, "value"), f->value);
    json_begin(json_name(o, "choices"), '[');
    for (const flag_choice *c = f->choices; c && c->spelling; c++) {
        json_cstr(json_item(o), c->spelling);
    }
    json_end(o, ']');
    json_cstr(json_name(o, "meaning"), f->meaning);
    json_cstr(json_name(o, "default"), command_default(defaults, f, value, sizeof value) ? value : NULL);
    json_cstr(json_name(o, "field"), f->field);
    json_end(o, '}');
}

quire_err help_json_write(const command *const *commands, strbuf *to) {
    json_out writer = {.to = to}, *o = &writer;
    json_begin(o, '{');
    json_begin(json_name(o, "commands"), '[');
    for (; *commands; commands++) {
        json_begin(json_item(o), '{');
        json_cstr(json_name(o, "name"), (*commands)->name);
        json_cstr(json_name(o, "summary"), (*commands)->summary);
        cli_options *defaults = command_options_new(*commands);
        json_begin(json_name(o, "flags"), '[');
        for (const flag *const *group = (*commands)->flags; *group; group++) {
            for (const flag *f = *group; f->names; f++) {
                json_item(o);
                write_flag(o, f, defaults);
            }
        }
        json_end(o, ']');
        json_end(o, '}');
        command_options_free(defaults);
    }
    json_end(o, ']');
    json_end(o, '}');
    json_raw(o, "\n");
    return o->err;
}
