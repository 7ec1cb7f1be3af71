/* Hit rate against capacity as an SVG picture: a line a policy, the unlimited cache as a
 * dashed line above them. */
#ifndef LAB_SIM_PLOT_H
#define LAB_SIM_PLOT_H

#include "lab/sim/report.h"

/* Writes the picture of rows[0..n) to the file; rows of one policy stand in order of
 * their capacity. QUIRE_IO or QUIRE_NO_MEMORY; err names the file. */
quire_err plot_write(const char *path, const sim_options *o, const sim_row *rows, int32_t n,
                     quire_error *err);

#endif
