/* Requests by libcurl's multi interface; see transport.h. */
#include "towers/remote/transport.h"

#include <openssl/rand.h>

#include "kernels/base/clock.h"
#include "kernels/base/text.h"
#include "kernels/base/timeouts.h"
#include "towers/remote/causes.h"
#include "towers/remote/certificates.h"
#include "towers/remote/s3_signature.h"

enum { SPEED_LEAST = 1000 /* bytes a second; less is as good as nothing */ };
enum { REDIRECTS = 8, CONNECT_SECONDS = 30, STALL_SECONDS = 60, NET_SECONDS = 300 };
enum { EXPECT_MS = 200 /* until a body is sent to a store that does not ask for it */ };
enum { CONTACT_TRIES = 3, LINE_BYTES = 1024, REFUSAL_BYTES = 1024 };
static const int64_t NS_PER_MS = 1000000;

/* New bytes after which failed tries are counted anew: a server that breaks off after each byte is not asked for ever. */
static const int64_t ADVANCE = INT64_C(1) << 22;
enum { TRIES_MOST = 64 };

struct Transport {
    CURLM *multi;
    TransportConfig config;
    Transfer *first;  /* of those that are not done */
    _Atomic bool met; /* a server has answered; of this one alone, if config.met is NULL */
};

/* What a transfer has beside its public part while it is not done. */
typedef struct NetRequest {
    CURL *curl;         /* NULL between tries */
    const S3Access *s3; /* NULL: of an address that is not of S3 */
    struct curl_slist *headers;
    char problem[CURL_ERROR_SIZE];
    int64_t since, due;   /* ns: when bytes came last, fast enough; when the next try begins */
    int64_t most, marked; /* the most bytes that were ever in the file; those when `tries` was 0 */
    int64_t paced;        /* those at `since` */
    int tries;            /* failed ones since then */
    size_t sent;          /* bytes of a Sending in this try */
    bool begun;           /* the first bytes of this answer have come */
    bool misfit;          /* they are not those that were asked for */
    bool full;            /* more bytes than the file may have */
    int error;            /* errno of a failed write */
    long proxy;           /* what a proxy answers to CONNECT; 0: no such question */
    bool safe, left;      /* it has come to https; and was led away from it */
    Status refused;       /* the answer is not the object; Transfer.why says so */
} NetRequest;

Status transport_create(const TransportConfig *config, Transport **made)
{
    Transport *t = calloc(1, sizeof *t);
    if (!t) return FAIL(ERR_MEMORY, "no memory for downloads");
    t->config = *config;
    if (!t->config.met) t->config.met = &t->met;
    if (t->config.net_timeout <= 0) t->config.net_timeout = NET_SECONDS;
    if (t->config.stall_seconds <= 0) t->config.stall_seconds = STALL_SECONDS;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0 || !(t->multi = curl_multi_init())) {
        free(t);
        return FAIL(ERR_MEMORY, "libcurl does not start");
    }
    curl_multi_setopt(t->multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING); /* a connection for each large object */
    *made = t;
    return OK;
}

/* ---- what comes */

/* To begin anew. */
static bool emptied(Transfer *t)
{
    if (t->fd >= 0 && !t->head && (ftruncate(t->fd, 0) != 0 || lseek(t->fd, 0, SEEK_SET) < 0)) t->own->error = errno;
    t->have = 0;
    return !t->own->error;
}

static bool is_printable(const char *text)
{
    while (*text >= ' ' && *text <= '~') text++;
    return !*text;
}

static const char *header_find(CURL *curl, const char *name)
{
    struct curl_header *found;
    return curl_easy_header(curl, name, 0, CURLH_HEADER, -1, &found) == CURLHE_OK ? found->value : NULL;
}

/* A strong ETag, else the date of the last change, else a weak ETag, which says less; "" of a server that says nothing. */
static void version_read(CURL *curl, char version[VERSION_BYTES])
{
    const char *tag = header_find(curl, "ETag"), *date = header_find(curl, "Last-Modified");
    if (tag && (strlen(tag) >= VERSION_BYTES || !is_printable(tag))) tag = NULL;
    if (date && (strlen(date) >= VERSION_BYTES || !is_printable(date))) date = NULL;
    const char *best = tag && *tag == '"' ? tag : date ? date : tag;
    snprintf(version, VERSION_BYTES, "%s", best ? best : "");
}

