/* Filters that other files define, for the table in jinja_filters.c. */
#ifndef JINJA_JINJA_FILTERS_H
#define JINJA_JINJA_FILTERS_H

#include "jinja/jinja_run.h"

enum { PICK_PASSING = 1, PICK_BY_MEMBER = 2 };

JFUNCTION(filter_filesizeformat);
JFUNCTION(filter_random);
JFUNCTION(filter_forceescape);
JFUNCTION(filter_format);
JFUNCTION(filter_striptags);
JFUNCTION(filter_truncate);
JFUNCTION(filter_urlencode);
JFUNCTION(filter_wordwrap);
JFUNCTION(filter_xmlattr);
JFUNCTION(filter_groupby);
JFUNCTION(filter_batch);
JFUNCTION(filter_dictsort);
JFUNCTION(filter_first);
JFUNCTION(filter_items);
JFUNCTION(filter_join);
JFUNCTION(filter_last);
JFUNCTION(filter_length);
JFUNCTION(filter_list);
JFUNCTION(filter_map);
JFUNCTION(filter_extreme);
JFUNCTION(filter_reverse);
JFUNCTION(filter_pick);
JFUNCTION(filter_slice);
JFUNCTION(filter_sort);
JFUNCTION(filter_sum);
JFUNCTION(filter_unique);

#endif
