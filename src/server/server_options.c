#include "server/server_options.h"

#include "base/err.h"

#define AT(member)       .offset = offsetof(server_options, member), .of = FLAG_OF_SERVER
#define MAX_HEADER_BYTES 65536 /* below http-parser's own limit of 81,920 */
#define SECOND           1e6

const flag flags_listen[] = {
    {"--host", "NAME", "address to listen on, or unix:PATH", FLAG_TEXT, AT(host), .text = "127.0.0.1"},
    {"--port", "N", "port to listen on; 0: any free one", FLAG_COUNT, AT(port), .minimum = 0,
     .maximum = 65535, .number = 8000},
    {0},
};
const flag flags_keys[] = {
    {"--api-key-file", "FILE", "file of API keys, one tenant:key per line", FLAG_TEXT, AT(api_key_file)},
    {"--operator-key", "KEY",
     "the operator's key, for all of /pool, for /debug, and to drop the prefix cache", FLAG_TEXT,
     AT(operator_key), .secret = true},
    {0},
};
const flag flags_origins[] = {
    {"--allow-origin", "ORIGIN",
     "origin of web pages that may use the API: * or one origin; none unless given", FLAG_TEXT,
     AT(allow_origin)},
    {"--allowed-hosts", "NAMES", "host names with dots by which clients may reach a server without keys",
     FLAG_TEXT, AT(allowed_hosts), .rare = true},
    {0},
};
const flag flags_models[] = {
    {"--max-models --models-max", "N",
     "most models loaded at once, besides the first and the pinned ones; 0: any number", FLAG_COUNT,
     AT(max_models), .minimum = 0, .maximum = 63, .number = 4, .rare = true},
    {"--model-idle-s --sleep-idle-seconds", "S",
     "seconds after which an unused model other than the first is unloaded; 0: never", FLAG_SECONDS,
     AT(model_idle_us), .minimum = 0, .maximum = 1e9, .rare = true},
    {0},
};
const flag flags_server_limits[] = {
    {"--disable-log-requests --no-log-requests --no-enable-log-requests", NULL, "do not log each request",
     FLAG_SWITCH, AT(no_request_log), .rare = true},
    {"--max-connections", "N", "most connections at once; more get a 503", FLAG_COUNT, AT(max_connections),
     .minimum = 1, .maximum = 1000000, .number = 1024, .rare = true},
    {"--drain-s", "S", "seconds that running requests have to finish after SIGTERM", FLAG_SECONDS,
     AT(shutdown_deadline_us), .minimum = 0, .maximum = 1e6, .number = 10 * SECOND, .rare = true},
    {"--drain-delay-s", "S", "seconds from SIGTERM, when /ready turns to 503, to the start of the drain",
     FLAG_SECONDS, AT(drain_delay_us), .minimum = 0, .maximum = 1e6, .rare = true},
    {"--server-threads --threads-http", "N", "threads that speak HTTP", FLAG_COUNT, AT(n_loops), .minimum = 1,
     .maximum = 256, .number = 1, .rare = true},
    {"--sse-ping-s", "S", "seconds after which a stream without output sends a ping; 0: never", FLAG_SECONDS,
     AT(ping_us), .minimum = 0, .maximum = 1e6, .number = 15 * SECOND, .rare = true},
    {"--header-timeout", "S", "seconds that the header of a request may take", FLAG_SECONDS,
     AT(header_deadline_us), .minimum = 0.01, .maximum = 1e6, .number = 10 * SECOND, .rare = true},
    {"--body-timeout", "S", "seconds that the body of a request may take", FLAG_SECONDS, AT(body_deadline_us),
     .minimum = 0.01, .maximum = 1e6, .number = 60 * SECOND, .rare = true},
    {"--responses-bytes", "BYTES",
     "memory for stored responses (/v1/responses) of all tenants; 0: store none", FLAG_BYTES,
     AT(max_responses_bytes), .number = 256 << 20, .rare = true},
    {"--responses-age-s", "S", "seconds that a stored response is kept", FLAG_SECONDS,
     AT(max_response_age_us), .minimum = 1, .maximum = 1e9, .number = 2592000 * SECOND, .rare = true},
    {"--program-states", "N", "most states of a program (/v1/programs)", FLAG_COUNT, AT(program_states),
     .minimum = 1, .maximum = 65536, .number = 1024, .rare = true},
    {"--program-depth", "N", "how deep forks and steps of a program may be nested", FLAG_COUNT,
     AT(program_depth), .minimum = 1, .maximum = 64, .number = 16, .rare = true},
    {"--program-steps", "N", "most steps that a program may run, repeats included", FLAG_COUNT,
     AT(program_steps), .minimum = 1, .maximum = 1000000000, .number = 65536, .rare = true},
    {"--program-tokens", "N", "most tokens in all prompts and outputs of a program", FLAG_COUNT,
     AT(program_tokens), .minimum = 1, .maximum = 2000000000, .number = 4194304, .rare = true},
    {"--program-s", "S", "seconds that a program may run; 0: no limit", FLAG_SECONDS, AT(program_us),
     .minimum = 0, .maximum = 1e6, .number = 600 * SECOND, .rare = true},
    {"--body-min-rate", "BYTES",
     "lowest rate of a body over 64 KB, in bytes per second over any 5 s, else 408; 0: no limit", FLAG_BYTES,
     AT(body_least_rate), .number = 65536, .rare = true},
    {0},
};

static const flag *const groups[] = {flags_listen, flags_keys,          flags_origins,
                                     flags_models, flags_server_limits, NULL};

void server_options_init(server_options *o) {
    *o = (server_options){
        .max_header_bytes = 32u << 10,
        .max_body_bytes = 16u << 20, /* OpenAI's limit */
        .max_bodies_bytes = 64u << 20,
        .max_output_bytes = 1u << 20,
        .max_unread_bytes = 64u << 20,
        .body_pace_us = 5000000,
        .idle_deadline_us = 75000000,
        .write_deadline_us = 30000000,
        .model_patience_us = 10000000,
    };
    flags_set_defaults(groups, o);
}

quire_err server_options_check(const server_options *o, quire_error *err) {
    TRY(flags_check(groups, o, err));
    if (o->max_header_bytes < 256 || o->max_header_bytes > MAX_HEADER_BYTES) {
        return err_set(err, QUIRE_INVALID, -1, "header limit of %zu bytes: must be from 256 to %d",
                       o->max_header_bytes, MAX_HEADER_BYTES);
    }
    return QUIRE_OK;
}
