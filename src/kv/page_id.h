/* The number of a page in its pool. */
#ifndef KV_PAGE_ID_H
#define KV_PAGE_ID_H

#include <stdint.h>

/* A page's number, 0..n_pages. */
typedef struct page_id {
    int32_t v;
} page_id;
#define PAGE_NONE ((page_id){-1})

#endif
