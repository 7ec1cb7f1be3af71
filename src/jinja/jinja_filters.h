/* The filters of jinja_filter_lists.c, for the table in jinja_filters.c. */
#ifndef JINJA_JINJA_FILTERS_H
#define JINJA_JINJA_FILTERS_H

#include "jinja/jinja_run.h"

#define FILTER(name) quire_err name(jrun *r, const jvalue *args, const jargs *rest, jvalue *out)

FILTER(filter_batch);
FILTER(filter_dictsort);
FILTER(filter_first);
FILTER(filter_items);
FILTER(filter_join);
FILTER(filter_last);
FILTER(filter_length);
FILTER(filter_list);
FILTER(filter_map);
FILTER(filter_max);
FILTER(filter_min);
FILTER(filter_reject);
FILTER(filter_rejectattr);
FILTER(filter_reverse);
FILTER(filter_select);
FILTER(filter_selectattr);
FILTER(filter_slice);
FILTER(filter_sort);
FILTER(filter_sum);
FILTER(filter_unique);

#endif
