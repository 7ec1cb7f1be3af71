/* The file of typed lines: entries with newlines, several processes, bounds, damage. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/tty.h"
#include "test.h"

enum { MOST = 4096 };

typedef struct entries {
    strbuf text[MOST];
    size_t n;
} entries;

static char folder[] = "/tmp/quire_history_XXXXXX", path[128];
static entries read_back;

static void forget(void) {
    for (size_t i = 0; i < read_back.n; i++) {
        strbuf_deinit(&read_back.text[i]);
    }
    read_back.n = 0;
}

static int make_folder(void **state) {
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/some/where/history", folder);
    return 0;
}

static int remove_file(void **state) {
    (void)state;
    forget();
    (void)unlink(path);
    return 0;
}

static int remove_folder(void **state) {
    char directory[160];
    (void)state;
    snprintf(directory, sizeof directory, "%s/some/where", folder);
    (void)rmdir(directory);
    snprintf(directory, sizeof directory, "%s/some", folder);
    (void)rmdir(directory);
    return rmdir(folder);
}

static quire_err take(void *user, str entry) {
    entries *all = user;
    assert_true(all->n < MOST);
    return strbuf_add(&all->text[all->n++], entry.p, entry.n);
}

static void read_all(void) {
    quire_error err;
    forget();
    assert_int_equal(input_history_read(path, take, &read_back, &err), QUIRE_OK);
}

static void add(const char *entry) {
    quire_error err;
    assert_int_equal(input_history_add(path, str_of(entry), &err), QUIRE_OK);
}

static void write_file(const void *p, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static size_t file_size(void) {
    struct stat is;
    assert_int_equal(stat(path, &is), 0);
    return (size_t)is.st_size;
}

TEST_WITHIN(entries_come_back_as_they_were, NULL, remove_file) {
    static const char *const texts[] = {"plain", "two\nlines\n", "back\\slash \\n and \\\\",
                                        "Gr\xc3\xbc\xc3\x9f"
                                        "e",
                                        "\\"};
    read_all();
    assert_int_equal(read_back.n, 0); /* there is no file yet, nor its directory */
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        add(texts[i]);
    }
    read_all();
    assert_int_equal(read_back.n, sizeof texts / sizeof *texts);
    for (size_t i = 0; i < read_back.n; i++) {
        assert_string_equal(read_back.text[i].p, texts[i]);
    }
}

TEST_WITHIN(only_its_owner_may_read_it, NULL, remove_file) {
    struct stat is;
    mode_t before = umask(0);
    add("x");
    umask(before);
    assert_int_equal(stat(path, &is), 0);
    assert_int_equal(is.st_mode & 0777, 0600);
    char directory[160];
    snprintf(directory, sizeof directory, "%s/some/where", folder);
    assert_int_equal(stat(directory, &is), 0);
    assert_int_equal(is.st_mode & 0777, 0700);
}

TEST_WITHIN(processes_that_write_at_once_lose_nothing, NULL, remove_file) {
    enum { PROCESSES = 8, EACH = 100 };
    int seen[PROCESSES] = {0};
    pid_t children[PROCESSES];
    for (int p = 0; p < PROCESSES; p++) {
        children[p] = fork();
        assert_true(children[p] >= 0);
        if (children[p] == 0) {
            for (int i = 0; i < EACH; i++) {
                char entry[64];
                quire_error err;
                snprintf(entry, sizeof entry, "%d writes\nentry %d", p, i);
                if (input_history_add(path, str_of(entry), &err) != QUIRE_OK) {
                    _exit(1);
                }
            }
            _exit(0);
        }
    }
    for (int p = 0; p < PROCESSES; p++) {
        int status;
        assert_int_equal(waitpid(children[p], &status, 0), children[p]);
        assert_int_equal(status, 0);
    }
    read_all();
    assert_int_equal(read_back.n, PROCESSES * EACH);
    for (size_t i = 0; i < read_back.n; i++) {
        char wanted[64];
        int p = read_back.text[i].p[0] - '0';
        assert_in_range(p, 0, PROCESSES - 1);
        /* each process's own in its order */
        snprintf(wanted, sizeof wanted, "%d writes\nentry %d", p, seen[p]++);
        assert_string_equal(read_back.text[i].p, wanted);
    }
}

