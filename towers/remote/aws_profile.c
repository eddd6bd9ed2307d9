/* Parsing profiles of AWS's tools; see aws_profile.h. */
#include "towers/remote/aws_profile.h"

typedef struct Piece {
    const char *at;
    size_t bytes;
} Piece;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static Piece trimmed(const char *at, size_t bytes)
{
    while (bytes && is_blank(*at)) at++, bytes--;
    while (bytes && is_blank(at[bytes - 1])) bytes--;
    return (Piece){at, bytes};
}

static bool is_text(Piece p, const char *text)
{
    return p.bytes == strlen(text) && !memcmp(p.at, text, p.bytes);
}

/* Settings are known in capitals, too. */
static bool is_setting(Piece key, const char *name)
{
    return key.bytes == strlen(name) && !strncasecmp(key.at, name, key.bytes);
}

static Piece unquoted(Piece p)
{
    bool quoted = p.bytes > 1 && (*p.at == '"' || *p.at == '\'') && p.at[p.bytes - 1] == *p.at;
    return quoted ? (Piece){p.at + 1, p.bytes - 2} : p;
}

/* "[NAME]" or "[profile NAME]". */
static bool is_section(Piece line, const char *name)
{
    static const char word[] = "profile";
    const size_t length = sizeof word - 1;
    const char *end = memchr(line.at, ']', line.bytes);
    if (!end) return false;
    Piece inside = trimmed(line.at + 1, (size_t)(end - line.at - 1));
    if (inside.bytes > length && !memcmp(inside.at, word, length) && is_blank(inside.at[length]))
        inside = trimmed(inside.at + length, inside.bytes - length);
    return is_text(unquoted(inside), name);
}

/* A setting of the section, or of its block "s3 =", whose lines are indented. */
static void setting_take(Piece key, Piece value, bool of_s3, bool keyed, AwsProfile *p)
{
    static const char *const elsewhere[] = {"role_arn", "sso_session", "sso_start_url", "credential_process",
                                            "web_identity_token_file"};
    const struct {
        const char *name;
        char *to;
        size_t room;
        bool of_s3, is_key;
    } taken[] = {{"aws_access_key_id", p->keys.id, sizeof p->keys.id, false, true},
                 {"aws_secret_access_key", p->keys.secret, sizeof p->keys.secret, false, true},
                 {"aws_session_token", p->keys.token, sizeof p->keys.token, false, true},
                 {"region", p->region, sizeof p->region, false, false},
                 {"endpoint_url", p->endpoint, sizeof p->endpoint, false, false},
                 {"addressing_style", p->style, sizeof p->style, true, false}};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        if (of_s3 != taken[i].of_s3 || !is_setting(key, taken[i].name) || *taken[i].to) continue;
        if (taken[i].is_key && keyed) continue;
        if (value.bytes >= taken[i].room || memchr(value.at, 0, value.bytes)) {
            p->overlong = taken[i].name;
            continue;
        }
        memcpy(taken[i].to, value.at, value.bytes);
        taken[i].to[value.bytes] = 0;
    }
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere && !of_s3; i++)
        if (is_setting(key, elsewhere[i])) p->elsewhere = elsewhere[i];
    p->services = p->services || (!of_s3 && is_setting(key, "services"));
}

void aws_profile_parse(const char *text, size_t bytes, const char *name, AwsProfile *profile)
{
    static const char mark[] = "\xEF\xBB\xBF"; /* of byte order, as some editors begin a file */
    const bool keyed = *profile->keys.id || *profile->keys.secret;
    const size_t skipped = bytes >= 3 && !memcmp(text, mark, 3) ? 3 : 0;
    bool inside = false, block_of_s3 = false;
    size_t margin = SIZE_MAX; /* blanks before the settings of the section */
    for (const char *at = text + skipped, *end = text + bytes; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((stop ? stop : end) - at);
        Piece line = trimmed(at, length);
        const char *equals = line.bytes ? memchr(line.at, '=', line.bytes) : NULL;
        size_t blanks = (size_t)(line.at - at);
        bool comment = line.bytes && (*line.at == '#' || *line.at == ';');
        if (line.bytes && *line.at == '[') {
            margin = SIZE_MAX;
            inside = is_section(line, name);
            profile->found = profile->found || inside;
            block_of_s3 = false;
        } else if (inside && equals && !comment) {
            Piece key = trimmed(line.at, (size_t)(equals - line.at)),
                  value = trimmed(equals + 1, line.bytes - (size_t)(equals - line.at) - 1);
            if (margin == SIZE_MAX) margin = blanks;
            bool indented = blanks > margin;
            if (!indented) block_of_s3 = is_setting(key, "s3") && !value.bytes;
            if (!indented || block_of_s3) setting_take(key, value, indented, keyed, profile);
        }
        at += length + 1;
    }
}
