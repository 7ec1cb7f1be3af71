#include "cli/options.h"

void cli_options_init(cli_options *o) {
    *o = (cli_options){.n_predict = -1};
    quire_options_init(&o->engine);
    server_options_init(&o->server);
    o->engine.model = NULL;
    o->engine.generation_config = "none"; /* only the flags decide what is measured or compared */
    o->engine.max_answer_bytes = 0;       /* without a client there is no limit */
}

void cli_options_deinit(cli_options *o) {
    for (int i = 0; i < CLI_MAX_PREFIXES; i++) {
        strbuf_deinit(&o->prefix_texts[i]);
        id_list_deinit(&o->prefix_ids[i]);
    }
    strbuf_deinit(&o->template_text);
    strbuf_deinit(&o->without_effect);
    body_deinit(&o->fields);
}
