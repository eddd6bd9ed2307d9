/* Verified downloads; see download.h. */
#include "inception/job/download.h"
#include "kernels/base/open.h"
#include "towers/files/files.h"
#include "towers/remote/abandoned.h"

#include <openssl/evp.h>
#include <sys/file.h>

enum { TRIES = 4, BLOCK = 1 << 16, DIGEST_BYTES = 32 };
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
    text_hex(&text, digest, DIGEST_BYTES);
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

/* To begin anew. */
static Status emptied(const Download *d, Transfer *t)
{
    if (ftruncate(t->fd, 0) != 0 || lseek(t->fd, 0, SEEK_SET) < 0)
        return FAIL(ERR_IO, "cannot write '%s': %s", t->path, strerror(errno));
    t->have = 0;
    t->limit = d->bytes ? 0 : BYTES_MAX;
    t->bytes = d->bytes ? d->bytes : -1;
    t->version[0] = 0;
    return OK;
}

/* What a person does next. */
static Status refuse(Status st, const Transfer *t)
{
    char why[STATUS_MESSAGE_BYTES];
    if (st != ERR_IO || t->unwritten) return st;
    snprintf(why, sizeof why, "%s", status_message());
    if (t->answer >= 400 && !t->passes) return FAIL(st, "%s; check the address, or give another with --mirror", why);
    if (t->passes && t->have > 0)
        return FAIL(st, "%s; %s", why,
                    t->anew ? "the server begins anew each time: give another with --mirror, or copy the file "
                              "(--dry-run prints how)"
                            : "run the same command again to resume");
    return FAIL(st, "cannot download %s; on a machine without network, copy the file (--dry-run prints how)", why);
}

/* The rest of the file, which is then hashed as a whole. */
static Status rest_take(const Download *d, Transport *transport, Transfer *t, char digits[SHA256_DIGITS + 1])
{
    if (!d->bytes || t->have < d->bytes) {
        Status st = transport_run(transport, t);
        if (st != OK) return refuse(st, t);
    }
    if (fsync(t->fd) != 0) return FAIL(ERR_IO, "cannot write '%s': %s", t->path, strerror(errno));
    return sha256_file(t->path, digits);
}

/* A partial file may be damaged, which only the digest of the whole shows: then it begins anew, once. */
static Status transfer_verified(const Download *d, Transport *transport, Transfer *t)
{
    char digits[SHA256_DIGITS + 1];
    bool resumes = t->have > 0;
    Status st = rest_take(d, transport, t, digits);
    bool fits = st == OK && !strncmp(digits, d->sha256, strlen(d->sha256));
    if (resumes && (st == ERR_FORMAT || (st == OK && !fits))) {
        TRY(emptied(d, t));
        st = rest_take(d, transport, t, digits);
        fits = st == OK && !strncmp(digits, d->sha256, strlen(d->sha256));
    }
    TRY(st);
    if (fits) return file_publish(t->path, d->path);
    unlink(t->path);
    return FAIL(ERR_FORMAT,
                "%s is not the expected file: its SHA-256 is %s, but %s%s was expected; it was removed (was the "
                "address given to another file, or does a proxy answer?)",
                d->address, digits, d->sha256, strlen(d->sha256) < SHA256_DIGITS ? "..." : "");
}

/* Opens and locks the partial file. Another process may have published or removed it in between: then the lock is one of
 * a file that has another name, and *lost is true. */
static Status part_lock(const Download *d, Transfer *t, bool *lost)
{
    struct stat own, named;
    t->fd = regular_open(t->path, O_WRONLY | O_CREAT | O_NOFOLLOW, NULL);
    if (t->fd < 0) return FAIL(ERR_IO, "cannot write '%s': %s", t->path, strerror(errno));
    if (flock(t->fd, LOCK_EX | LOCK_NB) != 0)
        return FAIL(ERR_IO, "another process is downloading '%s'; wait for it", d->path);
    if (fstat(t->fd, &own) != 0 || (t->have = lseek(t->fd, 0, SEEK_END)) < 0)
        return FAIL(ERR_IO, "cannot write '%s': %s", t->path, strerror(errno));
    *lost = lstat(t->path, &named) != 0 || named.st_ino != own.st_ino || named.st_dev != own.st_dev;
    return OK;
}

static bool is_part(const char *name)
{
    return ends_with(name, ".part");
}

/* What has come of files that nobody wants any more, beside this one. */
static void abandoned_drop(const Download *d)
{
    char folder[PATH_BYTES];
    const char *slash = strrchr(d->path, '/');
    if (!slash) return; /* that is no cache */
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - d->path), d->path);
    abandoned_remove(folder, is_part);
}

Status download(const Download *d)
{
    Status st = OK;
    bool lost = true;
    char part[PATH_BYTES];
    Transport *transport = NULL;
    Transfer t = {.address = d->address,
                  .path = part,
                  .fd = -1,
                  .hashed = true,
                  .bytes = d->bytes ? d->bytes : -1,
                  .limit = d->bytes ? 0 : BYTES_MAX,
                  .watch = d->watch};
    if (snprintf(part, sizeof part, "%s.part", d->path) >= (int)sizeof part)
        return FAIL(ERR_ARG, "the path '%s' is too long", d->path);
    TRY_OUT(transport_create(&d->patience, &transport));
    for (int i = 0; i < TRIES && lost; i++) {
        if (t.fd >= 0) close(t.fd);
        TRY_OUT(part_lock(d, &t, &lost));
        if (lost && sha256_fits(d->path, d->sha256)) goto out;
    }
    if (lost) TRY_OUT(FAIL(ERR_IO, "'%s' is removed again and again; stop the process that does so", part));
    TRY_OUT(transfer_verified(d, transport, &t));
    abandoned_drop(d);
out:
    if (t.fd >= 0) close(t.fd);
    transport_destroy(transport);
    return st;
}
