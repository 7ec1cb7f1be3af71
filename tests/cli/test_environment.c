/* The hub's variables, which mean what they mean to huggingface_hub. */
#include <stdlib.h>

#include "cli/environment.h"
#include "test.h"

static const char *const names[] = {"HF_HOME", "HF_HUB_CACHE", "HF_TOKEN_PATH", "HF_HUB_OFFLINE",
                                    "XDG_CACHE_HOME"};

static void clear(void) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(unsetenv(names[i]), 0);
    }
    assert_int_equal(setenv("HOME", "/home/me", 1), 0);
}

/* What is read where this variable is the only one. Its texts last until the next
 * call. */
static cli_environment with(const char *name, const char *value) {
    cli_environment env = {.hub_offline = false};
    clear();
    assert_int_equal(setenv(name, value, 1), 0);
    environment_read_hub(&env);
    return env;
}

TEST(offline_is_one_of_four_words) {
    static const char *const on[] = {"1", "ON", "on", "Yes", "YES", "true", "TRUE"};
    static const char *const off[] = {"", "0", "Off", "off", "no", "o", "10", "t", "y", "online", "false"};
    for (size_t i = 0; i < sizeof on / sizeof *on; i++) {
        assert_true(with("HF_HUB_OFFLINE", on[i]).hub_offline);
    }
    for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
        assert_false(with("HF_HUB_OFFLINE", off[i]).hub_offline);
    }
}

TEST(a_tilde_is_the_home_directory) {
    assert_string_equal(with("HF_HOME", "~/models").hub_cache, "/home/me/models/hub");
    assert_string_equal(with("HF_HOME", "~/models").hub_token_file, "/home/me/models/token");
    assert_string_equal(with("HF_HOME", "~").hub_cache, "/home/me/hub");
    assert_string_equal(with("HF_HUB_CACHE", "~/cache").hub_cache, "/home/me/cache");
    assert_string_equal(with("HF_TOKEN_PATH", "~/token").hub_token_file, "/home/me/token");
    assert_string_equal(with("HF_HUB_CACHE", "~other/cache").hub_cache, "~other/cache");
    assert_string_equal(with("HF_HUB_CACHE", "/a/~/b").hub_cache, "/a/~/b");
    assert_string_equal(with("HF_HUB_CACHE", "").hub_cache, "/home/me/.cache/huggingface/hub");
}

TEST_MAIN(NULL, NULL)
