/* HTTP downloads; see download.h. */
#include "inception/job/download.h"
#include "kernels/base/open.h"
#include "towers/files/files.h"

#include <curl/curl.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <time.h>

enum { TRIES = 4, REDIRECTS = 8, CONNECT_SECONDS = 30, STALL_SECONDS = 60 };
enum { BLOCK = 1 << 16, ADVANCE = 1 << 22, DIGEST_BYTES = 32 };
static const int64_t BYTES_MAX = INT64_C(1) << 34; /* of a file whose size is not known */

/* ---- digests */

/* The SHA-256 of a file as 64 digits. ERR_IO if it cannot be read. */
static Status sha256_file(const char *path, char digits[SHA256_DIGITS + 1])
{
    Status st = OK;
    int fd = -1;
    uint64_t bytes;
    unsigned char digest[DIGEST_BYTES];
    unsigned char *block = malloc(BLOCK);
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    if (!block || !hash || EVP_DigestInit_ex(hash, EVP_sha256(), NULL) != 1)
        TRY_OUT(FAIL(ERR_MEMORY, "no memory for the digest of '%s'", path));
    TRY_OUT(file_open(path, OF_USER, ERR_IO, UINT64_MAX, &fd, &bytes));
    for (ssize_t got; (got = read(fd, block, BLOCK)) != 0;) {
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) TRY_OUT(FAIL(ERR_IO, "cannot read '%s': %s", path, strerror(errno)));
        EVP_DigestUpdate(hash, block, (size_t)got);
    }
    EVP_DigestFinal_ex(hash, digest, NULL);
    Text text = text_start(digits, SHA256_DIGITS + 1);
    for (int i = 0; i < DIGEST_BYTES; i++) text_add(&text, "%02x", digest[i]);
out:
    if (fd >= 0) close(fd);
    EVP_MD_CTX_free(hash);
    free(block);
    return st;
}

bool sha256_fits(const char *path, const char *digest)
{
    char digits[SHA256_DIGITS + 1];
    return access(path, R_OK) == 0 && sha256_file(path, digits) == OK && !strncmp(digits, digest, strlen(digest));
}

/* ---- the transfer */

typedef struct Transfer {
    const Download *d;
    CURL *curl;
    int fd;
    int64_t have, limit; /* bytes in the file */
    int64_t most;        /* bytes that were ever in it */
    bool begun;          /* the first byte of this answer has come */
    bool anew;           /* the server does not resume */
    bool full;           /* more bytes than the file may have */
    int error;           /* errno of a failed write */
} Transfer;

const char *certificates_find(const char *usual)
{
    static const char *const places[] = {
        "/etc/ssl/certs/ca-certificates.crt", /* Debian, Ubuntu, Arch, Gentoo */
        "/etc/pki/tls/certs/ca-bundle.crt",   /* Fedora, RHEL */
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
        "/etc/ssl/ca-bundle.pem", /* openSUSE */
        "/etc/ssl/cert.pem",      /* Alpine */
    };
    if (!usual || access(usual, R_OK) == 0) return usual;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (access(places[i], R_OK) == 0) return places[i];
    return NULL;
}

/* To begin anew. */
static bool emptied(Transfer *t)
{
    if (ftruncate(t->fd, 0) != 0 || lseek(t->fd, 0, SEEK_SET) < 0) t->error = errno;
    t->have = 0;
    return !t->error;
}

/* An answer of 200 to a request for the rest is the whole file. */
static size_t bytes_take(char *bytes, size_t one, size_t count, void *context)
{
    Transfer *t = context;
    long code = 0;
    size_t length = one * count;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &code);
    if (!t->begun && t->have > 0 && code != 206) {
        t->anew = true;
        if (!emptied(t)) return 0;
    }
    t->begun = true;
    t->full = t->have + (int64_t)length > t->limit;
    if (t->full) return 0;
    for (size_t done = 0; done < length;) {
        ssize_t put = write(t->fd, bytes + done, length - done);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) {
            t->error = errno;
            return 0;
        }
        done += (size_t)put;
    }
    t->have += (int64_t)length;
    if (t->have > t->most) t->most = t->have;
    return length;
}

