/* One line of a trace file into the builder, by format; trace_read.c picks the format and
 * counts the lines. */
#ifndef LAB_SIM_TRACE_LINES_H
#define LAB_SIM_TRACE_LINES_H

#include "lab/sim/trace_build.h"

/* A JSON object: Mooncake's where it has hash_ids, else the own format. `where` begins
 * the message ("FILE, line 7"). */
quire_err trace_json_line(trace_builder *b, str line, const char *where, quire_error *err);

/* The first line that an Azure trace has. */
bool trace_csv_is_header(str line);
quire_err trace_csv_line(trace_builder *b, str line, const char *where, quire_error *err);

#endif
