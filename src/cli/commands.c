#include "cli/commands.h"

const command *const quire_commands[] = {
    &command_run,  &command_serve, &command_tokenize, &command_logits, &command_inspect,
    &command_pack, &command_pull,  &command_list,     &command_rm,     NULL};
