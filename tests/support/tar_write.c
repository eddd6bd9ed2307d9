/* See tar_write.h. */
#include "tests/support/tar_write.h"
#include "tests/support/unit.h"

void member_write(struct archive *to, const char *name, const char *text)
{
    struct archive_entry *entry = archive_entry_new();
    archive_entry_set_pathname(entry, name);
    archive_entry_set_size(entry, (int64_t)strlen(text));
    archive_entry_set_filetype(entry, AE_IFREG);
    assert_int_equal(archive_write_header(to, entry), ARCHIVE_OK);
    assert_int_equal(archive_write_data(to, text, strlen(text)), (ssize_t)strlen(text));
    archive_entry_free(entry);
}