static int progress_take(void *context, curl_off_t all, curl_off_t done, curl_off_t up_all, curl_off_t up)
{
    const Transfer *t = context;
    (void)all, (void)done, (void)up_all, (void)up;
    if (t->d->progress) t->d->progress(t->d->context, t->have, t->d->bytes);
    return 0;
}

static void request_set(Transfer *t, char problem[CURL_ERROR_SIZE])
{
    CURL *curl = t->curl;
    const Download *d = t->d;
    bool safe = !strncmp(d->address, "https:", 6);
    curl_easy_setopt(curl, CURLOPT_URL, d->address);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, safe ? "https" : "http,https");
    const char *trusted = getenv("CURL_CA_BUNDLE"); /* as curl does, for a network that has certificates of its own */
    if (!trusted || !*trusted) trusted = certificates_find(curl_version_info(CURLVERSION_NOW)->cainfo);
    if (trusted) curl_easy_setopt(curl, CURLOPT_CAINFO, trusted);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 2L);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)REDIRECTS);
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "towers/" TOWERS_VERSION);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)(d->stall_seconds > 0 ? d->stall_seconds : STALL_SECONDS));
    curl_easy_setopt(curl, CURLOPT_RESUME_FROM_LARGE, (curl_off_t)t->have);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, bytes_take);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, progress_take);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, t);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, problem);
}

/* Whether another try may end better: connections that break, servers that are busy, and those that do not resume. */
static bool may_pass(CURLcode code, long answer)
{
    return code == CURLE_RANGE_ERROR || code == CURLE_PARTIAL_FILE || code == CURLE_RECV_ERROR ||
           code == CURLE_GOT_NOTHING || code == CURLE_OPERATION_TIMEDOUT || answer == 429 || answer >= 500;
}

static Status transfer_try(Transfer *t, bool *again)
{
    char problem[CURL_ERROR_SIZE] = "";
    long answer = 0;
    const Download *d = t->d;
    t->begun = false;
    *again = false;
    curl_easy_reset(t->curl);
    request_set(t, problem);
    CURLcode code = curl_easy_perform(t->curl);
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &answer);
    if (code == CURLE_RANGE_ERROR) {
        t->anew = true;
        emptied(t);
    }
    if (t->error) return FAIL(ERR_IO, "cannot write '%s.part': %s", d->path, strerror(t->error));
    if (t->full)
        return FAIL(ERR_FORMAT, "%s sends more than the %" PRId64 " bytes of the expected file", d->address, t->limit);
    if (answer == 416 && t->have > 0) return OK; /* nothing is left to send: the digest decides */
    if (code == CURLE_OK && (d->bytes == 0 || t->have == d->bytes)) return OK;
    if (code == CURLE_OK || may_pass(code, answer)) {
        *again = true;
        return FAIL(
            ERR_IO, "%s: the connection ended after %" PRId64 "%s%" PRId64 " bytes (%s); %s", d->address, t->have,
            d->bytes ? " of " : " bytes, expected ", d->bytes, *problem ? problem : curl_easy_strerror(code),
            t->anew ? "the server begins anew each time: give another with --mirror, or copy the file (--dry-run "
                      "prints how)"
                    : "run the same command again to resume");
    }
    if (answer >= 400)
        return FAIL(ERR_IO, "%s: the server answers %ld; check the address, or give another with --mirror", d->address,
                    answer);
    return FAIL(ERR_IO, "cannot download %s: %s; on a machine without network, copy the file (--dry-run prints how)",
                d->address, *problem ? problem : curl_easy_strerror(code));
}

/* Each try goes on where the last one ended. More than TRIES are made only while they bring much that was never there
 * before, so that a server that begins anew and breaks off is not asked for ever. */
