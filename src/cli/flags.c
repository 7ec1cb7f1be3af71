#include "cli/flags.h"

#include <stddef.h>

#define AT(member) .offset = offsetof(cli_options, member)

const flag flags_hub[] = {
    {"--download-dir", "DIR",
     "cache directory for models from the hub (HF_HUB_CACHE, else ~/.cache/huggingface/hub)", FLAG_TEXT,
     AT(download_dir), .rare = true},
    {"--offline", NULL, "fetch nothing, like HF_HUB_OFFLINE=1: use only models in the cache", FLAG_SWITCH,
     AT(offline), .rare = true},
    {"--hf-token -hft", "TOKEN",
     "access token for the hub (HF_TOKEN, else the file that `hf auth login` writes)", FLAG_TEXT,
     AT(hf_token), .rare = true, .secret = true},
    {0},
};
const flag flags_hub_model[] = {
    {"--hf-repo -hf -hfr", "NAME", "the model's name on the hub, ORG/NAME[:QUANT]", FLAG_TEXT, AT(hf_repo),
     .rare = true},
    {"--hf-file -hff", "FILE", "the GGUF file of ORG/NAME to use, like ORG/NAME:FILE", FLAG_TEXT, AT(hf_file),
     .rare = true},
    {"--revision", "REV", "the branch, tag or commit of ORG/NAME, like ORG/NAME@REV; main unless given",
     FLAG_TEXT, AT(revision), .rare = true},
    {0},
};
const flag flags_prompt[] = {
    {"--prompt -p", "TEXT", "the prompt", FLAG_TEXT, AT(prompt)},
    {"--file -f", "FILE", "read the prompt from FILE (- is standard input)", FLAG_TEXT, AT(prompt_file)},
    {0},
};
const flag flags_out[] = {
    {"--out -o", "FILE", "file for the answers, as JSON Lines (logits: a .npy file)", FLAG_TEXT, AT(out)},
    {0},
};
const flag flags_chat_template[] = {
    {"--chat-template --chat-template-file", "FILE|TEXT", "a Jinja template to use instead of the model's",
     FLAG_TEXT, AT(chat_template)},
    {0},
};
const flag flags_json[] = {
    {"--json", NULL, "print JSON, for programs", FLAG_SWITCH, AT(json)},
    {0},
};
const flag flags_quiet[] = {
    {"--quiet -q", NULL, "print less on standard error", FLAG_SWITCH, AT(quiet)},
    {0},
};
const flag flags_help[] = {
    {"--help -h", NULL, "print this help", FLAG_SWITCH, AT(help)},
    {0},
};
const flag flags_help_all[] = {
    {"--help-all", NULL, "print all flags, including rarely needed ones", FLAG_SWITCH, AT(help_all),
     .rare = true},
    {0},
};

/* Flags of vLLM and llama-server that scripts may pass. tools/flags.py makes
 * docs/flags.md from these rows. */

#define TAKEN(names_, reason)                                                                                \
    { names_, NULL, reason, FLAG_TAKEN, .offset = 0 }
#define TAKEN_ANY(names_, reason)                                                                            \
    { names_, "X", reason, FLAG_TAKEN_VALUE, .offset = 0 }
#define TAKEN_IF(names_, of, reason)                                                                         \
    { names_, "X", reason, FLAG_TAKEN_VALUE, .choices = of }
#define TAKEN_MAY(names_, of, reason)                                                                        \
    { names_, "X", reason, FLAG_TAKEN_CHOICE, .choices = of }
#define LATER(names_, reason)                                                                                \
    { names_, NULL, reason, FLAG_LATER, .offset = 0 }
#define REFUSED(names_, reason)                                                                              \
    { names_, NULL, reason, FLAG_REFUSED, .offset = 0 }
#define ONLY(value)                                                                                          \
    (const flag_choice[]) {                                                                                  \
        {value, value, 0}, {                                                                                 \
            0                                                                                                \
        }                                                                                                    \
    }