/* "": not of S3, or nothing is to be said. */
static const char *refusal_text(const NetRequest *r, long answer, char *text, size_t bytes)
{
    Text to = text_start(text, bytes);
    if (r->s3)
        s3_refusal_print(r->s3, answer, header_find(r->curl, "x-amz-bucket-region"), header_find(r->curl, "Date"),
                         (int64_t)time(NULL), &to);
    return text;
}

/* An answer that says it has come well: is it the object, as it is, in the version that is wanted? */
static Status answer_check(const Transfer *t, long code, const char *version)
{
    char refusal[REFUSAL_BYTES];
    const char *encoding = header_find(t->own->curl, "Content-Encoding");
    bool well = code == 200 || (t->sends ? code == 204 : code == 206);
    if (!well)
        return FAIL(ERR_IO, "%s: the server answers %ld; expected 200%s%s", t->address, code,
                    t->sends ? "" : ", with the object", refusal_text(t->own, code, refusal, sizeof refusal));
    if (t->sends) return OK;
    if (encoding && strcasecmp(encoding, "identity") != 0)
        return FAIL(ERR_IO,
                    "%s: the server sends it encoded as '%.40s', which nobody asked for: use an address that gives the "
                    "object as it is",
                    t->address, encoding);
    if (code == 200 && t->only_version && *t->version && *version && strcmp(version, t->version) != 0)
        return FAIL(ERR_FORMAT, "%s has changed while it was downloaded; begin again when it is whole", t->address);
    return OK;
}

/* "bytes 100-199/200": whether the part begins with the byte that is wanted, and is of an object of as many bytes. */
static bool range_fits(const Transfer *t, const char *range)
{
    int64_t first = -1, last, all;
    int used = 0;
    if (!range || sscanf(range, "bytes %" SCNd64 "-%" SCNd64 "/%n", &first, &last, &used) != 2 || !used) return false;
    bool known = sscanf(range + used, "%" SCNd64, &all) == 1;
    return first == t->have && last >= first && (!known || t->bytes < 0 || all == t->bytes);
}

static void encryption_read(CURL *curl, Sending *sends)
{
    const char *by = header_find(curl, "x-amz-server-side-encryption"),
               *customer = header_find(curl, "x-amz-server-side-encryption-customer-algorithm");
    sends->opaque = customer || (by && !strncmp(by, "aws:", 4));
}

/* At the first bytes of an answer, or at its end if it has none: is it the rest that was asked for, or all? */
static bool answer_begin(Transfer *t)
{
    long code = 0;
    NetRequest *r = t->own;
    char version[VERSION_BYTES];
    r->begun = true;
    curl_easy_getinfo(r->curl, CURLINFO_RESPONSE_CODE, &code);
    version_read(r->curl, version);
    r->refused = answer_check(t, code, version);
    if (r->refused != OK) {
        status_keep(&t->why);
        return false;
    }
    if (code == 206) {
        bool same = !*t->version || !*version || !strcmp(version, t->version);
        r->misfit = !same || !range_fits(t, header_find(r->curl, "Content-Range"));
        if (r->misfit) return false;
    } else if (t->have > 0 && !t->sends) {
        t->anew = true;
        if (!emptied(t)) return false;
    }
    if (*version) memcpy(t->version, version, sizeof version);
    if (t->sends) encryption_read(r->curl, t->sends);
    return true;
}

/* A server that sends a byte now and then brings nothing. */
static void pace_look(NetRequest *r)
{
    int64_t now = clock_ns();
    double seconds = (double)(now - r->since) / 1e9;
    if (r->most == r->paced || (double)(r->most - r->paced) < SPEED_LEAST * seconds) return;
    r->since = now;
    r->paced = r->most;
}

static void bytes_counted(Transfer *t)
{
    NetRequest *r = t->own;
    if (t->have > r->most) r->most = t->have;
    pace_look(r);
    if (r->most - r->marked >= ADVANCE) {
        r->marked = r->most;
        r->tries = 0;
    }
    if (t->watch.progress) t->watch.progress(t->watch.context, t->have, t->bytes);
}

