/* A conversation's file: what becomes of one that is replaced. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <dirent.h>
#include <signal.h>

#include "cli/conversation.h"
#include "test.h"

static char folder[] = "/tmp/quire_talk_XXXXXX", path[64], link_path[64];
static conversation talk;

static int make_folder(void **state) {
    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/talk.json", folder);
    (void)snprintf(link_path, sizeof link_path, "%s/link.json", folder);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(conversation_add(&talk, CONVERSATION_USER, str_of("hello")), QUIRE_OK);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    conversation_deinit(&talk);
    (void)unlink(link_path);
    (void)unlink(path);
    return rmdir(folder);
}

static void write_old(void) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs("old", f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, 0644), 0);
}

/* How many files the folder has. */
static int count_files(void) {
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *entry = readdir(d); entry != NULL; entry = readdir(d)) {
        n += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
    }
    (void)closedir(d);
    return n;
}

static void expect_text(const char *begins) {
    char text[8] = "";
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(text, (int)strlen(begins) + 1, f));
    assert_int_equal(fclose(f), 0);
    assert_string_equal(text, begins);
}

TEST(a_replacement_that_fails_leaves_the_old_file) {
    struct rlimit before, small;
    quire_error err;
    write_old();
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 8; /* as on a disk that is nearly full */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    quire_err e = conversation_save(&talk, path, true, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(e, QUIRE_IO);
    assert_non_null(strstr(err.message, path));
    expect_text("old");
    assert_int_equal(count_files(), 1);
}

TEST(a_replacement_can_be_read_by_its_owner_alone_and_keeps_links) {
    struct stat is;
    write_old();
    assert_int_equal(symlink("talk.json", link_path), 0);
    assert_int_equal(conversation_save(&talk, link_path, true, NULL), QUIRE_OK);
    assert_int_equal(lstat(link_path, &is), 0);
    assert_true(S_ISLNK(is.st_mode));
    assert_int_equal(stat(path, &is), 0);
    assert_int_equal(is.st_mode & 0777, 0600);
    expect_text("{");
    assert_int_equal(count_files(), 2);
}

TEST(without_leave_to_replace_it_a_file_stays) {
    write_old();
    assert_int_equal(conversation_save(&talk, path, false, NULL), QUIRE_INVALID);
    expect_text("old");
    assert_int_equal(conversation_save(&talk, "/dev/null", true, NULL), QUIRE_OK);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(conversation_save(&talk, path, true, NULL), QUIRE_OK); /* there is none to replace */
    expect_text("{");
}

TEST_MAIN(make_folder, remove_folder)
