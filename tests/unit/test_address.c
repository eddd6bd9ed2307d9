/* Addresses of data: what is taken, and what is refused without being repeated. */
#include "tests/support/unit.h"
#include "towers/remote/address.h"

TEST(parts_of_an_address)
{
    Address a;
    assert_int_equal(address_parse("https://data.example.org:8443/set/a-0.tar", &a), OK);
    assert_int_equal(a.scheme_bytes, 5);
    assert_int_equal(a.host_bytes, 21);
    assert_string_equal(a.path, "set/a-0.tar");
    assert_int_equal(address_parse("http://h:65535/a", &a), OK);
    assert_int_equal(address_parse("http://h/set/", &a), OK);
    assert_string_equal(a.path, "set/");
    assert_int_equal(address_parse("s3://my.pets/set/a-0.tar", &a), OK);
    assert_int_equal(a.host_bytes, 7);
    assert_string_equal(a.path, "set/a-0.tar");
    assert_int_equal(address_parse("s3://pets/", &a), OK);
    assert_string_equal(a.path, "");
}

TEST(what_may_hold_a_secret_is_refused_and_not_repeated)
{
    Address a;
    static const char *const texts[] = {"https://me:hush@host/a",    "https://hush@host/a",
                                        "https://host/a?sig=hush",   "https://host/a#hush",
                                        "https://me:hu/hush@host/a", "https://host:hush/a"};
    static const char *const open[] = {"https://host/a", "http://host:80/@scope/a@1.0", "http://[::1]/a", "host/a"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_int_equal(address_parse(texts[i], &a), ERR_ARG);
        if (strstr(status_message(), "hush")) fail_msg("%s", status_message());
        assert_int_equal(address_may_hide(texts[i]), strpbrk(texts[i], "@?#") != NULL);
    }
    for (size_t i = 0; i < sizeof open / sizeof *open; i++) assert_false(address_may_hide(open[i]));
}

TEST(what_leads_out_of_a_folder_or_hides_in_it_is_refused)
{
    Address a;
    static const char *const texts[] = {
        "https://host/a/../b", "https://host/..",    "https://host/./a",  "https://host/.a",
        "https://host//a",     "https://host/a//",   "https://host/",     "https://host",
        "https:///a",          "https://../a",       "https://[::1]/a",   "https://host/a b",
        "https://host/a\\b",   "https://host/a\n",   "ftp://host/a",      "host/a",
        "https://host:/a",     "https://h:0/a",      "https://h:65536/a", "https://h:99999999999999999999/a",
        "https://h/a%2fb",     "https://h/%2E%2e/a", "https://h/a%00",    "https://h/a%",
        "https://h/a%4",       "https://h/a%zz",     "https://h/a%7B",    "https://h/a%0ab",
        "https://h:1:2/a",     "https://:80/a",      "s3://pets:80/a",    "s3:///a",
        "s3://pets",           "s3://pets//",        "s3://pets/.a",      "S3://pets/a"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (address_parse(texts[i], &a) != ERR_ARG) fail_msg("'%s' is taken", texts[i]);
}

TEST(names_of_files_and_paths_of_addresses)
{
    static const char *const both[][2] = {
        {"a/b-0.tar", "a/b-0.tar"}, {"a b", "a%20b"}, {"\xc3\xa9?#", "%C3%A9%3F%23"}, {"100%41", "100%2541"}, {"", ""}};
    char text[32];
    for (size_t i = 0; i < sizeof both / sizeof *both; i++) {
        assert_true(path_encode(both[i][0], text, sizeof text));
        assert_string_equal(text, both[i][1]);
        assert_int_equal(path_decode(text, strlen(text), text), strlen(both[i][0]));
        assert_string_equal(text, both[i][0]);
    }
    assert_int_equal(path_decode("%c3%A9%4", 8, text), 4);
    assert_string_equal(text, "\xc3\xa9%4");
    assert_true(path_encode("a b", text, 6));
    assert_false(path_encode("a b", text, 5));
}
