/* Runs a fuzz target over the files and directories given, where there is no libFuzzer;
 * arguments that begin with - are libFuzzer's. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"

static int run_file(const char *path) {
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        perror(path);
        return 1;
    }
    uint8_t *bytes = NULL;
    size_t n = 0, got = 1;
    while (got > 0) {
        uint8_t *grown = realloc(bytes, n + 65536);
        if (grown == NULL) {
            break;
        }
        bytes = grown;
        got = fread(bytes + n, 1, 65536, f);
        n += got;
    }
    fclose(f);
    uint8_t *exact = malloc(n > 0 ? n : 1); /* its end is the allocation's */
    if (exact != NULL) {
        memcpy(exact, bytes, n);
        LLVMFuzzerTestOneInput(exact, n);
    }
    free(exact);
    free(bytes);
    return exact == NULL;
}

static int run_directory(const char *path) {
    DIR *d = opendir(path);
    if (d == NULL) {
        perror(path);
        return 1;
    }
    int failed = 0;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        char file[1024];
        snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        failed |= e->d_name[0] != '.' && run_file(file);
    }
    closedir(d);
    return failed;
}

int main(int argc, char **argv) {
    int failed = 0;
    for (int i = 1; i < argc; i++) {
        struct stat st;
        if (argv[i][0] != '-') {
            failed |=
                stat(argv[i], &st) == 0 && S_ISDIR(st.st_mode) ? run_directory(argv[i]) : run_file(argv[i]);
        }
    }
    return failed;
}
