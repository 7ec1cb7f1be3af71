#include <stdarg.h>
#include <stdio.h>

#include "base/mem.h"
#include "check.h"
#include "lab/bench/figures.h"

static void print_json(const char *kind, const char *case_name, const char *result, const char *what) {
    json_line line;
    json_out *o = json_line_begin(&line);
    json_cstr(json_name(o, "kind"), kind);
    json_cstr(json_name(o, "case"), case_name);
    json_cstr(json_name(o, "result"), result);
    json_cstr(json_name(o, "what"), what);
    json_line_print(&line);
}

void check_pass(check_report *r, const char *kind, const char *case_name) {
    (void)kind;
    (void)case_name;
    r->passed++;
}

void check_fail(check_report *r, const char *kind, const char *case_name, const char *format, ...) {
    char what[2048];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    r->failed++;
    if (r->json) {
        print_json(kind, case_name, "fail", what);
    } else {
        printf("%s %s: %s\n", kind, case_name, what);
    }
}

void check_unsupported(check_report *r, const char *kind, const char *case_name, const char *why) {
    static char before[512];
    r->unsupported++;
    if (r->json) {
        print_json(kind, case_name, "unsupported", why);
    } else if (r->table) {
        printf("| %s | | not run: %s |\n", case_name, why);
    } else if (strncmp(before, why, sizeof before - 1) != 0) {
        printf("%s %s: unsupported: %s\n", kind, case_name, why);
    }
    (void)snprintf(before, sizeof before, "%s", why);
}

char *check_read_file(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    char *bytes = NULL;
    long size = -1;
    if (f == NULL) {
        return NULL;
    }
    if (fseek(f, 0, SEEK_END) == 0 && (size = ftell(f)) >= 0 && size <= 1L << 30 &&
        fseek(f, 0, SEEK_SET) == 0) {
        bytes = mem_new((size_t)size + 1, 1);
        if (bytes != NULL && fread(bytes, 1, (size_t)size, f) != (size_t)size) {
            mem_free(bytes);
            bytes = NULL;
        }
    }
    *n = size < 0 ? 0 : (size_t)size;
    (void)fclose(f);
    return bytes;
}

char *check_path(const char *a, const char *b) {
    size_t n_a = strlen(a), n_b = strlen(b);
    if (b[0] == '/') {
        return mem_dup(b, n_b);
    }
    char *path = mem_new(n_a + n_b + 2, 1);
    if (path != NULL) {
        (void)snprintf(path, n_a + n_b + 2, "%s/%s", a, b);
    }
    return path;
}

bool check_line(str *rest, str *line) {
    if (rest->n == 0) {
        return false;
    }
    const char *end = memchr(rest->p, '\n', rest->n);
    size_t n = end != NULL ? (size_t)(end - rest->p) : rest->n;
    size_t taken = n + (end != NULL);
    *line = (str){rest->p, n};
    *rest = (str){rest->p + taken, rest->n - taken};
    return true;
}