static Status transfer(Transfer *t)
{
    bool again = true;
    Status st = OK;
    for (int i = 0; i < TRIES && again; i++) {
        int64_t before = t->most;
        if (i) nanosleep(&(struct timespec){.tv_sec = i > 1 ? 2 : 1}, NULL);
        st = transfer_try(t, &again);
        if (t->most - before >= ADVANCE) i = 0;
    }
    return st;
}

/* The rest of the file, which is then hashed as a whole. */
static Status rest_take(Transfer *t, const char *part, char digits[SHA256_DIGITS + 1])
{
    const Download *d = t->d;
    if (!d->bytes || t->have < d->bytes) TRY(transfer(t));
    if (fsync(t->fd) != 0) return FAIL(ERR_IO, "cannot write '%s': %s", part, strerror(errno));
    return sha256_file(part, digits);
}

/* A partial file may be damaged, which only the digest of the whole shows: then it begins anew, once. */
static Status transfer_verified(Transfer *t, const char *part)
{
    char digits[SHA256_DIGITS + 1];
    const Download *d = t->d;
    bool resumes = t->have > 0;
    Status st = rest_take(t, part, digits);
    bool fits = st == OK && !strncmp(digits, d->sha256, strlen(d->sha256));
    if (resumes && (st == ERR_FORMAT || (st == OK && !fits))) {
        t->full = false;
        if (!emptied(t)) return FAIL(ERR_IO, "cannot write '%s': %s", part, strerror(t->error));
        t->most = 0;
        st = rest_take(t, part, digits);
        fits = st == OK && !strncmp(digits, d->sha256, strlen(d->sha256));
    }
    TRY(st);
    if (fits) return file_publish(part, d->path);
    unlink(part);
    return FAIL(ERR_FORMAT,
                "%s is not the expected file: its SHA-256 is %s, but %s%s was expected; it was removed (was the "
                "address given to another file, or does a proxy answer?)",
                d->address, digits, d->sha256, strlen(d->sha256) < SHA256_DIGITS ? "..." : "");
}

/* Opens and locks the partial file. Another process may have published or removed it in between: then the lock is one of
 * a file that has another name, and *lost is true. */
static Status part_lock(Transfer *t, const char *part, bool *lost)
{
    struct stat own, named;
    t->fd = regular_open(part, O_WRONLY | O_CREAT | O_NOFOLLOW, NULL);
    if (t->fd < 0) return FAIL(ERR_IO, "cannot write '%s': %s", part, strerror(errno));
    if (flock(t->fd, LOCK_EX | LOCK_NB) != 0)
        return FAIL(ERR_IO, "another process is downloading '%s'; wait for it", t->d->path);
    if (fstat(t->fd, &own) != 0 || (t->have = lseek(t->fd, 0, SEEK_END)) < 0)
        return FAIL(ERR_IO, "cannot write '%s': %s", part, strerror(errno));
    *lost = lstat(part, &named) != 0 || named.st_ino != own.st_ino || named.st_dev != own.st_dev;
    t->most = t->have;
    return OK;
}

Status download(const Download *d)
{
    Status st = OK;
    bool lost = true;
    char part[PATH_BYTES];
    Transfer t = {.d = d, .fd = -1, .limit = d->bytes ? d->bytes : BYTES_MAX};
    if (snprintf(part, sizeof part, "%s.part", d->path) >= (int)sizeof part)
        return FAIL(ERR_ARG, "the path '%s' is too long", d->path);
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0 || !(t.curl = curl_easy_init()))
        TRY_OUT(FAIL(ERR_MEMORY, "libcurl does not start"));
    for (int i = 0; i < TRIES && lost; i++) {
        if (t.fd >= 0) close(t.fd);
        TRY_OUT(part_lock(&t, part, &lost));
        if (lost && sha256_fits(d->path, d->sha256)) goto out;
    }
    if (lost) TRY_OUT(FAIL(ERR_IO, "'%s' is removed again and again; stop the process that does so", part));
    TRY_OUT(transfer_verified(&t, part));
out:
    if (t.fd >= 0) close(t.fd);
    if (t.curl) curl_easy_cleanup(t.curl);
    return st;
}
