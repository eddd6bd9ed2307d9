/* The secret of a job: what its programs know and others do not; see launch.h. */
#include "towers/replica/launch.h"

#include "towers/files/files.h"

enum { TOKEN_BYTES = 32, TOKEN_TEXT = 2 * TOKEN_BYTES + 1 };

static Status token_path(char *const *environment, char path[PATH_BYTES])
{
    const char *config = environment_value(environment, "XDG_CONFIG_HOME"),
               *home = environment_value(environment, "HOME");
    char folder[PATH_BYTES];
    if (!config && !home)
        return FAIL(ERR_ARG,
                    "the programs of this run need a secret in common, and there is no HOME to keep one in; set "
                    "TOWERS_TOKEN to the same random text for all of them");
    TRY(config ? path_join(folder, config, "towers") : path_join(folder, home, ".config/towers"));
    TRY(directory_create(folder));
    return path_join(path, folder, "token");
}

/* Makes the file whole under another name; whoever is first to link it to its own name decides for all programs. */
static Status token_make(const char *path)
{
    Status st = OK;
    int fd = -1;
    uint8_t bytes[TOKEN_BYTES];
    char text[TOKEN_TEXT + 1], temporary[PATH_BYTES + TOKEN_TEXT + 2];
    for (int round = 0; round < 2; round++) { /* first for the other name */
        TRY(random_bytes(bytes, sizeof bytes));
        Text digits = text_start(text, sizeof text);
        text_hex(&digits, bytes, sizeof bytes);
        if (round == 0) snprintf(temporary, sizeof temporary, "%s.%s", path, text);
    }
    text[TOKEN_TEXT - 1] = '\n';
    TRY(run_file_open(temporary, true, true, &fd));
    if (fchmod(fd, 0600) != 0 || write(fd, text, TOKEN_TEXT) != TOKEN_TEXT || fsync(fd) != 0 ||
        (link(temporary, path) != 0 && errno != EEXIST))
        st = FAIL(ERR_IO, "cannot write '%s': %s", path, strerror(errno));
    close(fd);
    (void)unlink(temporary);
    return st;
}

/* The token of this user's file, as text. */
static Status token_read(const char *path, char text[TOKEN_TEXT])
{
    Status st = OK;
    int fd = -1;
    uint64_t bytes;
    struct stat info;
    if (access(path, F_OK) != 0 && errno == ENOENT) TRY(token_make(path));
    TRY(file_open(path, OF_USER, ERR_ARG, TOKEN_TEXT, &fd, &bytes));
    if (fstat(fd, &info) != 0) TRY_OUT(FAIL(ERR_IO, "cannot read '%s': %s", path, strerror(errno)));
    if (info.st_uid != geteuid() || info.st_mode & 077)
        TRY_OUT(
            FAIL(ERR_ARG,
                 "'%s', the token that keeps others out of your runs, belongs to user %u and has mode %03o, expected "
                 "user %u and mode 600; remove it, and the next run makes another one",
                 path, (unsigned)info.st_uid, (unsigned)info.st_mode & 0777, (unsigned)geteuid()));
    if (read(fd, text, TOKEN_TEXT) != TOKEN_TEXT || strspn(text, "0123456789abcdef") != TOKEN_TEXT - 1)
        TRY_OUT(
            FAIL(ERR_ARG,
                 "'%s' does not hold a token of %d hexadecimal digits; remove it, and the next run makes another one",
                 path, TOKEN_TEXT - 1));
    text[TOKEN_TEXT - 1] = 0;
out:
    close(fd);
    return st;
}

/* Programs that mpirun of Open MPI 4 has started have a random key for their transports. It counts only beside the number
 * that no other launcher sets: Slurm puts a key under this name that follows from the job's number. */
static const char *key_of_mpirun(char *const *environment)
{
    bool by_mpirun = environment_value(environment, "OMPI_MCA_ess_base_jobid");
    return by_mpirun ? environment_value(environment, "OMPI_MCA_orte_precondition_transports") : NULL;
}

Status launch_secret(char *const *environment, Launch *launch)
{
    const char *text = environment_value(environment, "TOWERS_TOKEN");
    char path[PATH_BYTES], token[TOKEN_TEXT];
    launch->secret_from = "TOWERS_TOKEN";
    if (!text) {
        text = key_of_mpirun(environment);
        launch->secret_from = "mpirun";
    }
    if (!text) {
        TRY(token_path(environment, path));
        TRY(token_read(path, token));
        text = token;
        launch->secret_from = "towers/token in $XDG_CONFIG_HOME or ~/.config";
    }
    return secret_derive(text, launch->job, &launch->secret);
}