static const flag_choice one[] = {{"1", "1", 0}, {0}}, main_branch[] = {{"main", "", 0}, {0}};
static const flag_choice on_or_off[] = {{"on", "", 0}, {"off", "", 0}, {"auto", "", 0},
                                        {"1", "", 0},  {"0", "", 0},   {0}};
static const flag_choice load_formats[] = {{"auto", "", 0}, {"safetensors", "", 0}, {"gguf", "", 0}, {0}};
static const flag_choice executors[] = {{"mp", "", 0}, {"uni", "", 0}, {0}};
static const flag_choice tokenizer_modes[] = {{"auto", "", 0}, {"hf", "", 0}, {"slow", "", 0}, {0}};
static const flag_choice config_formats[] = {{"auto", "", 0}, {"hf", "", 0}, {0}};
static const flag_choice reasoning_formats[] = {{"auto", "", 0}, {"deepseek", "", 0}, {0}};

const flag flags_carried[] = {
    /* flags about the machine and the model's file */
    TAKEN_ANY("--gpu-memory-utilization",
              "there is no GPU; --memory-utilization PART is the part of the free host memory for KV pages"),
    TAKEN("--trust-remote-code", "a model's code is never run"),
    TAKEN("--enforce-eager --async-scheduling -O0 -O1 -O2 -O3",
          "nothing is compiled or captured while the engine runs"),
    TAKEN_ANY("--compilation-config -O -cc", "nothing is compiled while the engine runs"),
    TAKEN_IF("--tensor-parallel-size -tp --pipeline-parallel-size -pp --data-parallel-size -dp --nnodes", one,
             "one process runs the whole model"),
    TAKEN_IF("--distributed-executor-backend", executors, "one process runs the whole model"),
    TAKEN("--enable-expert-parallel --enable-eplb", "one process has all experts"),
    TAKEN_ANY("--gpu-layers -ngl --n-gpu-layers -ngld --gpu-layers-draft", "all layers run on the CPU"),
    TAKEN_ANY("--split-mode -sm --tensor-split -ts --main-gpu -mg --override-tensor -ot",
              "all layers run on the CPU"),
    TAKEN_ANY("--cpu-offload-gb --n-cpu-moe -ncmoe", "weights are always in host memory"),
    TAKEN("--no-kv-offload -nkvo --cpu-moe -cmoe", "keys, values and experts are always in host memory"),
    TAKEN_MAY("--flash-attn -fa", on_or_off,
              "attention has one implementation, which stores no matrix of scores"),
    TAKEN_ANY("--ubatch-size -ub", "a step is not divided; --max-num-batched-tokens sets its rows"),
    TAKEN_ANY("--threads-batch -tb", "--threads sets the threads for prompts and answers alike"),
    TAKEN_ANY("--numa", "pages are spread over memory nodes anyway; --cpu-bind places threads"),
    TAKEN("--warmup --no-warmup", "the engine needs no warm-up"),
    TAKEN("--mmap --no-mmap", "the format decides: packed models are mapped (quire pack), the others' "
                              "weights are packed as they load"),
    TAKEN("--cont-batching -cb --kv-unified --enable-chunked-prefill", "this is always on"),
    TAKEN("--no-context-shift", "this is always so: a sequence that is full ends"),
    TAKEN_ANY("--keep", "no context is shifted, so no tokens are dropped"),
    TAKEN_IF("--cache-reuse", ONLY("0"),
             "cached pages are reused at the positions at which they were computed"),
    TAKEN_ANY("--slot-prompt-similarity -sps", "the prefix cache finds what any sequence has computed"),
    TAKEN_ANY("--prefix-caching-hash-algo", "the prefix cache compares tokens, not hashes"),
    TAKEN("--calculate-kv-scales", "int8 keys and values always have their own scales"),
    TAKEN("--disable-hybrid-kv-cache-manager", "layers of every kind have their own pages"),
    TAKEN_ANY("--ignore-patterns", "only the files that Quire reads are fetched"),
    TAKEN_IF("--tokenizer-revision --code-revision", main_branch, "all files come from --revision"),
    TAKEN("--fully-sharded-loras", "one process holds each adapter whole"),
    TAKEN_ANY("--lora-dtype", "adapters are computed in f32, whatever the type in their files"),
    TAKEN_IF("--load-format", load_formats, "the format is detected from the file"),
    TAKEN_IF("--config-format", config_formats, "the format is detected from the file"),
    TAKEN_IF("--tokenizer-mode", tokenizer_modes, "there is one tokenizer"),
    /* the server */
    TAKEN("--enable-log-requests --disable-uvicorn-access-log",
          "each request has one log line; --disable-log-requests turns that off"),
    TAKEN("--enable-request-id-headers", "every response has X-Request-Id"),
    TAKEN("--log-timestamps", "every log line of the server has a time"),
    TAKEN_ANY("--max-log-len", "prompts and answers are never logged"),
    TAKEN("--disable-log-stats", "statistics are only at /metrics"),
    TAKEN("--metrics", "/metrics is always available"),
    TAKEN("--enable-sleep-mode", "/sleep, /wake_up and /is_sleeping are always available to the operator"),
    TAKEN("--no-slots --no-webui --disable-fastapi-docs", "the server has no such pages"),
    TAKEN("--disable-frontend-multiprocessing", "one process"),
    TAKEN_IF("--api-server-count", one, "the server is one process; --server-threads sets its HTTP threads"),
    TAKEN("--jinja --no-jinja",
          "the model's template, or the one of --chat-template, is always rendered as Jinja"),
    TAKEN_IF("--chat-template-content-format", ONLY("auto"), "the template decides"),
    TAKEN("--enable-auto-tool-choice", "tool_choice auto is always accepted"),
    TAKEN_IF("--response-role", ONLY("assistant"),
             "this sets the role of answers, which is always assistant"),
    TAKEN_IF("--reasoning-format", reasoning_formats,
             "reasoning is not part of the answer's content, unless --reasoning-parser none"),
    TAKEN_IF("--reasoning-budget", ONLY("-1"), "use the request's thinking_token_budget"),
    TAKEN("--enable-prompt-tokens-details", "usage always has prompt_tokens_details"),
    TAKEN_IF("--allowed-methods --allowed-headers", ONLY("[\"*\"]"),
             "pages of --allow-origin may use the whole API"),
    TAKEN("--embedding --embeddings --reranking --rerank", "embeddings and scores are always served"),
    TAKEN("--verbose -v", "no such lines are written"),
    TAKEN_ANY("--uvicorn-log-level --log-verbosity --verbosity -lv --log-colors",
              "no such lines are written"),
    TAKEN("--log-disable", "--quiet writes fewer lines"),
    /* flags that are not implemented yet */
    LATER("--tool-parser-plugin --exclude-tools-when-tool-choice-none",
          "custom tool parsers, and templates without tools"),
    LATER("--structured-outputs-config", "settings of structured output"),
    LATER("--ssl-keyfile --ssl-certfile --ssl-ca-certs --ssl-cert-reqs --ssl-key-file --ssl-cert-file",
          "TLS; use a reverse proxy"),
    LATER("--skip-tokenizer-init", "a tokenizer is always opened where there is one"),
    LATER("--hf-config-path", "a config.json beside the model's own; --hf-overrides changes that one"),
    LATER("--limit-mm-per-prompt", "images and sound"),
    LATER("--otlp-traces-endpoint --collect-detailed-traces", "traces"),
    LATER("--kv-transfer-config --kv-events-config", "transfer of pages between servers"),
    LATER("--config", "a file of flags"),
    LATER("--enable-force-include-usage", "use the request's stream_options.include_usage"),
    LATER("--return-tokens-as-token-ids", "use the request's return_token_ids"),
    LATER("--logprobs-mode", "log-probabilities of another stage of sampling"),
    LATER("--check-tensors", "a check of every weight"),
    LATER("--control-vector", "control vectors"),
    LATER("--chat-template-kwargs", "use the request's chat_template_kwargs"),
    LATER("--api-prefix --root-path", "paths under a prefix; a reverse proxy can remove it"),
    LATER("--log-file --log-config-file --log-prefix", "a log file; redirect standard error"),
    /* features that Quire provides in another way */
    REFUSED("--model-url -mu",
            "models come from the hub by name, ORG/NAME[:QUANT]; fetch others and give their path"),
    REFUSED("--model-draft -md --draft --draft-n --draft-max --draft-min --draft-p-min -ctkd -ctvd",
            "--speculative-config "
            "'{\"method\":\"draft_model\",\"model\":\"FILE\",\"num_speculative_tokens\":4}' does it"),
    REFUSED("--rope-freq-base --rope-freq-scale --rope-scaling --rope-scale --yarn-orig-ctx "
            "--yarn-ext-factor --yarn-attn-factor "
            "--yarn-beta-slow --yarn-beta-fast",
            "--override-kv ARCH.rope.freq_base=float:X and others of its kind set it, or --hf-overrides "
            "(docs/models.md)"),
    REFUSED("--pooling --pooler-config",
            "requests have pooling as a field; --override-kv ARCH.pooling_type=int:3 and a modules.json "
            "set a model's"),
    REFUSED("--uds", "--host unix:PATH does it"),
    REFUSED("--timeout -to", "--header-timeout and --body-timeout do it"),
    REFUSED("--allow-credentials", "--allow-origin ORIGIN does it"),
    REFUSED("--no-cont-batching -nocb",
            "batches are always continuous; --max-num-seqs 1 runs one sequence at a time"),
    REFUSED("--slots --webui --path --props --slot-save-path",
            "the server has no slots and serves no files; /pool shows its sequences and pages"),
    REFUSED("--cache-ram", "--kv-tier-host-bytes 8G does it"),
    REFUSED("--kv-cache-memory-bytes", "--kv-pages N or --memory-utilization PART does it"),
    REFUSED("--cpu-mask -C --prio --poll", "--cpu-bind does it"),
    REFUSED("--device", "Quire runs only on the CPU"),
    REFUSED("--long-prefill-token-threshold --max-num-partial-prefills --max-long-partial-prefills",
            "--chunk N and --step-target-ms MS do it"),
    REFUSED("--repeat-last-n --typical --dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n "
            "--dry-sequence-breaker "
            "--xtc-probability --xtc-threshold --mirostat --mirostat-lr --mirostat-ent --dynatemp-range "
            "--dynatemp-exp --logit-bias -l "
            "--ignore-eos --special -sp --prefill-assistant --grammar --grammar-file --json-schema -j "
            "--json-schema-file -jf",
            "requests set it as a field; --override-generation-config sets the defaults of a server"),
    REFUSED("--samplers --sampler-seq",
            "samplers have one order (docs/http.md); requests to /completion have samplers"),
    REFUSED("--escape -e", "texts are used unchanged; in the API they are JSON strings, which have escapes"),
    REFUSED("--context-shift --swa-full --disable-sliding-window",
            "attention is the model's own; --max-model-len bounds a sequence"),
    REFUSED("--tags", "models are served by their names; --served-model-name renames the first"),
    REFUSED("--node-rank --master-addr --master-port --data-parallel-address --data-parallel-rank --headless",
            "one process on one machine"),
    REFUSED("--load-mode -lm --model-loader-extra-config",
            "the file's format decides how a model is loaded; quire pack makes the fastest"),
    REFUSED("--middleware --h11-max-incomplete-event-size --enable-server-load-tracking "
            "--show-hidden-metrics-for-version",
            "the server is in C and has its own limits and metrics (docs/http.md)"),
    {0},
};
