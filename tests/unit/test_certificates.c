/* Certificates are found on a system other than the one that libcurl was built on, as they are where a wheel is installed.
 * Requests themselves: tests/cli/check_fetch.sh. */
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "towers/remote/certificates.h"

TESTS_WITH(scratch_make, scratch_drop)

TEST(what_libcurl_names_is_taken_if_it_is_there)
{
    char path[PATH_BYTES];
    scratch_path(path, "own.pem");
    scratch_put("own.pem", "x");
    assert_string_equal(certificates_find(path), path);
    assert_null(certificates_find(NULL));
}

TEST(else_those_of_this_system)
{
    const char *found = certificates_find("/nowhere/ca.crt");
    if (access("/etc/ssl/certs/ca-certificates.crt", R_OK) == 0) assert_non_null(found);
    if (found) assert_int_equal(access(found, R_OK), 0);
}