/* Of the answer to a Sending the beginning is kept. */
static size_t answer_take(Sending *sends, const char *bytes, size_t length)
{
    size_t room = sizeof sends->answer - 1 - sends->answered, kept = length < room ? length : room;
    memcpy(sends->answer + sends->answered, bytes, kept);
    sends->answered += kept;
    sends->answer[sends->answered] = 0;
    return length;
}

static size_t bytes_give(char *to, size_t one, size_t count, void *context)
{
    Transfer *t = context;
    size_t left = t->sends->count - t->own->sent, given = one * count < left ? one * count : left;
    memcpy(to, (const char *)t->sends->bytes + t->own->sent, given);
    t->own->sent += given;
    t->have = (int64_t)t->own->sent;
    bytes_counted(t);
    return given;
}

/* libcurl begins a body anew when a connection that it used again was closed. */
static int bytes_rewind(void *context, curl_off_t offset, int origin)
{
    Transfer *t = context;
    if (origin != SEEK_SET || offset < 0 || (size_t)offset > t->sends->count) return CURL_SEEKFUNC_FAIL;
    t->own->sent = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

static size_t bytes_take(char *bytes, size_t one, size_t count, void *context)
{
    Transfer *t = context;
    NetRequest *r = t->own;
    size_t length = one * count;
    int64_t limit = t->limit > 0 ? t->limit : t->bytes >= 0 ? t->bytes : INT64_MAX;
    if (!r->begun && !answer_begin(t)) return 0;
    if (t->sends) return answer_take(t->sends, bytes, length);
    r->full = (int64_t)length > limit - t->have;
    if (r->full) return 0;
    for (size_t done = 0; done < length;) {
        ssize_t put = write(t->fd, bytes + done, length - done);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) {
            r->error = errno;
            return 0;
        }
        done += (size_t)put;
    }
    t->have += (int64_t)length;
    bytes_counted(t);
    return length;
}

/* ---- one try */

static Status header_add(NetRequest *r, const char *header)
{
    struct curl_slist *more = curl_slist_append(r->headers, header);
    if (!more) return FAIL(ERR_MEMORY, "no memory for a request");
    r->headers = more;
    return OK;
}

/* The environment goes first, as with curl's program: for a network that has certificates of its own. */
static void security_set(CURL *curl)
{
    const char *trusted = getenv("CURL_CA_BUNDLE"), *folder = NULL;
    if (!trusted || !*trusted) {
        trusted = getenv("SSL_CERT_FILE");
        folder = getenv("SSL_CERT_DIR");
    }
    if (!trusted || !*trusted) trusted = certificates_find(curl_version_info(CURLVERSION_NOW)->cainfo);
    if (trusted) curl_easy_setopt(curl, CURLOPT_CAINFO, trusted);
    if (folder && *folder) curl_easy_setopt(curl, CURLOPT_CAPATH, folder);
    curl_easy_setopt(curl, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, "http,https"); /* from https to http: scheme_check */
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 2L);
}

/* Before each request of a chain of redirects: what has been https does not become http. */
static int scheme_check(void *context, char *to, char *from, int to_port, int from_port)
{
    Transfer *t = context;
    char *scheme = NULL;
    (void)to, (void)from, (void)to_port, (void)from_port;
    curl_easy_getinfo(t->own->curl, CURLINFO_SCHEME, &scheme);
    bool safe = scheme && !strcasecmp(scheme, "https");
    t->own->left = t->own->safe && !safe;
    t->own->safe = safe;
    return t->own->left ? CURL_PREREQFUNC_ABORT : CURL_PREREQFUNC_OK;
}

static void signature_ask(const S3Access *s3, NetRequest *r)
{
    char scope[AWS_NAME_BYTES + 32];
    snprintf(scope, sizeof scope, "aws:amz:%s:s3", s3->region);
    curl_easy_setopt(r->curl, CURLOPT_AWS_SIGV4, scope);
    curl_easy_setopt(r->curl, CURLOPT_USERNAME, s3->keys.id);
    curl_easy_setopt(r->curl, CURLOPT_PASSWORD, s3->keys.secret);
}

