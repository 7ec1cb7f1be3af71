#include "cli/flags.h"

#include <stddef.h>

#define AT(member) .offset = offsetof(cli_options, member)

const flag flags_hub[] = {
    {"--download-dir", "DIR", "the cache of models by name (HF_HUB_CACHE, else ~/.cache/huggingface/hub)",
     FLAG_TEXT, AT(download_dir), .rare = true},
    {"--offline", NULL, "fetch nothing (as HF_HUB_OFFLINE=1): use only models that are in the cache",
     FLAG_SWITCH, AT(offline), .rare = true},
    {"--hf-token -hft", "TOKEN", "token for the hub (HF_TOKEN, else the file that `hf auth login` writes)",
     FLAG_TEXT, AT(hf_token), .rare = true, .secret = true},
    {0},
};
const flag flags_hub_model[] = {
    {"--hf-repo -hf -hfr", "NAME", "the model's name at the hub, ORG/NAME[:QUANT]", FLAG_TEXT, AT(hf_repo),
     .rare = true},
    {"--hf-file -hff", "FILE", "the GGUF file of ORG/NAME to take, as ORG/NAME:FILE", FLAG_TEXT, AT(hf_file),
     .rare = true},
    {"--revision", "REV", "the branch, tag or commit of ORG/NAME, as ORG/NAME@REV; main unless given",
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
    {"--help -h", NULL, "this page", FLAG_SWITCH, AT(help)},
    {0},
};
const flag flags_help_all[] = {
    {"--help-all", NULL, "all flags, also those that are seldom needed", FLAG_SWITCH, AT(help_all),
     .rare = true},
    {0},
};