TEST_WITHIN(a_file_that_grows_loses_its_oldest_entries, NULL, remove_file) {
    char entry[9000];
    size_t most = 0;
    for (int i = 0; i < 400; i++) {
        memset(entry, 'a' + i % 26, sizeof entry - 1);
        snprintf(entry, 16, "%06d", i);
        entry[6] = ' ';
        entry[sizeof entry - 1] = 0;
        add(entry);
        most = file_size() > most ? file_size() : most;
    }
    assert_in_range(most, INPUT_HISTORY_MAX_BYTES / 2, INPUT_HISTORY_MAX_BYTES);
    read_all();
    assert_in_range(read_back.n, 50, 120);
    for (size_t i = 0; i < read_back.n; i++) { /* the newest, whole and in order */
        assert_int_equal(read_back.text[i].n, sizeof entry - 1);
        assert_int_equal(atoi(read_back.text[i].p), 400 - (int)read_back.n + (int)i);
    }
}

TEST_WITHIN(an_entry_that_is_too_long_is_left_out, NULL, remove_file) {
    char *text = malloc(INPUT_HISTORY_ENTRY_BYTES + 2);
    assert_non_null(text);
    memset(text, 'x', INPUT_HISTORY_ENTRY_BYTES + 1);
    text[INPUT_HISTORY_ENTRY_BYTES + 1] = 0;
    add("before");
    add(text);
    add("");
    add("behind");
    free(text);
    read_all();
    assert_int_equal(read_back.n, 2);
    assert_string_equal(read_back.text[1].p, "behind");
}

TEST_WITHIN(a_damaged_file_is_read_as_far_as_it_goes, NULL, remove_file) {
    static const char damaged[] = "good\n\xff\xfe\x1b[2J\nzero\0byte\n\n\\x\\\nhalf a li";
    write_file(damaged, sizeof damaged - 1);
    add("new");
    read_all();
    assert_int_equal(read_back.n, 6);
    assert_string_equal(read_back.text[0].p, "good");
    assert_string_equal(read_back.text[1].p, "\xef\xbf\xbd\xef\xbf\xbd\x1b[2J");
    assert_int_equal(read_back.text[2].n, 9);
    assert_string_equal(read_back.text[3].p, "\\x\\");
    assert_string_equal(read_back.text[4].p, "half a li");
    assert_string_equal(read_back.text[5].p, "new");
}

TEST_WITHIN(of_a_huge_file_the_end_is_read, NULL, remove_file) {
    size_t n = 3 * INPUT_HISTORY_MAX_BYTES;
    char *text = malloc(n);
    assert_non_null(text);
    memset(text, 'x', n); /* one line without end */
    write_file(text, n);
    read_all();
    assert_int_equal(read_back.n, 0);
    for (size_t i = 9; i < n; i += 1000) {
        text[i] = '\n';
    }
    write_file(text, n);
    free(text);
    read_all();
    assert_in_range(read_back.n, 1040, 1050);
    assert_int_equal(read_back.text[0].n, 999);
    add("new");
    assert_in_range(file_size(), 1, INPUT_HISTORY_MAX_BYTES / 2);
    read_all();
    assert_string_equal(read_back.text[read_back.n - 1].p, "new");
}

TEST_WITHIN(what_fails_names_the_file, NULL, remove_file) {
    quire_error err;
    char below[160];
    add("x");
    snprintf(below, sizeof below, "%s/history", path); /* the file is no directory */
    assert_int_equal(input_history_add(below, str_of("y"), &err), QUIRE_IO);
    assert_non_null(strstr(err.message, below));
    assert_int_equal(input_history_read(below, take, &read_back, &err), QUIRE_IO);
}

TEST_WITHIN(a_device_keeps_nothing, NULL, remove_file) {
    quire_error err;
    assert_int_equal(input_history_add("/dev/null", str_of("x"), &err), QUIRE_OK);
    forget();
    assert_int_equal(input_history_read("/dev/null", take, &read_back, &err), QUIRE_OK);
    assert_int_equal(read_back.n, 0);
}

TEST_MAIN(make_folder, remove_folder)
