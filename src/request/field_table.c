/* The one table of request fields, sorted by name (request_field.h). */
#include "request/request_field.h"

#include "request/request_read.h"

#define NONE   (-FIELD_NO_LIMIT), FIELD_NO_LIMIT
#define NO_TOP FIELD_NO_LIMIT
/* RULE_INSIDE: a rule, and members beside it: a name, a description, a
 * whitespace_pattern. */
#define RULE        0, (double)PARAMS_MAX_RULE_BYTES
#define RULE_INSIDE 0, (double)(2 * PARAMS_MAX_RULE_BYTES)
#define TOOLS       0, (double)PARAMS_MAX_TOOLS_BYTES
#define INT32_TOP   2147483647.0
#define BOTH        FIELD_BOTH
#define CHAT        FIELD_CHAT
#define COMPLETIONS FIELD_COMPLETIONS
#define EMBEDDINGS  FIELD_EMBEDDINGS
#define ALL         FIELD_ALL
#define MESSAGES    FIELD_MESSAGES_API
#define RESPONSES   FIELD_RESPONSES
/* every endpoint whose answer is generated text, and that takes all fields of sampling */
#define TEXT        (FIELD_BOTH | FIELD_MESSAGES_API | FIELD_RESPONSES)
#define TOKENIZE    FIELD_TOKENIZE
#define CONTENT     FIELD_CONTENT
#define DETOKENIZE  FIELD_DETOKENIZE
#define EMBEDDING   FIELD_EMBEDDING
#define SCORE       FIELD_SCORE
#define RERANK      FIELD_RERANK
#define SCORES      FIELD_SCORES
#define NAMED       (ALL | TOKENIZE | CONTENT | DETOKENIZE | SCORES)
#define OLLAMA_CHAT FIELD_OLLAMA_CHAT
#define OLLAMA_TEXT FIELD_OLLAMA_GENERATE
#define OLLAMA      (FIELD_OLLAMA_CHAT | FIELD_OLLAMA_GENERATE)
#define PART        FIELD_PART
#define LATER       FIELD_LATER
#define IGNORED     FIELD_IGNORED
#define UNNAMED     FIELD_UNNAMED
#define SAMPLING    FIELD_SAMPLING
#define CUT         FIELD_CUT
#define REQUIRED    FIELD_REQUIRED

/* Where the value goes, the default and the choices: a member and its number, a reader
 * (and the values that it takes), or nowhere and the default as JSON text. */
#define AT(member, value)    offsetof(quire_request, member), NULL, value, NULL, NULL
#define BY(reader)           0, reader, 0, NULL, NULL
#define ONE_OF(reader, json) 0, reader, 0, NULL, json
#define UNREAD(json)         0, NULL, 0, json, NULL
#define KEPT                 0, request_read_part, 0, NULL, NULL

