/* API keys from options and from a file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "quire.h"
#include "server/auth.h"
#include "test.h"

/* A file that holds text; its name is static. */
static const char *file_of(const char *text) {
    static char path[64];
    snprintf(path, sizeof(path), "/tmp/quire-keys-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    return path;
}

static const char *check(const auth *a, const char *header) {
    static char tenant[QUIRE_TENANT_BYTES + 1];
    return auth_check(a, str_of(header), tenant) ? tenant : NULL;
}

TEST(without_keys_nobody_needs_one) {
    auth *a;
    assert_int_equal(auth_load(NULL, 0, NULL, &a, NULL), QUIRE_OK);
    assert_false(auth_required(a));
    auth_free(a);
}

TEST(each_key_opens_and_others_do_not) {
    auth *a;
    const char *keys[] = {"alpha", "beta"};
    assert_int_equal(auth_load(keys, 2, NULL, &a, NULL), QUIRE_OK);
    assert_true(auth_required(a));
    assert_string_equal(check(a, "Bearer alpha"), "key-8ed3f6ad685b959e");
    assert_string_not_equal(check(a, "bearer  beta "), "key-8ed3f6ad685b959e"); /* a tenant of its own */
    static const char *const wrong[] = {"",
                                        "Bearer",
                                        "Bearer ",
                                        "alpha",
                                        "Bearer alph",
                                        "Bearer alphaa",
                                        "Bearer ALPHA",
                                        "Basic alpha",
                                        "Bearer alpha beta"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_null(check(a, wrong[i]));
    }
    auth_free(a);
}

TEST(a_tenants_name_has_a_longest_length) {
    char line[200];
    auth *a;
    quire_error err;
    snprintf(line, sizeof(line), "%0*d:key\n", QUIRE_TENANT_BYTES, 0);
    const char *path = file_of(line);
    assert_int_equal(auth_load(NULL, 0, path, &a, &err), QUIRE_OK);
    unlink(path);
    auth_free(a);
    snprintf(line, sizeof(line), "%0*d:key\n", QUIRE_TENANT_BYTES + 1, 0);
    path = file_of(line);
    assert_int_equal(auth_load(NULL, 0, path, &a, &err), QUIRE_BAD_FILE);
    unlink(path);
}

TEST(a_file_names_the_tenants) {
    auth *a;
    const char *path = file_of("# keys\n\nacme:k1\n  umbrella:k:2 \r\nlast:k3");
    assert_int_equal(auth_load((const char *[]){"k0"}, 1, path, &a, NULL), QUIRE_OK);
    assert_memory_equal(check(a, "Bearer k0"), "key-", 4);
    assert_string_equal(check(a, "Bearer k1"), "acme");
    assert_string_equal(check(a, "Bearer k:2"), "umbrella");
    assert_string_equal(check(a, "Bearer k3"), "last");
    assert_null(check(a, "Bearer acme:k1"));
    auth_free(a);
    unlink(path);
}

TEST(white_space_around_a_key_is_no_part_of_it) {
    auth *a;
    quire_error err;
    const char *path = file_of("alice: secret\nbob\t:\tk2 \t\r\n carol:k 3\n");
    assert_int_equal(auth_load((const char *[]){"abc\n", "\t def \r\n"}, 2, path, &a, NULL), QUIRE_OK);
    assert_string_equal(check(a, "Bearer secret"), "alice");
    assert_string_equal(check(a, "Bearer k2"), "bob");
    assert_string_equal(check(a, "Bearer k 3"), "carol");
    assert_memory_equal(check(a, "Bearer abc"), "key-ba7816bf", 12); /* as without it */
    assert_memory_equal(check(a, "Bearer def"), "key-", 4);
    assert_int_equal(auth_set_operator(a, " secret\n", &err), QUIRE_INVALID);
    assert_int_equal(auth_set_operator(a, " \n", &err), QUIRE_INVALID);
    assert_int_equal(auth_set_operator(a, "root\n", &err), QUIRE_OK);
    assert_true(auth_is_operator(a, str_of("Bearer root")));
    auth_free(a);
    unlink(path);
    assert_int_equal(auth_load((const char *[]){" \r\n"}, 1, NULL, &a, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.message, "empty"));
}

TEST(a_bad_file_names_its_line) {
    static const char *const bad[] = {"a:b\nnocolon\n", "a:b\n:key\n", "a:b\ntenant:\n",
                                      "a:b\ntenant: \t\r\n"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        auth *a;
        quire_error err = {0};
        const char *path = file_of(bad[i]);
        assert_int_equal(auth_load(NULL, 0, path, &a, &err), QUIRE_BAD_FILE);
        assert_null(a);
        assert_non_null(strstr(err.message, "line 2"));
        assert_non_null(strstr(err.message, path));
        unlink(path);
    }
}

TEST(a_file_without_keys_does_not_open_the_door) {
    auth *a;
    quire_error err = {0};
    const char *path = file_of("# nothing\n");
    assert_int_equal(auth_load(NULL, 0, path, &a, &err), QUIRE_BAD_FILE);
    unlink(path);
    assert_int_equal(auth_load(NULL, 0, "/nonexistent/keys", &a, &err), QUIRE_IO);
    assert_int_equal(auth_load((const char *[]){""}, 1, NULL, &a, &err), QUIRE_INVALID);
}

TEST(the_operators_key_is_nobodys_tenant) {
    auth *a;
    quire_error err;
    const char *keys[] = {"alpha"};
    assert_int_equal(auth_load(keys, 1, NULL, &a, NULL), QUIRE_OK);
    assert_false(auth_has_operator(a));
    assert_false(auth_is_operator(a, str_of("Bearer root")));
    assert_int_equal(auth_set_operator(a, "", &err), QUIRE_INVALID);
    assert_int_equal(auth_set_operator(a, "alpha", &err), QUIRE_INVALID);
    assert_false(auth_has_operator(a));
    assert_int_equal(auth_set_operator(a, "root", &err), QUIRE_OK);
    assert_true(auth_has_operator(a));
    assert_true(auth_is_operator(a, str_of("Bearer root")));
    assert_false(auth_is_operator(a, str_of("Bearer alpha")));
    assert_false(auth_is_operator(a, str_of("Bearer ")));
    assert_false(auth_is_operator(a, str_of("root")));
    assert_null(check(a, "Bearer root"));
    auth_free(a);
}

TEST(a_reload_replaces_the_keys_and_a_bad_file_does_not) {
    auth *a;
    quire_error err = {0};
    const char *keys[] = {"k0"};
    const char *path = file_of("acme:k1\n");
    assert_int_equal(auth_load(keys, 1, path, &a, NULL), QUIRE_OK);
    assert_int_equal(auth_set_operator(a, "root", &err), QUIRE_OK);
    unlink(path);
    path = file_of("acme:k1\nnocolon\n");
    assert_int_equal(auth_reload(a, keys, 1, path, &err), QUIRE_BAD_FILE);
    assert_non_null(strstr(err.message, "line 2"));
    assert_string_equal(check(a, "Bearer k1"), "acme");
    unlink(path);
    path = file_of("acme:root\n");
    /* the operator's key is no tenant's */
    assert_int_equal(auth_reload(a, keys, 1, path, &err), QUIRE_INVALID);
    assert_string_equal(check(a, "Bearer k1"), "acme");
    unlink(path);
    path = file_of("acme:k2\nother:k3\n");
    assert_int_equal(auth_reload(a, keys, 1, path, &err), QUIRE_OK);
    unlink(path);
    assert_null(check(a, "Bearer k1"));
    assert_string_equal(check(a, "Bearer k2"), "acme");
    assert_memory_equal(check(a, "Bearer k0"), "key-", 4);
    assert_true(auth_is_operator(a, str_of("Bearer root")));
    assert_int_equal(auth_count(a), 3);
    auth_free(a);
}

TEST_MAIN(NULL, NULL)
