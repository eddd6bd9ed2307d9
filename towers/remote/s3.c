/* Object stores with the interface of S3; see s3.h. */
#include "towers/remote/s3.h"

#include <curl/curl.h>

enum { PROFILES_MAX = 1 << 20 /* bytes of a file of profiles */, SKEW_SECONDS = 900 /* that S3 takes */ };

/* ---- keys */

static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* A file that is not there says nothing, as to AWS's tools; nor does /dev/null. */
static Status profiles_read(const char *variable, const char *usual, const char *name, AwsProfile *profile)
{
    char path[PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    const char *given = environment(variable), *home = environment("HOME");
    if (!given && !home) return OK;
    int length =
        given ? snprintf(path, sizeof path, "%s", given) : snprintf(path, sizeof path, "%s/.aws/%s", home, usual);
    struct stat info;
    if (length >= PATH_BYTES || stat(path, &info) != 0 || S_ISCHR(info.st_mode)) return OK;
    if (!S_ISREG(info.st_mode))
        return FAIL(ERR_ARG, "%s: '%s' is expected to be a file; a pipe or a folder is not read",
                    given ? variable : "the profiles of AWS", path);
    TRY(file_load(path, OF_USER, ERR_ARG, PROFILES_MAX, &text, &bytes));
    aws_profile_parse(text, bytes, name, profile);
    explicit_bzero(text, bytes);
    free(text);
    return OK;
}

static Status profile_find(const char *name, AwsProfile *profile)
{
    TRY(profiles_read("AWS_SHARED_CREDENTIALS_FILE", "credentials", name, profile));
    TRY(profiles_read("AWS_CONFIG_FILE", "config", name, profile));
    if (environment("AWS_PROFILE") && !profile->found)
        return FAIL(ERR_ARG,
                    "AWS_PROFILE: there is no profile '%s' in ~/.aws/credentials or ~/.aws/config, or the files that "
                    "AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE name",
                    name);
    if (profile->overlong)
        return FAIL(ERR_ARG, "the profile '%s' of AWS: %s is longer than any that is known", name, profile->overlong);
    return OK;
}

/* A key stands in a header, which no other character may end; a line break at its end is often left from copying. */
static Status key_take(const char *what, const char *value, char *to, size_t room)
{
    const char *at = value;
    while (*at > ' ' && *at <= '~') at++;
    if (*at) return FAIL(ERR_ARG, "%s has a blank, a line break or another character that no key has", what);
    if ((size_t)(at - value) >= room) return FAIL(ERR_ARG, "%s is longer than %zu characters", what, room - 1);
    memcpy(to, value, (size_t)(at - value) + 1);
    return OK;
}

static Status keys_take(const char *id, const char *secret, const char *token, S3Access *access)
{
    TRY(key_take("the access key of AWS (AWS_ACCESS_KEY_ID)", id, access->keys.id, sizeof access->keys.id));
    TRY(key_take("the secret key of AWS (AWS_SECRET_ACCESS_KEY)", secret, access->keys.secret,
                 sizeof access->keys.secret));
    return key_take("the session token of AWS (AWS_SESSION_TOKEN)", token ? token : "", access->keys.token,
                    sizeof access->keys.token);
}

static Status keys_find(const char *name, const AwsProfile *profile, S3Access *access)
{
    const char *id = environment("AWS_ACCESS_KEY_ID"), *secret = environment("AWS_SECRET_ACCESS_KEY");
    if (id && secret) {
        snprintf(access->whose, sizeof access->whose, "signed with the keys of AWS_ACCESS_KEY_ID");
        return keys_take(id, secret, environment("AWS_SESSION_TOKEN"), access);
    }
    if (id || secret)
        return FAIL(ERR_ARG, "expected AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or neither; found one of them");
    if (*profile->keys.id && *profile->keys.secret) {
        snprintf(access->whose, sizeof access->whose, "signed with the keys of the profile '%.200s'", name);
        return keys_take(profile->keys.id, profile->keys.secret, profile->keys.token, access);
    }
    if (*profile->keys.id || *profile->keys.secret)
        return FAIL(ERR_ARG,
                    "the profile '%s' of AWS: expected aws_access_key_id and aws_secret_access_key in one file, "
                    "or neither; found one of them",
                    name);
    if (profile->elsewhere)
        return FAIL(ERR_ARG,
                    "the profile '%s' of AWS gets its keys by %s, which only AWS's tools do: 'eval \"$(aws configure "
                    "export-credentials --format env)\"' brings them into the environment; a public bucket needs none: "
                    "AWS_CONFIG_FILE=/dev/null leaves the profile out",
                    name, profile->elsewhere);
    snprintf(access->whose, sizeof access->whose, "not signed, because no keys were found");
    return OK;
}

/* ---- region, endpoint */

static const char *first_of(const char *a, const char *b, const char *c)
{
    return a ? a : b ? b : c;
}

Status s3_endpoint_check(const char *endpoint)
{
    size_t bytes = strlen(endpoint);
    size_t scheme = !strncmp(endpoint, "http://", 7) ? 7 : !strncmp(endpoint, "https://", 8) ? 8 : 0;
    while (bytes > scheme && endpoint[bytes - 1] == '/') bytes--;
    if (scheme && bytes < AWS_NAME_BYTES && is_host(endpoint + scheme, bytes - scheme)) return OK;
    return FAIL(
        ERR_ARG,
        "an endpoint of S3 (--s3-endpoint, AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, or endpoint_url of "
        "the profile of AWS) is expected as http://HOST:PORT or https://HOST, without a path, user name or password");
}

/* No certificate or name server knows hosts below a number. */
static bool is_number(const char *host)
{
    return !host[strspn(host, "0123456789.:")];
}

static Status store_find(const char *endpoint, const AwsProfile *profile, S3Access *access)
{
    const char *region = first_of(environment("AWS_REGION"), environment("AWS_DEFAULT_REGION"),
                                  *profile->region ? profile->region : "us-east-1"),
               *style = profile->style;
    size_t known = strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-");
    if (region[known] || known >= sizeof access->region)
        return FAIL(ERR_ARG,
                    "'%.64s' (AWS_REGION, or region of the profile of AWS) is no region of S3: expected a name as "
                    "us-east-1, with nothing behind it",
                    region);
    memcpy(access->region, region, known + 1);
    if (*style && strcmp(style, "path") != 0 && strcmp(style, "virtual") != 0 && strcmp(style, "auto") != 0)
        return FAIL(ERR_ARG, "the profile of AWS: addressing_style of s3 is expected to be path, virtual or auto");
    if (!endpoint)
        endpoint = first_of(environment("AWS_ENDPOINT_URL_S3"), environment("AWS_ENDPOINT_URL"), profile->endpoint);
    access->hosted = strcmp(style, "path") != 0;
    if (!*endpoint && profile->services)
        return FAIL(ERR_ARG,
                    "the profile of AWS names its endpoints by 'services', which is not read here: give that of S3 "
                    "with --s3-endpoint");
    if (!*endpoint) return OK;
    TRY(s3_endpoint_check(endpoint));
    snprintf(access->endpoint, sizeof access->endpoint, "%s", endpoint);
    for (size_t last = strlen(access->endpoint) - 1; access->endpoint[last] == '/'; last--) access->endpoint[last] = 0;
    access->hosted = !strcmp(style, "virtual") && !is_number(strstr(access->endpoint, "://") + 3);
    return OK;
}

Status s3_access_find(const char *endpoint, S3Access **made)
{
    const char *wanted = environment("AWS_PROFILE"), *name = wanted ? wanted : "default";
    S3Access *access = calloc(1, sizeof *access);
    AwsProfile *profile = calloc(1, sizeof *profile);
    Status st = access && profile ? OK : FAIL(ERR_MEMORY, "no memory for access to S3");
    if (st == OK) {
        access->keys_found = profile_find(name, profile);
        if (access->keys_found == OK) access->keys_found = keys_find(name, profile, access);
        if (access->keys_found != OK) status_keep(&access->keys_why);
        st = store_find(endpoint, profile, access);
    }
    if (profile) explicit_bzero(profile, sizeof *profile);
    free(profile);
    if (st != OK) s3_access_free(access);
    *made = st == OK ? access : NULL;
    return st;
}

void s3_access_free(S3Access *access)
{
    if (access) explicit_bzero(access, sizeof *access);
    free(access);
}

/* ---- addresses */

/* AWS in China is a store of its own. */
static const char *domain_of(const S3Access *access)
{
    return !strncmp(access->region, "cn-", 3) ? "amazonaws.com.cn" : "amazonaws.com";
}

void s3_store(const S3Access *access, char store[AWS_NAME_BYTES])
{
    snprintf(store, AWS_NAME_BYTES, "%s", *access->endpoint ? strstr(access->endpoint, "://") + 3 : domain_of(access));
}

/* Every byte but those that RFC 3986 does not reserve, as the signature has it. */
static void bytes_encode(const char *bytes, const char *plain, Text *to)
{
    for (; *bytes; bytes++) {
        char c = *bytes;
        bool as_is = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || strchr(plain, c);
        text_add(to, as_is ? "%c" : "%%%02X", (unsigned char)c);
    }
}

/* "https://BUCKET.HOST/" or "https://HOST/BUCKET/", and the key as it is. */
static Status bucket_print(const S3Access *access, const char *address, char key[PATH_BYTES], Text *to)
{
    Address a;
    char endpoint[AWS_NAME_BYTES + 32];
    TRY(address_parse(address, &a));
    size_t bytes = strlen(a.path);
    if (bytes >= PATH_BYTES) return FAIL(ERR_ARG, "'%s': the address is too long", address);
    path_decode(a.path, bytes, key);
    if (*access->endpoint)
        snprintf(endpoint, sizeof endpoint, "%s", access->endpoint);
    else
        snprintf(endpoint, sizeof endpoint, "https://s3.%.200s.%s", access->region, domain_of(access));
    const char *host = strstr(endpoint, "://") + 3;
    bool dots = memchr(a.host, '.', (size_t)a.host_bytes); /* no certificate is for such a host */
    if (access->hosted && !dots)
        text_add(to, "%.*s%.*s.%s/", (int)(host - endpoint), endpoint, a.host_bytes, a.host, host);
    else
        text_add(to, "%s/%.*s/", endpoint, a.host_bytes, a.host);
    return OK;
}

static Status url_check(const Text *text, const char *address)
{
    return text->truncated ? FAIL(ERR_ARG, "'%s': the address is too long", address) : OK;
}

Status s3_url(const S3Access *access, const char *address, char url[PATH_BYTES])
{
    char key[PATH_BYTES];
    Text text = text_start(url, PATH_BYTES);
    TRY(bucket_print(access, address, key, &text));
    bytes_encode(key, "-._~/", &text);
    return url_check(&text, address);
}

/* The names of a query are sorted: libcurl 7.88 signs it as it is. */
Status s3_list_url(const S3Access *access, const char *folder, const char *from, char url[PATH_BYTES])
{
    char prefix[PATH_BYTES];
    Text text = text_start(url, PATH_BYTES);
    TRY(bucket_print(access, folder, prefix, &text));
    text_add(&text, "?%s", *from ? "continuation-token=" : "");
    bytes_encode(from, "-._~", &text);
    text_add(&text, "%sdelimiter=%%2F&list-type=2&prefix=", *from ? "&" : "");
    bytes_encode(prefix, "-._~", &text);
    return url_check(&text, folder);
}

/* ---- refusals */

void s3_refusal_print(const S3Access *access, long answer, const char *region, const char *date, int64_t now, Text *to)
{
    int64_t theirs = date ? (int64_t)curl_getdate(date, NULL) : -1, skew = theirs < 0 ? 0 : now - theirs;
    bool refused = answer == 400 || answer == 401 || answer == 403;
    if (refused) text_add(to, "; the request was %s", access->whose);
    if (region && strcmp(region, access->region) != 0)
        text_add(to, "; the bucket is in the region %.64s, not in %s: set AWS_REGION", region, access->region);
    if (refused && *access->keys.id && (skew > SKEW_SECONDS || skew < -SKEW_SECONDS))
        text_add(to, "; the clock of this machine is %" PRId64 " minutes %s that of the server: set it",
                 (skew < 0 ? -skew : skew) / 60, skew < 0 ? "behind" : "ahead of");
}