static Status signature_make(const S3Access *s3, const S3Request *request, NetRequest *r)
{
    S3Signature made;
    TRY(s3_sign(s3, request, &made));
    TRY(header_add(r, made.date));
    return header_add(r, made.authorization);
}

/* A signature holds for the host that it names, so nothing is followed elsewhere. */
static Status signature_set(const S3Access *s3, const char *url, const Sending *sends, NetRequest *r)
{
    /* That of a request without a body. S3 demands a digest, and libcurl 7.88 does not add it (curl's issue 8810). */
    static const char empty[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const S3Request request = {sends ? sends->method : "GET", url, sends ? sends->sha256 : empty, time(NULL)};
    char digest[SHA256_HEX_BYTES + 32], header[AWS_TOKEN_BYTES + 32];
    curl_easy_setopt(r->curl, CURLOPT_FOLLOWLOCATION, 0L);
    if (s3->keys_found != OK) return status_restore(s3->keys_found, &s3->keys_why);
    if (!*s3->keys.id) return OK;
    if (s3_signs(url))
        TRY(signature_make(s3, &request, r));
    else
        signature_ask(s3, r);
    snprintf(digest, sizeof digest, "x-amz-content-sha256: %s", request.sha256);
    TRY(header_add(r, digest));
    if (!*s3->keys.token) return OK;
    snprintf(header, sizeof header, "X-Amz-Security-Token: %s", s3->keys.token);
    Status st = header_add(r, header);
    explicit_bzero(header, sizeof header);
    return st;
}

/* Where the request goes. */
static Status address_set(const Transfer *t)
{
    char url[PATH_BYTES];
    CURL *curl = t->own->curl;
    const S3Access *s3 = t->own->s3;
    if (t->sends && !s3) return FAIL(ERR_INTERNAL, "%s: without access to S3", t->address);
    if (s3) TRY(t->list_from ? s3_list_url(s3, t->address, t->list_from, url) : s3_url(s3, t->address, url));
    if (t->sends && *t->sends->query) {
        Text query = text_behind(url, sizeof url);
        text_add(&query, "?%s", t->sends->query);
        if (query.truncated) return FAIL(ERR_ARG, "'%s': the address is too long", t->address);
    }
    security_set(curl);
    curl_easy_setopt(curl, CURLOPT_URL, s3 ? url : t->address);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)REDIRECTS);
    return s3 ? signature_set(s3, url, t->sends, t->own) : OK;
}

/* Ask for what is not there yet, of the version whose beginning is there. */
static Status rest_ask(Transfer *t)
{
    char text[VERSION_BYTES + 32];
    NetRequest *r = t->own;
    if (t->sends) return OK;
    bool dated = *t->version && strncmp(t->version, "W/", 2) != 0; /* a weak ETag is no condition for a range */
    if (t->have > 0 && !dated && !t->hashed && !emptied(t))
        return FAIL(ERR_IO, "cannot write '%s': %s", t->path, strerror(r->error));
    if (t->have == 0 || t->head) return OK;
    snprintf(text, sizeof text, "%" PRId64 "-", t->have);
    curl_easy_setopt(r->curl, CURLOPT_RANGE, text);
    if (!dated) return OK;
    snprintf(text, sizeof text, "If-Range: %s", t->version);
    return header_add(r, text);
}

/* A store that refuses says so before the body comes (Expect: 100-continue); one that does not know of that gets it after a moment. libcurl
 * 7.88 signs an "Expect:" that is to leave this out, although it does not send it. */
static Status sending_set(Transfer *t)
{
    char header[MD5_BASE64_BYTES + 16];
    NetRequest *r = t->own;
    Sending *sends = t->sends;
    r->sent = sends->answered = 0;
    *sends->answer = 0;
    t->have = 0;
    curl_easy_setopt(r->curl, CURLOPT_CUSTOMREQUEST, sends->method);
    if (!strcmp(sends->method, "DELETE")) return OK;
    curl_easy_setopt(r->curl, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(r->curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)sends->count);
    curl_easy_setopt(r->curl, CURLOPT_READFUNCTION, bytes_give);
    curl_easy_setopt(r->curl, CURLOPT_READDATA, t);
    curl_easy_setopt(r->curl, CURLOPT_SEEKFUNCTION, bytes_rewind);
    curl_easy_setopt(r->curl, CURLOPT_SEEKDATA, t);
    curl_easy_setopt(r->curl, CURLOPT_EXPECT_100_TIMEOUT_MS, (long)EXPECT_MS);
    if (sends->only_new) TRY(header_add(r, "If-None-Match: *"));
    snprintf(header, sizeof header, "Content-MD5: %s", sends->md5);
    return *sends->md5 ? header_add(r, header) : OK;
}

