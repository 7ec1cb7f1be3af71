/* `quire serve`. */
#include <signal.h>
#include <stddef.h>
#include <string.h>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/other_models.h"

static const flag_choice log_levels[] = {
    {"error", "error", 0}, {"warning", "warning", 0}, {"info", "info", 0}, {"debug", "debug", 0}, {0}};
static const flag_choice log_formats[] = {{"text", "text", 0}, {"json", "json", 0}, {0}};

static void say_chat_form(const quire_info *i) {
    static const struct {
        const char *form, *text;
    } said[] = {{"file", "the template of --chat-template"},
                {"model", "the model's template"},
                {"chatml", "ChatML, because the model has its tokens but no template"},
                {"plain", "plain turns \"user:\" and \"assistant:\", because the model has no template; "
                          "--chat-template sets one"}};
    for (size_t k = 0; k < sizeof said / sizeof *said && i->chat_form != NULL; k++) {
        if (strcmp(said[k].form, i->chat_form) == 0) {
            log_line(LOG_INFO, "chats: %s", said[k].text);
        }
    }
}

static void say_formats(const quire_info *i) {
    if (i->chat_form != NULL) {
        log_line(LOG_INFO,
                 "responses: tool calls are %s, reasoning is %s (--tool-call-parser, --reasoning-parser)",
                 i->tool_format != NULL ? i->tool_format : "not parsed",
                 i->reasoning_format != NULL ? i->reasoning_format : "not parsed");
    }
}

/* Resolves --schedule auto: fair if the API keys belong to at least two tenants. Returns
 * the reason. */
static const char *choose_schedule(cli_options *o, int64_t n_keys) {
    if (o->engine.schedule != QUIRE_SCHEDULE_AUTO) {
        return "as given by --schedule";
    }
    o->engine.schedule = n_keys >= 2 ? QUIRE_SCHEDULE_FAIR : QUIRE_SCHEDULE_FCFS;
    return n_keys >= 2 ? "because there are two keys or more (--schedule)"
                       : "because there are fewer than two keys (--schedule)";
}

/* Logs how chat prompts begin and which tokens end an answer, from the model's files. */
static void say_ends(const quire_info *i) {
    if (i->chat_start != NULL) {
        log_line(LOG_INFO, "chats begin %s", i->chat_start);
    }
    if (i->end_tokens != NULL) {
        log_line(LOG_INFO, "tokens that end an answer: %s", i->end_tokens);
    }
}

/* Runs before a model is fetched and loaded: checks what would make the server fail, and
 * starts to answer probes. */
static quire_err serve_begin(cli_options *o, quire_error *err) {
    signal(SIGHUP, SIG_IGN); /* ignores both signals until the server handles them */
    signal(SIGUSR1, SIG_IGN);
    TRY(other_models_list(o, err));
    return server_open(NULL, &o->server, &o->front, err);
}

static quire_err serve_do(cli_options *o, quire_error *err) {
    session s;
    const char *why = choose_schedule(o, server_count_keys(o->front));
    TRY(session_open(o, &s, err));
    say_chat_form(quire_engine_info(s.engine));
    say_formats(quire_engine_info(s.engine));
    say_ends(quire_engine_info(s.engine));
    log_line(LOG_INFO, "schedule: %s, %s", flag_choice_name(choices_schedule, (int)o->engine.schedule), why);
    quire_queue_close(s.queue);
    s.queue = NULL; /* the server's loops have their own queues */
    quire_err e = server_run(o->front, s.engine, err);
    session_close(&s);
    return e;
}

static quire_err serve_run(const cli_options *o, quire_error *err) {
    cli_options own = *o;
    body defaults = {0};
    strbuf text = {0};
    quire_err e = request_begin(o, &defaults, err);
    if (e == QUIRE_OK && defaults.n > 0) {
        e = err_set(err, body_write(&defaults, &text), -1, "out of memory");
        own.engine.request_defaults = text.p;
    }
    TRY_DONE(e, serve_do(&own, err));
done:
    strbuf_deinit(&text);
    body_deinit(&defaults);
    return e;
}

#define AT(member) .offset = offsetof(cli_options, member)

static const flag_choice any_origin[] = {{"*", "*", 0}, {"[\"*\"]", "*", 0}, {0}};

