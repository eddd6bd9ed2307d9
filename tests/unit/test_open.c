/* The door to files: what is no regular file is neither waited for nor opened, and numbers of the kernel's files. */
#include <sys/socket.h>
#include <sys/un.h>

#include "kernels/base/open.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

/* A read-only and a writing opener: a plain open would wait at the pipe for the other end, for ever. */
static void refuses(const char *name)
{
    char path[PATH_BYTES];
    scratch_path(path, name);
    assert_int_equal(regular_open(path, O_RDONLY, NULL), NOT_REGULAR);
    assert_int_equal(regular_open(path, O_WRONLY | O_CREAT | O_APPEND, NULL), NOT_REGULAR);
    assert_int_equal(regular_open(path, O_RDWR | O_CREAT | O_TRUNC, NULL), NOT_REGULAR);
}

TEST(only_regular_files_are_opened)
{
    char path[PATH_BYTES], link[PATH_BYTES];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat info;
    scratch_path(path, "pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    refuses("pipe");
    scratch_path(path, "folder");
    assert_int_equal(mkdir(path, 0700), 0);
    refuses("folder");
    scratch_path(path, "device");
    assert_int_equal(symlink("/dev/zero", path), 0);
    refuses("device");
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    scratch_path(path, "socket");
    assert_true(strlen(path) < sizeof address.sun_path);
    strcpy(address.sun_path, path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    refuses("socket");
    close(fd);

    scratch_path(path, "file");
    fd = regular_open(path, O_WRONLY | O_CREAT | O_EXCL, &info);
    assert_true(fd >= 0);
    assert_int_equal(info.st_size, 0);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(write(fd, "12345", 5), 5);
    close(fd);
    assert_int_equal(regular_open(path, O_WRONLY | O_CREAT | O_EXCL, NULL), -1);
    assert_int_equal(errno, EEXIST);
    scratch_path(link, "link");
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(regular_open(link, O_RDONLY | O_NOFOLLOW, NULL), -1);
    assert_int_equal(errno, ELOOP);
    fd = regular_open(link, O_RDONLY, &info);
    assert_true(fd >= 0);
    assert_int_equal(info.st_size, 5);
    close(fd);
    scratch_path(path, "none");
    assert_int_equal(regular_open(path, O_RDONLY, NULL), -1);
    assert_int_equal(errno, ENOENT);
}

static void write_text(const char *name, const char *text, char path[PATH_BYTES])
{
    scratch_path(path, name);
    int fd = regular_open(path, O_WRONLY | O_CREAT | O_TRUNC, NULL);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

TEST(numbers_of_the_kernel)
{
    char path[PATH_BYTES], text[6];
    write_text("meminfo", "MemTotal:  32 kB\nXMemFree: 1\nMemFree: 7 kB\nLimit: max\n", path);
    assert_int_equal(system_number(path, "MemTotal:", -1), 32);
    assert_int_equal(system_number(path, "MemFree:", -1), 7);
    assert_int_equal(system_number(path, "Limit:", -1), -1);
    assert_int_equal(system_number(path, "Swap:", -1), -1);
    assert_int_equal(system_number(path, "", 5), 5);
    assert_int_equal(system_text(path, text, sizeof text), 5);
    assert_string_equal(text, "MemTo");
    write_text("statm", "4711 12\n", path);
    assert_int_equal(system_number(path, "", -1), 4711);
    scratch_path(path, "none");
    assert_int_equal(system_number(path, "", -3), -3);
    assert_int_equal(system_text(path, text, sizeof text), 0);
    assert_string_equal(text, "");
}

TESTS_WITH(scratch_make, scratch_drop)
