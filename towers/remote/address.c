/* Parsing addresses; see address.h. */
#include "towers/remote/address.h"

#include "kernels/base/text.h"

enum { PART_MOST = 200 /* bytes: a file system takes 255, and a cache appends to them */, PORT_MOST = 65535 };

bool is_address_of_s3(const char *text)
{
    return !strncmp(text, "s3://", 5);
}

bool is_address(const char *text)
{
    return !strncmp(text, "http://", 7) || !strncmp(text, "https://", 8) || is_address_of_s3(text);
}

/* Those of RFC 3986, but for what begins a query or a fragment. */
static bool is_path_character(char c)
{
    return c && (strchr("-._~!$&'()*+,;=:@%/", c) || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                 (c >= 'a' && c <= 'z'));
}

/* -1 if these are no two digits. */
static int byte_of(const char *digits)
{
    static const char known[] = "0123456789abcdefABCDEF";
    int value = 0;
    for (int i = 0; i < 2; i++) {
        const char *at = digits[i] ? strchr(known, digits[i]) : NULL;
        if (!at) return -1;
        int digit = (int)(at - known);
        value = 16 * value + (digit < 16 ? digit : digit - 6);
    }
    return value;
}

size_t path_decode(const char *path, size_t bytes, char *plain)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++) {
        int byte = path[i] == '%' && i + 2 < bytes ? byte_of(path + i + 1) : -1;
        plain[count++] = byte < 0 ? path[i] : (char)byte;
        if (byte >= 0) i += 2;
    }
    plain[count] = 0;
    return count;
}

bool path_encode(const char *plain, char *path, size_t bytes)
{
    Text text = text_start(path, bytes);
    size_t count = 0;
    for (; *plain; plain++) {
        bool as_is = *plain != '%' && is_path_character(*plain);
        count += as_is ? 1 : 3;
        text_add(&text, as_is ? "%c" : "%%%02X", (unsigned char)*plain);
    }
    return count < bytes;
}

static bool is_host_character(char c)
{
    return c && (strchr("-._", c) || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'));
}

bool is_host(const char *host, size_t bytes)
{
    size_t name = 0, digits = 0;
    while (name < bytes && is_host_character(host[name])) name++;
    if (name == 0 || *host == '.') return false;
    if (name == bytes) return true;
    const char *port = host + name + 1;
    int number = 0;
    while (port + digits < host + bytes && port[digits] >= '0' && port[digits] <= '9' && number <= PORT_MOST)
        number = 10 * number + port[digits++] - '0';
    return host[name] == ':' && port + digits == host + bytes && number >= 1 && number <= PORT_MOST;
}

static Status path_check(const char *text, const char *path)
{
    for (const char *at = path; *at; at++)
        if (!is_path_character(*at))
            return FAIL(ERR_ARG,
                        "'%s': character %d of the address is none of a path: expected %%20 for a blank, and so on",
                        text, (int)(at - text) + 1);
    for (const char *at = path; (at = strchr(at, '%')) != NULL; at++) {
        int byte = byte_of(at + 1);
        if (byte < ' ' || byte == 127 || strchr("/.:{}", byte))
            return FAIL(
                ERR_ARG,
                "'%s': '%.3s' is not taken in an address: write the character itself, if it is a dot or a colon", text,
                at);
    }
    for (const char *part = path; *part;) {
        size_t bytes = strcspn(part, "/");
        if (bytes == 0 || *part == '.' || bytes > PART_MOST)
            return FAIL(ERR_ARG, "'%s': a part of the path is %s", text,
                        bytes == 0     ? "empty"
                        : *part == '.' ? "hidden, or leads elsewhere: it begins with a dot"
                                       : "longer than 200 characters");
        part += bytes + (part[bytes] == '/');
    }
    return OK;
}

Status address_parse(const char *text, Address *made)
{
    if (!is_address(text)) return FAIL(ERR_ARG, "'%s' is no address: expected http://, https:// or s3://", text);
    const char *host = strstr(text, "://") + 3, *slash = strchr(host, '/');
    size_t host_bytes = slash ? (size_t)(slash - host) : strlen(host), plain = strcspn(text, "?#");
    if (memchr(host, '@', host_bytes))
        return FAIL(ERR_ARG,
                    "an address with a user name or a password is not taken, because it would stand in records: "
                    "leave it out");
    if (text[plain])
        return FAIL(
            ERR_ARG,
            "'%.*s': an address with a query ('?') or fragment ('#') is not taken, because a signature in it would "
            "stand in records: leave it out",
            (int)plain, text);
    if (host_bytes > PART_MOST || !is_host(host, host_bytes)) /* a password with a slash looks like a port */
        return FAIL(
            ERR_ARG,
            "an address of %.*s is not taken: expected HOST or HOST:PORT behind ://, a name or an IPv4 address, "
            "and a port from 1 to 65535",
            (int)(host - 3 - text), text);
    if (is_address_of_s3(text) && memchr(host, ':', host_bytes))
        return FAIL(ERR_ARG, "'%s': expected s3://BUCKET/KEY, without a port: --s3-endpoint names a server", text);
    bool bucket = slash && !slash[1] && is_address_of_s3(text);
    if ((!slash || !slash[1]) && !bucket) return FAIL(ERR_ARG, "'%s': expected a path behind the host", text);
    TRY(path_check(text, slash + 1));
    *made = (Address){.scheme = text,
                      .host = host,
                      .path = slash + 1,
                      .scheme_bytes = (int)(host - 3 - text),
                      .host_bytes = (int)host_bytes};
    return OK;
}

bool address_may_hide(const char *text)
{
    const char *scheme = strstr(text, "://"), *host = scheme ? scheme + 3 : text;
    size_t bytes = strcspn(host, "/");
    /* behind what is no host, an @ ends a password with a slash */
    return strpbrk(text, "?#") || memchr(host, '@', bytes) || (strchr(host, '@') && !is_host(host, bytes));
}