static const flag client_flags[] = {
    {"--api-key", "KEY", "API key that requests must carry (repeatable)", FLAG_KEY, AT(api_keys),
     .secret = true},
    {"--served-model-name --alias -a", "NAME",
     "the model's name in the API, else its file's name or ORG/NAME; more may follow", FLAG_NAMES,
     AT(served_names)},
    {"--allowed-origins", NULL, "same as --allow-origin", FLAG_NAME,
     .offset = offsetof(server_options, allow_origin), .of = FLAG_OF_SERVER, .choices = any_origin,
     .rare = true},
    {0},
};
static const flag log_flags[] = {
    {"--log-level", NULL, "least severe level that is logged", FLAG_NAME, AT(log_level),
     .choices = log_levels},
    {"--log-format", NULL, "format of log lines", FLAG_NAME, AT(log_format), .choices = log_formats},
    {0},
};
static const flag default_flags[] = {
    {"--seed -s", "N", "seed for requests without one (-1: a new one for each)", FLAG_FIELD_INTEGER,
     .field = "seed"},
    {"--override-generation-config", "JSON",
     "default fields of requests: {\"temperature\":0.7,\"max_tokens\":512}", FLAG_FIELDS, .offset = 0},
    {"--temp --temperature", "T", "default temperature of requests", FLAG_FIELD_NUMBER,
     .field = "temperature", .rare = true},
    {"--top-k", "N", "default top_k of requests", FLAG_FIELD_INTEGER, .field = "top_k", .rare = true},
    {"--top-p", "P", "default top_p of requests", FLAG_FIELD_NUMBER, .field = "top_p", .rare = true},
    {"--min-p", "P", "default min_p of requests", FLAG_FIELD_NUMBER, .field = "min_p", .rare = true},
    {"--repeat-penalty", "X", "default repetition_penalty of requests", FLAG_FIELD_NUMBER,
     .field = "repetition_penalty", .rare = true},
    {"--presence-penalty", "X", "default presence_penalty of requests", FLAG_FIELD_NUMBER,
     .field = "presence_penalty", .rare = true},
    {"--frequency-penalty", "X", "default frequency_penalty of requests", FLAG_FIELD_NUMBER,
     .field = "frequency_penalty", .rare = true},
    {"--max-tokens -n --predict --n-predict", "N", "default max_tokens of requests; -1: none", FLAG_COUNT,
     AT(n_predict), .minimum = -1, .maximum = INT32_MAX, .rare = true},
    {0},
};
static const flag tenant_flags[] = {
    {"--public-prefix", "FILE",
     "a prompt beginning that tenants share: a text, or ids in a .json (repeatable)", FLAG_PREFIX,
     AT(prefix_files)},
    {0},
};
static const flag directory_flags[] = {
    {"--model-dir --models-dir", "DIR", "serve every model in this directory, loaded when a request names it",
     FLAG_TEXT, AT(model_dir)},
    {"--pin-model", "NAME", "a model besides the first to load at the start and keep loaded (repeatable)",
     FLAG_PINNED, AT(pinned), .rare = true},
    {0},
};
static const flag *const groups[] = {FLAGS_MODEL,
                                     directory_flags,
                                     flags_models,
                                     flags_generation_config,
                                     default_flags,
                                     flags_listen,
                                     client_flags,
                                     flags_keys,
                                     flags_origins,
                                     log_flags,
                                     flags_server_limits,
                                     flags_tokenizer,
                                     flags_chat_template,
                                     flags_message_tokens,
                                     flags_answers,
                                     flags_attention,
                                     FLAGS_NUMERIC,
                                     flags_eviction,
                                     flags_snapshots,
                                     flags_lora,
                                     flags_audit,
                                     flags_schedule,
                                     flags_step_target,
                                     flags_schedule_lambda,
                                     tenant_flags,
                                     FLAGS_MACHINE,
                                     flags_trust,
                                     flags_answer_limits,
                                     flags_text,
                                     FLAGS_BATCH,
                                     flags_models_memory,
                                     flags_mlock,
                                     flags_pack_cache,
                                     flags_pack_cache_limits,
                                     FLAGS_MEMORY,
                                     flags_carried,
                                     NULL};

static void serve_defaults(cli_options *o) {
    o->engine.generation_config = "auto";
    o->engine.pack_cache = "auto";
    o->engine.max_answer_bytes = (int64_t)64 << 20;
    o->log_level = "info";
    o->log_format = "text";
}

const command command_serve = {
    .name = "serve",
    .summary = "start an HTTP server with OpenAI's API",
    .usage = "quire serve MODEL [MODEL ..]",
    .examples = "  quire serve builtin\n"
                "  quire serve model.gguf --host 0.0.0.0 --port 8080 --api-key-file keys.txt\n"
                "  quire serve chat.gguf embed.gguf --model-idle-s 600\n",
    .argument = ARGUMENT_MODELS,
    .flags = groups,
    .options_size = sizeof(cli_options),
    .defaults = serve_defaults,
    .begin = serve_begin,
    .run = serve_run,
};