static Status try_begin(Transport *transport, Transfer *t)
{
    NetRequest *r = t->own;
    const TransportConfig *config = &transport->config;
    CURL *curl = r->curl = curl_easy_init();
    if (!curl) return FAIL(ERR_MEMORY, "no memory for a request");
    r->begun = r->misfit = r->full = r->safe = r->left = false;
    *r->problem = 0;
    TRY(address_set(t));
    curl_easy_setopt(curl, CURLOPT_PRIVATE, t);
    curl_easy_setopt(curl, CURLOPT_NOBODY, t->head ? 1L : 0L);
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "towers/" TOWERS_VERSION);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT,
                     (long)(config->net_timeout < CONNECT_SECONDS ? config->net_timeout : CONNECT_SECONDS));
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, (long)SPEED_LEAST);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)config->stall_seconds);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, bytes_take);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, r->problem);
    curl_easy_setopt(curl, CURLOPT_PREREQFUNCTION, scheme_check);
    curl_easy_setopt(curl, CURLOPT_PREREQDATA, t);
    TRY(rest_ask(t));
    if (t->sends) TRY(sending_set(t));
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, r->headers);
    CURLMcode code = curl_multi_add_handle(transport->multi, curl);
    return code == CURLM_OK ? OK : FAIL(ERR_IO, "libcurl: %s", curl_multi_strerror(code));
}

static void try_end(Transport *transport, NetRequest *r)
{
    if (r->curl) curl_multi_remove_handle(transport->multi, r->curl);
    if (r->curl) curl_easy_cleanup(r->curl);
    curl_slist_free_all(r->headers);
    r->curl = NULL;
    r->headers = NULL;
}

/* ---- the end of a transfer, or the next try */

static void transfer_end(Transport *transport, Transfer *t, Status status)
{
    Transfer **at = &transport->first;
    while (*at != t) at = &(*at)->next;
    *at = t->next;
    if (status != OK) status_keep(&t->why);
    try_end(transport, t->own);
    free(t->own);
    t->own = NULL;
    t->next = NULL;
    t->status = status;
    t->done = true;
}

/* In [0, 1). */
static double chance(void)
{
    uint32_t drawn = 0;
    if (RAND_bytes((unsigned char *)&drawn, sizeof drawn) != 1) drawn = (uint32_t)clock_ns();
    return (double)drawn / 4294967296.0;
}

/* "after 1500 of 3000 bytes" */
static void reached_print(const Transfer *t, Text *to)
{
    if (t->head || !t->own->most) return;
    text_add(to, " after %" PRId64, t->have);
    if (t->bytes >= 0) text_add(to, " of %" PRId64, t->bytes);
    text_add(to, " bytes");
}

/* What libcurl says of a failure, but not if it repeats an address, of a proxy or of a redirect, which may hold a secret; nor that it
 * failed where it was told to end. */
static const char *problem_of(const NetRequest *r)
{
    bool secret = strchr(r->problem, '@') || strstr(r->problem, "://");
    if (secret && strstr(r->problem, "proxy")) return "of the address of the proxy";
    return r->misfit || r->left || secret ? "" : r->problem;
}

static Status cause_fail(const Transfer *t, const NetCause *cause, const char *more)
{
    char reached[96], refusal[REFUSAL_BYTES];
    const char *problem = problem_of(t->own), *remedy = cause->remedy;
    Text text = text_start(reached, sizeof reached);
    if (t->own->proxy >= 400)
        return FAIL(ERR_IO, "%s: the proxy answers %ld: %s%s", t->address, t->own->proxy, cause->text, more);
    bool unasked = t->head && (t->answer == 405 || t->answer == 501);
    if (t->answer >= 400)
        return FAIL(ERR_IO, "%s: the server answers %ld%s: %s%s%s", t->address, t->answer,
                    unasked ? " to HEAD, which asks for length and version" : "", cause->text,
                    refusal_text(t->own, t->answer, refusal, sizeof refusal), more);
    reached_print(t, &text);
    return FAIL(ERR_IO, "%s: %s%s%s%s%s%s%s%s", t->address, cause->text, reached, *problem ? " (" : "", problem,
                *problem ? ")" : "", remedy ? "; " : "", remedy ? remedy : "", more);
}