/* Sorted by strcmp; rows of one name are adjacent. */
static const field_desc fields[] = {
    {"add_generation_prompt", FIELD_BOOL, CHAT, NONE, AT(g.add_generation_prompt, true),
     "the template opens the assistant's answer"},
    {"add_special", FIELD_BOOL, CONTENT, NONE, AT(g.add_special, false), "add BOS and the like to the text"},
    {"add_special_tokens", FIELD_BOOL, CHAT, NONE, BY(request_read_add_special),
     "add the tokenizer's special tokens to what the template wrote, or none; null: BOS alone, where the "
     "model's texts begin with one"},
    {"add_special_tokens", FIELD_BOOL, COMPLETIONS | EMBEDDINGS | TOKENIZE, NONE,
     BY(request_read_add_special), "add BOS and the like to the prompt"},
    {"allowed_token_ids", FIELD_INTS, TEXT | SAMPLING, NONE, BY(request_read_allowed),
     "only these ids may be sampled"},
    {"attention", FIELD_OBJECT, BOTH | MESSAGES, NONE, BY(request_read_attention),
     "mask_mod and score_mod, expressions, and the arrays that they name (--trust-request-attention)"},
    {"audio", FIELD_OBJECT, CHAT | LATER, NONE, UNREAD("null"), "spoken output"},
    {"background", FIELD_BOOL, RESPONSES | PART, NONE, KEPT,
     "answer at once, and generate without the connection; needs store"},
    {"bad_words", FIELD_STRINGS, TEXT | UNNAMED | SAMPLING, NONE, BY(request_read_bad_words),
     "texts that may not be produced"},
    {"beam_width", FIELD_INT, BOTH, 1, PARAMS_MAX_BEAMS, AT(beam_width, -1),
     "over 1: beam search with this many beams, of whose results the n best are returned"},
    {"best_of", FIELD_INT, COMPLETIONS, 1, PARAMS_MAX_CHOICES, AT(best_of, -1),
     "samples of which the n likeliest, by token, are returned"},
    {"cache_control", FIELD_OBJECT, MESSAGES | IGNORED, NONE, UNREAD("null"),
     "what to cache: all that is computed is, as long as there is room"},
    {"cache_priority", FIELD_INT, TEXT, 0, 100, AT(g.cache_priority, -1),
     "how long the prompt stays in the prefix cache against others; as others: 50"},
    {"cache_salt", FIELD_STRING, ALL | MESSAGES | RESPONSES | SCORES, NONE, BY(request_read_salt),
     "a secret: only requests with the same one share prefixes with this one"},
    {"cache_ttl", FIELD_NUMBER, TEXT | FIELD_MIN_OPEN, 0, PARAMS_MAX_TTL_S, AT(g.cache_ttl_s, 0),
     "seconds after which the prompt leaves the prefix cache first"},
    {"chat_template", FIELD_STRING, CHAT | MESSAGES | RESPONSES, NONE, BY(request_read_template),
     "the name of one of the model's templates or, where the server trusts requests' own, a template's text"},
    {"chat_template_kwargs", FIELD_OBJECT, CHAT | MESSAGES | RESPONSES, NONE,
     BY(request_read_template_kwargs), "further variables for the chat template"},
    {"container", FIELD_ANY, MESSAGES | LATER, NONE, UNREAD("null"), "where Anthropic's servers run code"},
    {"content", FIELD_PROMPT, CONTENT | REQUIRED, NONE, BY(request_read_text), "the text; required"},
    {"content", FIELD_PROMPT, EMBEDDING, NONE, BY(request_read_prompt), "another name of input"},
    {"context", FIELD_ARRAY, OLLAMA_TEXT | LATER, NONE, UNREAD("null"),
     "the conversation so far, as ids of an earlier answer"},
    {"context_management", FIELD_OBJECT, MESSAGES | PART, NONE, KEPT,
     "what to drop of a long conversation: nothing is, which a Warning header says"},
    {"context_management", FIELD_ARRAY, RESPONSES | LATER, NONE, UNREAD("null"),
     "compaction of a long conversation"},
    {"continue_final_message", FIELD_BOOL, CHAT, NONE, AT(g.continue_final_message, false),
     "leave the last message open and continue it"},
    {"conversation", FIELD_ANY, RESPONSES | LATER, NONE, UNREAD("null"), "a conversation object to continue"},
    {"data_1", FIELD_ANY, SCORE, NONE, BY(request_read_queries), "another name of text_1"},
    {"data_2", FIELD_ANY, SCORE, NONE, BY(request_read_candidates), "another name of text_2"},
    {"diagnostics", FIELD_OBJECT, MESSAGES | IGNORED, NONE, UNREAD("null"),
     "a request for the reason of cache misses"},
    {"dimensions", FIELD_INT, EMBEDDINGS, 1, INT32_TOP, AT(dimensions, -1),
     "first elements of a row that are kept, before it is normalised; null: all"},
    {"diversity_penalty", FIELD_NUMBER, BOTH, 0, NO_TOP, AT(g.beams.diversity_penalty, 0),
     "beam search: what a token costs for each beam of the groups before that chose it in the same step"},
    {"documents", FIELD_ARRAY, CHAT | MESSAGES, NONE, BY(request_read_documents),
     "documents for templates that take them"},
    {"documents", FIELD_ANY, SCORES, NONE, BY(request_read_candidates),
     "texts, or objects with a text, that are compared with the query; required"},
    {"dry_allowed_length", FIELD_INT, TEXT | SAMPLING, 0, INT32_TOP, AT(g.sampling.dry_allowed_length, 2),
     "repeats shorter than this cost nothing"},
    {"dry_base", FIELD_NUMBER, TEXT | SAMPLING, 0, NO_TOP, AT(g.sampling.dry_base, 1.75),
     "each further token of a repeat costs this many times more"},
    {"dry_multiplier", FIELD_NUMBER, TEXT | SAMPLING, 0, NO_TOP, AT(g.sampling.dry_multiplier, 0),
     "strength of the penalty on repeated sequences (DRY); 0: off"},
    {"dry_penalty_last_n", FIELD_INT, TEXT | SAMPLING, -1, INT32_TOP, AT(g.sampling.dry_penalty_last_n, -1),
     "tokens looked back for repeats; -1: all, 0: none"},
    {"dry_sequence_breakers", FIELD_STRINGS, TEXT | SAMPLING, NONE, BY(request_read_breakers),
     "texts that no repeat reaches across; null: line ends, colons, quotes, asterisks"},
    {"dynatemp_exponent", FIELD_NUMBER, TEXT | SAMPLING, 0, NO_TOP, AT(g.sampling.dynatemp_exponent, 1),
     "how the entropy sets the temperature"},
    {"dynatemp_range", FIELD_NUMBER, TEXT | SAMPLING, 0, NO_TOP, AT(g.sampling.dynatemp_range, 0),
     "the temperature varies this much up and down, with the entropy; 0: off"},
    {"early_stopping", FIELD_ANY, BOTH, NONE, ONE_OF(request_read_early_stopping, "[true,false,\"never\"]"),
     "beam search: over when as many are finished as there are beams (true), when no beam is likely to do "
     "better (false) or none could "
     "(\"never\")"},
    {"ebnf", FIELD_STRING, BOTH | MESSAGES, RULE, BY(request_read_rule), "the same as grammar"},
    {"ec_transfer_params", FIELD_OBJECT, BOTH | LATER, NONE, UNREAD("null"),
     "transfer of encoder results between servers"},
    {"echo", FIELD_BOOL, CHAT, NONE, AT(echoes_message, false),
     "put the last message before the answer, if it is the assistant's"},
    {"echo", FIELD_BOOL, COMPLETIONS, NONE, AT(g.info.echo, false), "put the prompt before the text"},
    {"embd_normalize", FIELD_INT, EMBEDDING | LATER, NONE, UNREAD("2"), "the norm by which rows are divided"},
    {"encoding_format", FIELD_STRING, EMBEDDINGS, NONE, BY(request_read_encoding),
     "the form of the rows: \"float\", arrays of numbers, or \"base64\", their bytes as 32-bit floats, the "
     "lowest byte first"},
    {"explain", FIELD_BOOL, ALL | MESSAGES | SCORES, NONE, AT(g.info.explain, false),
     "tell what the request waited for, what it reused, and where its time went"},
    {"format", FIELD_ANY, OLLAMA | PART, RULE_INSIDE, KEPT,
     "\"json\", or a JSON Schema that the answer obeys"},
    {"frequency_penalty", FIELD_NUMBER, TEXT | UNNAMED | SAMPLING, -2, 2, AT(g.sampling.frequency_penalty, 0),
     "taken off a token's logit for each time it was produced"},
    {"function_call", FIELD_ANY, CHAT, TOOLS, BY(request_read_tool_choice), "the old form of tool_choice"},
    {"functions", FIELD_ARRAY, CHAT, TOOLS, BY(request_read_functions),
     "the old form of tools; answers have function_call"},
    {"grammar", FIELD_STRING, BOTH | MESSAGES, RULE, BY(request_read_rule),
     "rules in GBNF (the answer matches root) or in Lark's notation (it matches start)"},
    {"guided_choice", FIELD_ARRAY, BOTH | MESSAGES, RULE, BY(request_read_rule),
     "texts of which the answer is one"},
    {"guided_grammar", FIELD_STRING, BOTH | MESSAGES, RULE, BY(request_read_rule), "the same as grammar"},
    {"guided_json", FIELD_ANY, BOTH | MESSAGES, RULE, BY(request_read_rule), "the same as json_schema"},
    {"guided_regex", FIELD_STRING, BOTH | MESSAGES, RULE, BY(request_read_rule), "the same as regex"},
    {"ignore_eos", FIELD_BOOL, TEXT | SAMPLING, NONE, AT(g.sampling.ignore_eos, false),
     "go on after the end-of-sequence token"},
    {"images", FIELD_ARRAY, OLLAMA_TEXT | PART, NONE, KEPT, "pictures; none are taken"},
    {"include", FIELD_STRINGS, RESPONSES | PART, NONE, KEPT,
     "message.output_text.logprobs: the log-probabilities of the text"},
    {"include_reasoning", FIELD_BOOL, CHAT, NONE, AT(g.include_reasoning, true),
     "return the reasoning, apart from the answer"},
    {"include_stop_str_in_output", FIELD_BOOL, TEXT, NONE, AT(g.include_stop, false),
     "the text ends with the stop string it stopped at"},
    {"inference_geo", FIELD_STRING, MESSAGES | IGNORED, NONE, UNREAD("null"), "where Anthropic computes"},
    {"input", FIELD_PROMPT, EMBEDDING, NONE, BY(request_read_prompt),
     "a text, an array of ids, or an array of either; this or content is required"},
    {"input", FIELD_PROMPT, EMBEDDINGS | REQUIRED, NONE, BY(request_read_prompt),
     "a text, an array of ids, or an array of either; required"},
    {"input", FIELD_ANY, RESPONSES | PART | REQUIRED, NONE, KEPT, "a text, or an array of items; required"},
    {"instructions", FIELD_STRING, RESPONSES | PART, NONE, KEPT,
     "a system message before all others; not carried over by previous_response_id"},
    {"items", FIELD_ANY, SCORE, NONE, BY(request_read_candidates), "another name of text_2"},
    {"json_additional_properties", FIELD_STRING, BOTH | MESSAGES, NONE,
     ONE_OF(request_read_additional, "[\"closed\",\"schema\"]"),
     "names that a schema's object does not list: \"closed\" is none, where it lists some and says nothing "
     "of others, \"schema\" what the "
     "standard lets come; null: as the server was started, closed unless it was told"},
    {"json_numbers", FIELD_STRING, BOTH | MESSAGES, NONE, ONE_OF(request_read_numbers, "[\"short\",\"any\"]"),
     "integers and constants of a schema: \"short\" writes 1, \"any\" also 1.0"},
    {"json_property_order", FIELD_STRING, BOTH | MESSAGES, NONE,
     ONE_OF(request_read_order, "[\"schema\",\"any\"]"),
     "the order of members that a schema's properties list: \"schema\", as they are listed, or \"any\""},
    {"json_schema", FIELD_ANY, BOTH | MESSAGES, RULE, BY(request_read_rule),
     "a JSON Schema that the answer obeys, or its text"},
    {"json_whitespace", FIELD_STRING, BOTH | MESSAGES, NONE,
     ONE_OF(request_read_space, "[\"compact\",\"lines\",\"any\"]"),
     "white space in an answer that a schema describes: \"compact\" is none, \"lines\" a space, or one or "
     "two line ends and up to 20 "
     "spaces, \"any\" runs of at most 20 characters; null: as the server was started, compact unless it was "
     "told"},
    {"keep_alive", FIELD_ANY, OLLAMA | IGNORED, NONE, UNREAD("null"),
     "how long the model stays in memory: here as long as the server runs"},
    {"kv_transfer_params", FIELD_OBJECT, BOTH | LATER, NONE, UNREAD("null"),
     "transfer of KV pages between servers"},
    {"length_penalty", FIELD_NUMBER, BOTH, -32, 32, AT(g.beams.length_penalty, 1),
     "beam search: the sum of log-probabilities is divided by the length to this power"},
    {"logit_bias", FIELD_OBJECT, TEXT | SAMPLING, NONE, BY(request_read_logit_bias),
     "added to the logits of the ids named"},
    {"logprob_token_ids", FIELD_INTS, BOTH | LATER, NONE, UNREAD("null"),
     "ids whose log-probabilities are returned at each position"},
    {"logprobs", FIELD_BOOL, CHAT, NONE, BY(request_read_logprobs),
     "return the log-probabilities of the tokens"},
    {"logprobs", FIELD_INT, COMPLETIONS, 0, PARAMS_MAX_LOGPROBS, BY(request_read_logprobs),
     "return log-probabilities, of this many tokens a position"},
    {"logprobs", FIELD_BOOL, OLLAMA | LATER, NONE, UNREAD("false"), "log-probabilities of the answer"},
    {"max_completion_tokens", FIELD_INT, CHAT | SAMPLING | CUT, 1, INT32_TOP, AT(max_completion_tokens, -1),
     "most tokens to produce; goes before max_tokens"},
    {"max_output_tokens", FIELD_INT, RESPONSES | SAMPLING | CUT, 1, INT32_TOP, AT(g.sampling.max_tokens, -1),
     "most tokens to produce; null: as many as fit"},
    {"max_prompt_tokens", FIELD_INT, BOTH, 1, INT32_TOP, AT(g.max_prompt_tokens, -1),
     "most tokens that the prompt may have: a longer one is refused; null: as many as fit"},
    {"max_tokens", FIELD_INT, CHAT | SAMPLING | CUT, 1, INT32_TOP, AT(g.sampling.max_tokens, -1),
     "most tokens to produce; null: as many as fit"},
    {"max_tokens", FIELD_INT, COMPLETIONS | SAMPLING | CUT, 0, INT32_TOP, AT(g.sampling.max_tokens, 16),
     "most tokens to produce; 0 only with echo"},
    {"max_tokens", FIELD_INT, MESSAGES | SAMPLING | CUT | REQUIRED, 1, INT32_TOP,
     AT(g.sampling.max_tokens, -1), "most tokens to produce, reasoning included; required"},
    {"max_tool_calls", FIELD_INT, CHAT | CUT | RESPONSES, 1, 1024, AT(g.max_tool_calls, -1),
     "most tool calls of an answer; null: as the server has it"},
    {"mcp_servers", FIELD_ARRAY, MESSAGES | LATER, NONE, UNREAD("[]"),
     "servers of tools that Anthropic's servers call"},
    {"media_io_kwargs", FIELD_OBJECT, CHAT | LATER, NONE, UNREAD("null"), "settings for reading media"},
    {"messages", FIELD_MESSAGES, FIELD_CHAT_BATCH | REQUIRED, NONE, BY(request_read_conversations),
     "an array of conversations, each an array of messages; required"},
    {"messages", FIELD_MESSAGES, CHAT | UNNAMED | REQUIRED, NONE, BY(request_read_messages),
     "the conversation; required"},
    {"messages", FIELD_ARRAY, OLLAMA_CHAT | PART, NONE, KEPT, "the conversation; required"},
    {"messages", FIELD_ARRAY, MESSAGES | PART | REQUIRED, NONE, KEPT,
     "the conversation: turns of the roles user and assistant; required"},
    {"metadata", FIELD_OBJECT, BOTH | MESSAGES | IGNORED, NONE, UNREAD("null"), "the caller's own notes"},
    {"metadata", FIELD_OBJECT, RESPONSES | PART, NONE, KEPT,
     "the caller's own notes, strings by name, which the response repeats"},
    {"min_p", FIELD_NUMBER, TEXT | UNNAMED | SAMPLING, 0, 1, AT(g.sampling.min_p, 0),
     "leaves out tokens less likely than this part of the likeliest"},
    {"min_tokens", FIELD_INT, TEXT | SAMPLING, 0, INT32_TOP, AT(g.sampling.min_tokens, 0),
     "tokens to produce before a stop token is allowed"},
    {"mirostat", FIELD_INT, TEXT | SAMPLING, 0, 2, AT(g.sampling.mirostat, 0),
     "keeps the surprise of the tokens near mirostat_tau, by version 1 or 2; 0: off"},
    {"mirostat_eta", FIELD_NUMBER, TEXT | SAMPLING, 0, NO_TOP, AT(g.sampling.mirostat_eta, 0.1),
     "how fast mirostat learns"},
    {"mirostat_tau", FIELD_NUMBER, TEXT | SAMPLING, 0, NO_TOP, AT(g.sampling.mirostat_tau, 5),
     "the surprise that mirostat aims at, in bits"},
    {"mm_payload", FIELD_STRING, BOTH | LATER, NONE, UNREAD("\"tensors\""),
     "how media come back from rendering"},
    {"mm_processor_kwargs", FIELD_OBJECT, CHAT | LATER, NONE, UNREAD("null"), "settings for preparing media"},
    {"modalities", FIELD_STRINGS, CHAT | LATER, NONE, UNREAD("[\"text\"]"), "kinds of output"},
    {"model", FIELD_STRING, MESSAGES | RESPONSES | NAMED, NONE, BY(request_read_model),
     "the name of a served model; the first when absent"},
    {"model", FIELD_STRING, OLLAMA, NONE, BY(request_read_ollama_model),
     "the name of a served model, with or without \":latest\""},
    {"n", FIELD_INT, BOTH | UNNAMED, 1, PARAMS_MAX_CHOICES, BY(request_read_n), "answers to each prompt"},
    {"no_repeat_ngram_size", FIELD_INT, TEXT | SAMPLING, 0, INT32_TOP, AT(g.sampling.no_repeat_ngram_size, 0),
     "no sequence of this many tokens occurs twice; 0: off"},
    {"normalize", FIELD_BOOL, EMBEDDINGS, NONE, BY(request_read_normalize),
     "divide a row by its length; null: as the model says and, where it says nothing of its embeddings, "
     "true"},
    {"num_beam_groups", FIELD_INT, BOTH, 1, PARAMS_MAX_BEAMS, AT(g.beams.n_groups, 1),
     "diverse beam search: the beams are divided into this many groups, chosen one after the other"},
    {"num_beams", FIELD_INT, BOTH, 1, PARAMS_MAX_BEAMS, AT(beam_width, -1), "another name of beam_width"},
    {"num_return_sequences", FIELD_INT, BOTH, 1, PARAMS_MAX_CHOICES, BY(request_read_n), "another name of n"},
    {"options", FIELD_OBJECT, OLLAMA | PART, NONE, KEPT, "sampling, lengths and stops, by Ollama's names"},
    {"output_config", FIELD_OBJECT, MESSAGES | PART, RULE_INSIDE, KEPT,
     "effort, the reasoning_effort of the template, and format, a JSON Schema that the answer obeys"},
    {"output_config.format", FIELD_OBJECT, MESSAGES, NONE, BY(request_read_format),
     "{\"type\": \"json_schema\", \"schema\": ..}"},
    {"output_format", FIELD_OBJECT, MESSAGES | PART, RULE_INSIDE, KEPT,
     "the old form of output_config.format"},
    {"parallel_tool_calls", FIELD_BOOL, CHAT | RESPONSES, NONE, AT(g.parallel_calls, true),
     "tool calls of an answer may be several; false: one at most"},
    {"parse_special", FIELD_BOOL, CONTENT, NONE, BY(request_read_parse_special),
     "special tokens that the text names are tokens; false: ordinary text"},
    {"pooling", FIELD_STRING, EMBEDDINGS | SCORES, NONE, BY(request_read_pooling),
     "the row of an input: the \"mean\" of its tokens' rows, the first (\"cls\") or the \"last\" of them; "
     "null: as the model's files say; required where they name none"},
    {"prediction", FIELD_OBJECT, CHAT | IGNORED, NONE, UNREAD("null"),
     "a guess at the answer, which may speed it up"},
    {"presence_penalty", FIELD_NUMBER, TEXT | UNNAMED | SAMPLING, -2, 2, AT(g.sampling.presence_penalty, 0),
     "taken off the logit of each token that was produced"},
    {"previous_response_id", FIELD_STRING, RESPONSES | PART, NONE, KEPT,
     "a stored response that this one continues"},
    {"priority", FIELD_INT, ALL | MESSAGES | RESPONSES | SCORES, -INT32_TOP, INT32_TOP, AT(g.priority, 0),
     "lower is admitted earlier, where the server schedules by priority"},
    {"prompt", FIELD_PROMPT, COMPLETIONS | REQUIRED, NONE, BY(request_read_prompt),
     "a text, an array of ids, or an array of either; required"},
    {"prompt", FIELD_STRING, OLLAMA_TEXT | PART, NONE, KEPT, "the user's turn or, with raw, the prompt"},
    {"prompt", FIELD_OBJECT, RESPONSES | LATER, NONE, UNREAD("null"), "a prompt template's id"},
    {"prompt", FIELD_PROMPT, TOKENIZE | REQUIRED, NONE, BY(request_read_text),
     "the text; this or messages is required"},
    {"prompt_cache_key", FIELD_STRING, BOTH | IGNORED, NONE, UNREAD("null"),
     "a hint which requests share a prefix"},
    {"prompt_cache_key", FIELD_STRING, RESPONSES | PART, NONE, KEPT, "a hint which requests share a prefix"},
    {"prompt_cache_retention", FIELD_STRING, BOTH | IGNORED, NONE, UNREAD("null"),
     "a hint how long to keep the prefix"},
    {"prompt_cache_retention", FIELD_STRING, RESPONSES | IGNORED, NONE, UNREAD("null"),
     "a hint how long to keep the prefix"},
    {"prompt_embeds", FIELD_ANY, COMPLETIONS | LATER, NONE, UNREAD("null"), "the prompt as embedding rows"},
    {"prompt_logprobs", FIELD_INT, BOTH, 0, PARAMS_MAX_LOGPROBS, AT(n_prompt_logprobs, -1),
     "return log-probabilities of the prompt's tokens"},
    {"queries", FIELD_ANY, SCORE, NONE, BY(request_read_queries), "another name of text_1"},
    {"query", FIELD_ANY, RERANK | REQUIRED, NONE, BY(request_read_queries),
     "the text that documents are compared with; required"},
    {"raw", FIELD_BOOL, OLLAMA_TEXT | PART, NONE, KEPT, "the prompt is used as it is, without the template"},
    {"reasoning", FIELD_OBJECT, RESPONSES | PART, NONE, KEPT,
     "effort: how long a reasoning model thinks, a variable of its template"},
    {"reasoning_effort", FIELD_STRING, CHAT, NONE, BY(request_read_effort),
     "how long a reasoning model thinks: a variable of its template"},
    {"regex", FIELD_STRING, BOTH | MESSAGES, RULE, BY(request_read_rule),
     "a regular expression that the whole answer matches"},
    {"repetition_detection", FIELD_OBJECT, BOTH | LATER, NONE, UNREAD("null"),
     "end when the text repeats itself"},
    {"repetition_penalty", FIELD_NUMBER, TEXT | UNNAMED | FIELD_MIN_OPEN | SAMPLING, 0, NO_TOP,
     AT(g.sampling.repetition_penalty, 1), "divides the logits of tokens that occurred"},
    {"request_id", FIELD_STRING, BOTH, NONE, BY(request_read_request_id),
     "the end of the answer's id: up to 64 visible ASCII characters"},
    {"response_format", FIELD_OBJECT, BOTH, RULE_INSIDE, BY(request_read_format),
     "the form that the answer must have"},
    {"return_documents", FIELD_BOOL, RERANK, NONE, AT(g.more.return_documents, true),
     "the results have the documents' texts"},
    {"return_mm_kwargs", FIELD_BOOL, BOTH | LATER, NONE, UNREAD("false"), "the old form of mm_payload"},
    {"return_progress", FIELD_BOOL, BOTH, NONE, AT(g.more.return_progress, false),
     "streams: say in prompt_progress how much of a long prompt is processed"},
    {"return_prompt_text", FIELD_BOOL, CHAT, NONE, AT(g.more.return_prompt_text, false),
     "return the text that the template wrote"},
    {"return_token_ids", FIELD_BOOL, BOTH, NONE, AT(g.info.return_token_ids, false),
     "return the ids of prompt and answer"},
    {"return_token_offsets", FIELD_BOOL, BOTH | IGNORED, NONE, UNREAD("false"),
     "of render: return where in the text each prompt token lies; here it is null"},
    {"return_token_strs", FIELD_BOOL, TOKENIZE, NONE, AT(g.more.token_texts, false),
     "return the vocabulary's spelling of each id"},
    {"return_tokens_as_token_ids", FIELD_BOOL, BOTH, NONE, AT(g.more.tokens_as_ids, false),
     "log-probabilities name tokens by id: token_id:7"},
    {"routed_experts_prompt_start", FIELD_INT, BOTH | LATER, NONE, UNREAD("0"),
     "first prompt token whose experts are returned"},
    {"safety_identifier", FIELD_STRING, BOTH | IGNORED, NONE, UNREAD("null"), "who the caller's user is"},
    {"safety_identifier", FIELD_STRING, RESPONSES | PART, NONE, KEPT, "who the caller's user is"},
    {"seed", FIELD_INT, TEXT | SAMPLING, NONE, BY(request_read_seed),
     "makes sampling repeatable; null or -1: a new one"},
    {"service_tier", FIELD_STRING, BOTH | MESSAGES | IGNORED, NONE, UNREAD("null"), "OpenAI's price class"},
    {"service_tier", FIELD_STRING, RESPONSES | IGNORED, NONE, UNREAD("null"), "OpenAI's price class"},
    {"session_id", FIELD_STRING, BOTH | MESSAGES | IGNORED, NONE, UNREAD("null"),
     "which requests belong together"},
    {"skip_special_tokens", FIELD_BOOL, TEXT, NONE, AT(g.skip_special, true),
     "leave special tokens out of the text"},
    {"spaces_between_special_tokens", FIELD_BOOL, BOTH | IGNORED, NONE, UNREAD("true"),
     "spaces between special tokens, which the tokenizers of this server do not add"},
    {"speed", FIELD_STRING, MESSAGES | IGNORED, NONE, UNREAD("null"), "Anthropic's price class"},
    {"stop", FIELD_STRINGS, BOTH | UNNAMED | RESPONSES, NONE, BY(request_read_stop),
     "texts at which the answer ends"},
    {"stop_sequences", FIELD_STRINGS, MESSAGES, NONE, BY(request_read_stop),
     "texts at which the answer ends"},
    {"stop_token_ids", FIELD_INTS, TEXT | SAMPLING, 0, INT32_TOP, BY(request_read_stop_tokens),
     "ids at which the answer ends"},
    {"store", FIELD_BOOL, CHAT | IGNORED, NONE, UNREAD("false"), "OpenAI's log of answers"},
    {"store", FIELD_BOOL, RESPONSES | PART, NONE, KEPT,
     "keep the response, to be fetched or continued; null: true"},
    {"stream", FIELD_BOOL, TEXT, NONE, AT(g.info.stream, false), "send the answer piece by piece"},
    {"stream", FIELD_BOOL, OLLAMA, NONE, AT(g.info.stream, true), "send the answer piece by piece"},
    {"stream_interval", FIELD_INT, BOTH, 1, INT32_TOP, AT(g.more.stream_interval, 1),
     "tokens in each piece of a stream, at least, but for its first and its last"},
    {"stream_options", FIELD_OBJECT, BOTH, NONE, BY(request_read_stream_options),
     "what a stream carries beside text; needs stream"},
    {"stream_options", FIELD_OBJECT, RESPONSES | IGNORED, NONE, UNREAD("null"),
     "OpenAI's padding of the pieces"},
    {"stream_options.continuous_usage_stats", FIELD_BOOL, BOTH, NONE, AT(g.info.continuous_usage, false),
     "usage comes with every piece"},
    {"stream_options.include_obfuscation", FIELD_BOOL, BOTH | IGNORED, NONE, UNREAD("false"),
     "OpenAI's padding of the pieces"},
    {"stream_options.include_usage", FIELD_BOOL, BOTH, NONE, AT(g.info.include_usage, false),
     "usage comes in a last piece of its own"},
    {"structured_outputs", FIELD_OBJECT, TEXT | OLLAMA, RULE_INSIDE, BY(request_read_structured),
     "a regex, schema, choice or grammar for the answer"},
    {"suffix", FIELD_STRING, COMPLETIONS, NONE, BY(request_read_suffix),
     "what comes after the answer, which fills the gap after the prompt, by the model's fill-in-the-middle "
     "tokens"},
    {"suffix", FIELD_STRING, OLLAMA_TEXT | PART, NONE, KEPT, "what comes after the text to fill in"},
    {"system", FIELD_STRING, OLLAMA_TEXT | PART, NONE, KEPT, "the system's turn before the prompt"},
    {"system", FIELD_ANY, MESSAGES | PART, NONE, KEPT, "the system prompt: a text or text blocks"},
    {"temperature", FIELD_NUMBER, BOTH | SAMPLING | RESPONSES, 0, 2, AT(g.sampling.temperature, 1),
     "flattens (over 1) or sharpens (under 1) the choice; 0: the likeliest token"},
    {"temperature", FIELD_NUMBER, MESSAGES | SAMPLING, 0, 1, AT(g.sampling.temperature, 1),
     "sharpens the choice; 0: the likeliest token"},
    {"template", FIELD_STRING, OLLAMA_TEXT | LATER, NONE, UNREAD("null"),
     "a template in place of the model's"},
    {"text", FIELD_OBJECT, RESPONSES | PART, RULE_INSIDE, KEPT,
     "format: the form that the text must have; verbosity: how long it is"},
    {"text_1", FIELD_ANY, SCORE, NONE, BY(request_read_queries),
     "a text, or one for each of text_2; required"},
    {"text_2", FIELD_ANY, SCORE, NONE, BY(request_read_candidates), "a text or several; required"},
    {"think", FIELD_ANY, OLLAMA | PART, NONE, KEPT,
     "true, false or a level: whether, or how long, a reasoning model thinks"},
    {"thinking", FIELD_OBJECT, MESSAGES | PART, NONE, KEPT,
     "whether a reasoning model thinks, how much of it (budget_tokens) and whether it is shown"},
    {"thinking.budget_tokens", FIELD_INT, MESSAGES, 1, INT32_TOP, AT(g.thinking_budget, -1),
     "most tokens of reasoning"},
    {"thinking_token_budget", FIELD_INT, BOTH | RESPONSES, -1, INT32_TOP, AT(g.thinking_budget, -1),
     "most tokens a reasoning model may think; -1: no bound"},
    {"token_type_ids", FIELD_ARRAY, EMBEDDINGS, NONE, BY(request_read_types),
     "a type for each id of an input that is given as ids; null: all are of type 0"},
    {"tokens", FIELD_PROMPT, DETOKENIZE | REQUIRED, NONE, BY(request_read_tokens),
     "an array of ids; required"},
    {"tool_choice", FIELD_ANY, CHAT, TOOLS, BY(request_read_tool_choice),
     "\"auto\": the model may call tools; \"none\": no text is a call; null: \"auto\" with tools"},
    {"tool_choice", FIELD_OBJECT, MESSAGES | PART, TOOLS, KEPT,
     "of type auto, any, tool or none; disable_parallel_tool_use: one call at most"},
    {"tool_choice", FIELD_ANY, RESPONSES | PART, TOOLS, KEPT,
     "\"auto\": the model may call tools; \"none\": no text is a call; null: \"auto\" with tools"},
    {"tools", FIELD_ARRAY, CHAT, TOOLS, BY(request_read_tools),
     "functions and custom tools that the model may call"},
    {"tools", FIELD_ARRAY, OLLAMA_CHAT | PART, TOOLS, KEPT, "functions that the model may call"},
    {"tools", FIELD_ARRAY, MESSAGES | PART, TOOLS, KEPT,
     "tools with a name and an input_schema that the model may call"},
    {"tools", FIELD_ARRAY, RESPONSES | PART, TOOLS, KEPT,
     "functions and custom tools that the model may call"},
    {"top_k", FIELD_INT, BOTH | UNNAMED | SAMPLING | RESPONSES, -1, INT32_TOP, AT(g.sampling.top_k, 0),
     "choose among this many likeliest tokens; 0 or -1: all"},
    {"top_k", FIELD_INT, MESSAGES | SAMPLING, 0, INT32_TOP, AT(g.sampling.top_k, 0),
     "choose among this many likeliest tokens; 0: all"},
    {"top_logprobs", FIELD_INT, CHAT, 0, INT32_TOP, AT(n_top_logprobs, 0),
     "tokens a position whose log-probabilities are returned; needs logprobs"},
    {"top_logprobs", FIELD_INT, OLLAMA | LATER, NONE, UNREAD("0"),
     "tokens a position whose log-probabilities are returned"},
    {"top_logprobs", FIELD_INT, RESPONSES | PART, 0, 20, KEPT,
     "tokens a position whose log-probabilities are returned; needs include"},
    {"top_n", FIELD_INT, RERANK, 0, INT32_TOP, AT(g.more.top_n, 0), "most results; 0 or null: all"},
    {"top_n_sigma", FIELD_NUMBER, TEXT | SAMPLING, NONE, AT(g.sampling.top_n_sigma, 0),
     "leaves out logits this many standard deviations under the best; 0 or less: off"},
    {"top_p", FIELD_NUMBER, BOTH | FIELD_MIN_OPEN | SAMPLING | RESPONSES, 0, 1, AT(g.sampling.top_p, 1),
     "choose among the likeliest tokens that together have this probability"},
    {"top_p", FIELD_NUMBER, MESSAGES | FIELD_MIN_OPEN | SAMPLING, 0, 1, AT(g.sampling.top_p, 1),
     "choose among the likeliest tokens that together have this probability"},
    {"truncate_prompt_tokens", FIELD_INT, ALL | SCORES, -1, INT32_TOP,
     AT(g.truncate_prompt_tokens, GENERATION_UNCUT),
     "tokens to which a longer prompt is cut; -1: as many as fit; null: a prompt that does not fit is "
     "refused"},
    {"truncation", FIELD_STRING, RESPONSES | LATER, NONE, UNREAD("\"disabled\""),
     "what to leave out of a conversation that does not fit"},
    {"truncation_side", FIELD_STRING, ALL | SCORES, NONE, BY(request_read_truncation_side),
     "what a cut takes away: \"left\" is the prompt's beginning, \"right\" its end; null: left, of "
     "embeddings "
     "and scores right"},
    {"ttft_deadline_ms", FIELD_NUMBER, ALL | MESSAGES | FIELD_MIN_OPEN | RESPONSES | SCORES, 0,
     PARAMS_MAX_TTL_S, AT(g.ttft_deadline_ms, 0),
     "refused with 429 where the first token cannot come within this time"},
    {"typical_p", FIELD_NUMBER, TEXT | FIELD_MIN_OPEN | SAMPLING, 0, 1, AT(g.sampling.typical_p, 1),
     "choose among the tokens nearest to the expected surprise that together have this probability"},
    {"use_beam_search", FIELD_BOOL, BOTH, NONE, AT(use_beam_search, false),
     "beam search; without beam_width, best_of or else n is the number of beams"},
    {"user", FIELD_STRING, ALL | IGNORED | SCORES, NONE, UNREAD("null"), "who the caller's user is"},
    {"user", FIELD_STRING, RESPONSES | PART, NONE, KEPT, "who the caller's user is"},
    {"user_profile_id", FIELD_STRING, MESSAGES | IGNORED, NONE, UNREAD("null"),
     "on whose behalf the caller asks"},
    {"verbosity", FIELD_STRING, CHAT, NONE, BY(request_read_verbosity),
     "how long the answer is: a variable of the template"},
    {"vllm_xargs", FIELD_OBJECT, BOTH, NONE, BY(request_read_named_only),
     "parameters of vLLM's extensions: without effect, which a Warning header says"},
    {"watermarking", FIELD_BOOL, BOTH | LATER, NONE, UNREAD("false"), "mark the text"},
    {"web_search_options", FIELD_OBJECT, CHAT | LATER, NONE, UNREAD("null"), "search the web"},
    {"with_pieces", FIELD_BOOL, CONTENT, NONE, AT(g.more.token_texts, false),
     "return the text of each id beside it"},
    {"workspace_id", FIELD_STRING, MESSAGES | IGNORED, NONE, UNREAD("null"),
     "the caller's workspace at Anthropic"},
    {"xtc_probability", FIELD_NUMBER, TEXT | SAMPLING, 0, 1, AT(g.sampling.xtc_probability, 0),
     "how often the likeliest tokens are left out (XTC)"},
    {"xtc_threshold", FIELD_NUMBER, TEXT | SAMPLING, 0, 1, AT(g.sampling.xtc_threshold, 0.1),
     "XTC leaves out tokens at least this likely, but for the last of them"},
};

enum { N_FIELDS = (int)(sizeof fields / sizeof fields[0]) };

const field_desc *request_fields(int32_t *n) {
    *n = N_FIELDS;
    return fields;
}

const field_desc *request_field(const char *name, uint32_t endpoint) {
    int lo = 0, hi = N_FIELDS;
    while (lo < hi) { /* the first row not below name */
        int mid = lo + (hi - lo) / 2;
        if (strcmp(fields[mid].name, name) < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    for (; lo < N_FIELDS && strcmp(fields[lo].name, name) == 0; lo++) {
        if (fields[lo].flags & endpoint) {
            return &fields[lo];
        }
    }
    return NULL;
}

size_t request_field_max_bytes(const field_desc *f) {
    bool is_number = f->type == FIELD_INT || f->type == FIELD_NUMBER || f->type == FIELD_INTS;
    return is_number || f->maximum >= FIELD_NO_LIMIT ? 0 : (size_t)f->maximum;
}

const char *request_rule_param(const field_desc *f) {
    return f->type == FIELD_OBJECT ? "" : f->name; /* response_format, structured_outputs */
}
