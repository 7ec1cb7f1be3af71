/* The custom_id of each line of a file of prompts: whether one occurs twice. */
#ifndef CLI_BATCH_IDS_H
#define CLI_BATCH_IDS_H

#include "cli/batch_input.h"

/* Reads all lines of `in`, and begins it again. BAD_FILE if two lines have one custom_id,
 * so that their answers could not be distinguished, with the numbers of both; IO,
 * NO_MEMORY, and TOO_LARGE past 2^32 lines. Takes 16 to 48 bytes for each line that has
 * one. A line that is not valid JSON counts as having none. */
quire_err batch_ids_check(batch_input *in, quire_error *err);

#endif
