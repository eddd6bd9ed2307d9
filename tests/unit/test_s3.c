/* Object stores: which keys, region and endpoint count, addresses on the web, and what a refusal may come from. */
#include "tests/support/unit.h"
#include "towers/remote/s3_signature.h"

static const char *const variables[] = {
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",      "AWS_SESSION_TOKEN", "AWS_PROFILE",
    "AWS_REGION",        "AWS_DEFAULT_REGION",         "AWS_ENDPOINT_URL",  "AWS_ENDPOINT_URL_S3",
    "AWS_CONFIG_FILE",   "AWS_SHARED_CREDENTIALS_FILE"};

static void environment_clear(void)
{
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) unsetenv(variables[i]);
    setenv("HOME", "/nonexistent", 1);
}

/* Given back by the caller. */
static S3Access *found(const char *endpoint)
{
    S3Access *access;
    assert_int_equal(s3_access_find(endpoint, &access), OK);
    return access;
}

static void check_url(const S3Access *access, const char *address, const char *wanted)
{
    char url[PATH_BYTES];
    assert_int_equal(s3_url(access, address, url), OK);
    assert_string_equal(url, wanted);
}

TEST(addresses_at_amazon)
{
    environment_clear();
    S3Access *access = found(NULL);
    char store[AWS_NAME_BYTES];
    assert_string_equal(access->region, "us-east-1");
    check_url(access, "s3://pets/a/b-0.tar", "https://pets.s3.us-east-1.amazonaws.com/a/b-0.tar");
    check_url(access, "s3://my.pets/a.tar", "https://s3.us-east-1.amazonaws.com/my.pets/a.tar");
    check_url(access, "s3://pets/a%20b+c=%c3%a9(g)'h!*~%2541.tar",
              "https://pets.s3.us-east-1.amazonaws.com/a%20b%2Bc%3D%C3%A9%28g%29%27h%21%2A~%2541.tar");
    s3_store(access, store);
    assert_string_equal(store, "amazonaws.com");
    s3_access_free(access);
    setenv("AWS_DEFAULT_REGION", "us-west-2", 1);
    setenv("AWS_REGION", "cn-north-1", 1);
    access = found(NULL);
    check_url(access, "s3://pets/a.tar", "https://pets.s3.cn-north-1.amazonaws.com.cn/a.tar");
    s3_store(access, store);
    assert_string_equal(store, "amazonaws.com.cn");
    s3_access_free(access);
    unsetenv("AWS_REGION");
    access = found("");
    check_url(access, "s3://pets/a.tar", "https://pets.s3.us-west-2.amazonaws.com/a.tar");
    s3_access_free(access);
}

TEST(addresses_at_an_endpoint)
{
    environment_clear();
    char store[AWS_NAME_BYTES];
    setenv("AWS_ENDPOINT_URL", "http://other:1", 1);
    S3Access *access = found("http://store:9000//");
    check_url(access, "s3://pets/a.tar", "http://store:9000/pets/a.tar");
    s3_store(access, store);
    assert_string_equal(store, "store:9000");
    access->hosted = true;
    check_url(access, "s3://pets/a.tar", "http://pets.store:9000/a.tar");
    check_url(access, "s3://my.pets/a.tar", "http://store:9000/my.pets/a.tar");
    s3_access_free(access);
    access = found(NULL);
    assert_string_equal(access->endpoint, "http://other:1");
    s3_access_free(access);
    setenv("AWS_ENDPOINT_URL_S3", "https://third", 1);
    access = found(NULL);
    assert_string_equal(access->endpoint, "https://third");
    s3_access_free(access);
}

TEST(addresses_of_lists)
{
    environment_clear();
    char url[PATH_BYTES];
    S3Access *access = found(NULL);
    assert_int_equal(s3_list_url(access, "s3://pets/a%20b/c+/", "", url), OK);
    assert_string_equal(url,
                        "https://pets.s3.us-east-1.amazonaws.com/?delimiter=%2F&list-type=2&prefix=a%20b%2Fc%2B%2F");
    s3_access_free(access);
    access = found("http://store:9000");
    assert_int_equal(s3_list_url(access, "s3://pets/c/", "1+/=", url), OK);
    assert_string_equal(url,
                        "http://store:9000/pets/?continuation-token=1%2B%2F%3D&delimiter=%2F&list-type=2&prefix=c%2F");
    s3_access_free(access);
}

TEST(endpoints_and_regions_that_are_none)
{
    S3Access *access;
    environment_clear();
    static const char *const none[] = {"http://",        "https:///",      "store:9000",   "http://me:hush@h",
                                       "http://h/hush",  "http://h?hush",  "ftp://h/hush", "http://h:1:2hush",
                                       "http://[::1]:9", "http://h\nhush", "s3://pets"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        if (s3_access_find(none[i], &access) != ERR_ARG) fail_msg("'%s' is taken", none[i]);
        assert_null(access);
        if (strstr(status_message(), "hush")) fail_msg("%s", status_message());
    }
    setenv("AWS_REGION", "us-east-1/x", 1);
    assert_int_equal(s3_access_find(NULL, &access), ERR_ARG);
}

