#include "cli/options.h"

#include <assert.h>

#include "base/log.h"
#include "base/mem.h"

void cli_options_init(cli_options *o) {
    *o = (cli_options){.n_predict = -1};
    quire_options_init(&o->engine);
    server_options_init(&o->server);
    o->engine.model = NULL;
    /* by default, commands use the flags alone, for measurements and comparisons */
    o->engine.generation_config = "none";
    o->engine.max_answer_bytes = 0; /* no limit, since there is no client */
}

void cli_options_deinit(cli_options *o) {
    assert(o != NULL);
    server_close(o->front);
    for (int i = 0; i < CLI_MAX_PREFIXES; i++) {
        strbuf_deinit(&o->prefix_texts[i]);
        id_list_deinit(&o->prefix_ids[i]);
    }
    mem_free(o->model_path);
    for (int32_t i = 0; i < o->others.n; i++) {
        mem_free(o->others.options[i]);
        mem_free(o->others.names[i]);
        mem_free(o->others.paths[i]);
    }
    mem_free(o->others.main_path);
    strbuf_deinit(&o->draft_config);
    strbuf_deinit(&o->template_text);
    strbuf_deinit(&o->override_kv);
    strbuf_deinit(&o->lora_modules);
    strbuf_deinit(&o->loras);
    strbuf_deinit(&o->without_effect);
    strbuf_deinit(&o->from_environment);
    for (int i = 0; i < o->n_secrets; i++) {
        mem_free(o->secrets[i]);
    }
    mem_free(o->given);
    body_deinit(&o->fields);
}

void cli_options_set_log(const cli_options *o) {
    /* the names of log_level's values, in order */
    static const char *const levels[] = {"error", "warning", "info", "debug"};
    for (int i = 0; o->log_level && i < (int)(sizeof levels / sizeof *levels); i++) {
        if (strcmp(levels[i], o->log_level) == 0) {
            log_set_level((log_level)i);
        }
    }
    if (o->log_format) {
        log_set_format(strcmp(o->log_format, "json") == 0 ? LOG_JSON : LOG_TEXT);
    }
}