/* Whether another try is worth while: then it is due after a pause. */
static Status again_or_fail(Transport *transport, Transfer *t, const NetCause *cause, int64_t retry_after)
{
    char line[LINE_BYTES], more[96] = "";
    NetRequest *r = t->own;
    int64_t now = clock_ns(), patience = transport->config.net_timeout * 1000;
    int64_t pause = net_pause_ms(++r->tries, chance(), retry_after);
    bool never_met = cause->retry == NET_CONTACT && !atomic_load(transport->config.met) && r->tries >= CONTACT_TRIES;
    bool late = pause > patience || (now - r->since) / NS_PER_MS + pause > patience || r->tries >= TRIES_MOST;
    bool digest = t->sends && t->answer == 400; /* of a body that has changed on its way, perhaps */
    t->passes = cause->retry != NET_FINAL || digest;
    if (t->passes && late && retry_after > 0 && retry_after >= pause / 1000)
        snprintf(more, sizeof more, "; it asks to wait %" PRId64 " s, longer than --net-timeout allows", retry_after);
    else if (t->passes && r->tries > 1)
        snprintf(more, sizeof more, "; %d tries in %.1f s", r->tries, (double)(now - r->since) / 1e9);
    Status st = cause_fail(t, cause, more);
    if (!t->passes || never_met || late || (digest && r->tries >= CONTACT_TRIES)) return st;
    snprintf(line, sizeof line, "%.800s; trying again in %.1f s", status_message(), (double)pause / 1e3);
    if (t->watch.again) t->watch.again(t->watch.context, line);
    r->due = now + pause * NS_PER_MS;
    t->retries++;
    t->wait_ms += pause;
    return OK;
}