TEST(keys_of_the_environment)
{
    environment_clear();
    S3Access *access = found(NULL);
    assert_int_equal(access->keys_found, OK);
    assert_string_equal(access->keys.id, "");
    assert_string_equal(access->whose, "not signed, because no keys were found");
    s3_access_free(access);
    setenv("AWS_ACCESS_KEY_ID", "id", 1);
    setenv("AWS_SESSION_TOKEN", "token", 1);
    access = found(NULL);
    assert_int_equal(access->keys_found, ERR_ARG); /* one of two */
    s3_access_free(access);
    setenv("AWS_SECRET_ACCESS_KEY", "hush", 1);
    access = found(NULL);
    assert_int_equal(access->keys_found, OK);
    assert_string_equal(access->keys.id, "id");
    assert_string_equal(access->keys.secret, "hush");
    assert_string_equal(access->keys.token, "token");
    s3_access_free(access);
    static const char *const none[] = {"hush ", "hush\n", "hush\xc3\xa9"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        setenv("AWS_SECRET_ACCESS_KEY", none[i], 1);
        access = found(NULL);
        assert_int_equal(access->keys_found, ERR_ARG);
        assert_null(strstr(access->keys_why.message, "hush"));
        s3_access_free(access);
    }
}

static const char *refusal(const S3Access *access, long answer, const char *region, const char *date, int64_t now)
{
    static char text[1024];
    Text to = text_start(text, sizeof text);
    s3_refusal_print(access, answer, region, date, now, &to);
    return text;
}

TEST(what_a_refusal_may_come_from)
{
    static const char date[] = "Sun, 06 Nov 1994 08:49:37 GMT";
    const int64_t then = 784111777;
    S3Access access = {.region = "us-east-1", .whose = "signed", .keys.id = "id"};
    assert_string_equal(refusal(&access, 403, NULL, NULL, then), "; the request was signed");
    assert_string_equal(refusal(&access, 403, "us-east-1", date, then + 900), "; the request was signed");
    assert_string_equal(
        refusal(&access, 403, NULL, date, then + 961),
        "; the request was signed; the clock of this machine is 16 minutes ahead of that of the server: set it");
    assert_string_equal(
        refusal(&access, 403, NULL, date, then - 7200),
        "; the request was signed; the clock of this machine is 120 minutes behind that of the server: set it");
    assert_string_equal(refusal(&access, 301, "eu-west-1", date, 0),
                        "; the bucket is in the region eu-west-1, not in us-east-1: set AWS_REGION");
    assert_string_equal(refusal(&access, 404, NULL, date, 0), "");
    assert_string_equal(refusal(&access, 503, NULL, "nonsense", 0), "");
    access.keys.id[0] = 0;
    assert_string_equal(refusal(&access, 403, NULL, date, 0),
                        "; the request was signed"); /* what is not signed has no time */
}

/* ---- signatures */

/* The examples of https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html whose requests have a query. */
TEST(signatures_that_amazon_has_published)
{
    static const struct {
        const char *query, *signature;
    } rows[] = {
        {"lifecycle=", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
        {"max-keys=2&prefix=J", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
    };
    S3Access access = {.region = "us-east-1",
                       .keys = {.id = "AKIAIOSFODNN7EXAMPLE", .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int port = 0; port < 2; port++) {
            char url[256], wanted[512];
            S3Signature made;
            const S3Request request = {"GET", url, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
                                       1369353600};
            snprintf(url, sizeof url, "https://examplebucket.s3.amazonaws.com%s/?%s", port ? ":443" : "",
                     rows[i].query);
            snprintf(
                wanted, sizeof wanted,
                "Authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
                "SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature=%s",
                rows[i].signature);
            assert_int_equal(s3_sign(&access, &request, &made), OK);
            assert_string_equal(made.date, "x-amz-date: 20130524T000000Z");
            assert_string_equal(made.authorization, wanted);
        }
}

/* What libcurl 8.14 signs as a blank. A "+" of a key is no matter: libcurl signs paths as they are. */
TEST(a_plus_in_a_query_is_signed_here)
{
    assert_true(s3_signs("https://pets.s3.amazonaws.com/?continuation-token=a%2Bb%3D&list-type=2"));
    assert_false(s3_signs("https://pets.s3.amazonaws.com/?delimiter=%2F&list-type=2&prefix=tar%2F"));
    assert_false(s3_signs("https://pets.s3.amazonaws.com/a%2Bb.tar"));
}

TEST(what_cannot_be_signed_is_refused)
{
    S3Access access = {.region = "us-east-1", .keys = {.id = "ID", .secret = "SECRET"}};
    S3Signature made;
    char *url = malloc(PATH_BYTES + AWS_TOKEN_BYTES + 8192);
    assert_non_null(url);
    int start = snprintf(url, 64, "https://pets.s3.amazonaws.com/?prefix=");
    memset(url + start, 'a', PATH_BYTES + AWS_TOKEN_BYTES + 6000);
    url[start + PATH_BYTES + AWS_TOKEN_BYTES + 6000] = 0;
    assert_int_equal(s3_sign(&access, &(S3Request){"GET", url, "", 0}, &made), ERR_ARG);
    free(url);
}