static Status head_take(Transfer *t)
{
    curl_off_t length = -1;
    TRY(answer_check(t, t->answer, ""));
    curl_easy_getinfo(t->own->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    t->bytes = (int64_t)length;
    version_read(t->own->curl, t->version);
    return OK;
}

static NetCause cause_find(const Transfer *t, CURLcode code)
{
    const NetRequest *r = t->own;
    long verified = 0;
    if (t->answer >= 400 && r->proxy < 400 && t->sends && t->sends->only_new) return claim_cause(t->answer);
    if (code != CURLE_PEER_FAILED_VERIFICATION) return net_cause(code, r->proxy >= 400 ? r->proxy : t->answer);
    curl_easy_getinfo(r->curl, CURLINFO_SSL_VERIFYRESULT, &verified);
    return certificate_cause(verified);
}

/* A try has ended. *more: there will be another one. */
static Status try_result(Transport *transport, Transfer *t, CURLcode code, bool *more)
{
    static const NetCause cut = {NET_PASSES, "the answer was cut off"},
                          other = {NET_PASSES, "other bytes than asked for"};
    NetRequest *r = t->own;
    curl_off_t retry_after = 0;
    *more = t->passes = false;
    curl_easy_getinfo(r->curl, CURLINFO_RESPONSE_CODE, &t->answer);
    curl_easy_getinfo(r->curl, CURLINFO_HTTP_CONNECTCODE, &r->proxy);
    curl_easy_getinfo(r->curl, CURLINFO_RETRY_AFTER, &retry_after);
    if (t->answer >= 200) atomic_store(transport->config.met, true);
    if (code == CURLE_OK && t->head) TRY(head_take(t));
    if (code == CURLE_OK && !t->head && !r->begun) (void)answer_begin(t);
    if (r->refused != OK) return status_restore(r->refused, &t->why);
    bool shorter = t->answer == 416 && t->have > 0; /* than what is there; or nothing is left to send */
    bool enough = shorter && (t->hashed || t->have == t->bytes);
    if ((r->misfit || (shorter && !enough))) {
        t->anew = true;
        (void)emptied(t);
    }
    t->unwritten = r->error != 0;
    if (r->error) return FAIL(ERR_IO, "cannot write '%s': %s", t->path, strerror(r->error));
    if (r->full)
        return FAIL(ERR_FORMAT, "%s sends more than the %" PRId64 " bytes of the expected file", t->address,
                    t->limit > 0 ? t->limit : t->bytes);
    if (enough || (code == CURLE_OK && (t->head || t->bytes < 0 || t->have == t->bytes))) return OK;
    NetCause cause = code == CURLE_OK ? cut : cause_find(t, code);
    if (r->misfit || shorter) {
        cause = other;
        t->answer = 0;
    }
    TRY(again_or_fail(transport, t, &cause, (int64_t)retry_after));
    try_end(transport, r);
    *more = true;
    return OK;
}

/* ---- */

void transport_start(Transport *transport, Transfer *t)
{
    NetRequest *r = calloc(1, sizeof *r);
    t->own = r;
    t->done = !r;
    t->status = r ? OK : FAIL(ERR_MEMORY, "no memory for a request");
    if (!r) {
        status_keep(&t->why);
        return;
    }
    t->next = transport->first;
    transport->first = t;
    r->s3 = is_address_of_s3(t->address) ? transport->config.s3 : NULL;
    r->most = r->marked = r->paced = t->have;
    r->since = r->due = clock_ns();
}

/* Begin the tries that are due; returns the milliseconds until the next one is. */
static int tries_begin(Transport *transport, int ms, bool *ended)
{
    int64_t now = clock_ns(), until = now + ms * NS_PER_MS;
    for (Transfer *t = transport->first, *next; t; t = next) {
        next = t->next;
        NetRequest *r = t->own;
        if (r->curl) continue;
        if (r->due > now) {
            if (r->due < until) until = r->due;
            continue;
        }
        Status st = try_begin(transport, t);
        if (st == OK) continue;
        transfer_end(transport, t, st);
        *ended = true;
    }
    return (int)((until - now + NS_PER_MS - 1) / NS_PER_MS);
}

static void messages_take(Transport *transport, bool *ended)
{
    int left;
    for (CURLMsg *message; (message = curl_multi_info_read(transport->multi, &left)) != NULL;) {
        Transfer *t;
        bool more;
        if (message->msg != CURLMSG_DONE) continue;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &t);
        Status st = try_result(transport, t, code, &more);
        if (more) continue;
        transfer_end(transport, t, st);
        *ended = true;
    }
}

bool transport_is_idle(const Transport *transport)
{
    return !transport->first;
}

Status transport_wait(Transport *transport, int ms)
{
    int running;
    bool ended = false;
    int64_t until = clock_ns() + ms * NS_PER_MS;
    while (transport->first && !ended) {
        int64_t left = (until - clock_ns()) / NS_PER_MS;
        CURLMcode code = curl_multi_perform(transport->multi, &running);
        messages_take(transport, &ended);
        int pause = tries_begin(transport, left > 0 ? (int)left : 0, &ended);
        if (code == CURLM_OK && !ended && left > 0) code = curl_multi_poll(transport->multi, NULL, 0, pause, NULL);
        if (code != CURLM_OK) return FAIL(ERR_IO, "libcurl: %s", curl_multi_strerror(code));
        if (left <= 0) return OK;
    }
    return OK;
}

Status transport_run(Transport *transport, Transfer *transfer)
{
    Status st = OK;
    transport_start(transport, transfer);
    while (st == OK && !transfer->done) st = transport_wait(transport, NET_WAIT_MS);
    if (!transfer->done) transfer_end(transport, transfer, st); /* it is the caller's, and may be gone next */
    if (st != OK) return st;
    return transfer->status == OK ? OK : status_restore(transfer->status, &transfer->why);
}

void transport_abandon(Transport *transport)
{
    while (transport->first) transfer_end(transport, transport->first, OK);
}

void transport_destroy(Transport *transport)
{
    if (!transport) return;
    transport_abandon(transport);
    curl_multi_cleanup(transport->multi);
    free(transport);
}
