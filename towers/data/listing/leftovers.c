/* The list of leftovers.h. */
#include "towers/data/listing/leftovers.h"

#include <fnmatch.h>

#include "towers/files/files.h"

/* In any case. */
static const char *const patterns[] = {
    /* macOS */
    "__MACOSX", "._*", ".DS_Store", ".AppleDouble", ".Spotlight-V100", ".Trashes", ".fseventsd", "Icon\r",
    "Network Trash Folder", "Temporary Items",
    /* Windows */
    "Thumbs.db", "ehthumbs.db", "ehthumbs_vista.db", "desktop.ini", "$RECYCLE.BIN", "System Volume Information",
    /* file servers by Synology and QNAP */
    "@eaDir", "@tmp", "#recycle", "#snapshot", "@Recycle", "@Recently-Snapshot", ".@__thumb",
    /* Linux */
    "lost+found", ".directory", ".Trash-*", ".nfs*", ".fuse_hidden*", ".thumbnails",
    /* programs */
    ".git", ".gitignore", ".gitattributes", ".gitkeep", ".svn", ".hg", ".ipynb_checkpoints", "__pycache__"};

const char *leftover_of(const char *name, bool folder)
{
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (fnmatch(patterns[i], name, FNM_CASEFOLD) == 0) return patterns[i];
    return folder && name[0] == '.' ? "hidden" : NULL;
}

const char *leftover_in(const char *path)
{
    char part[PATH_BYTES];
    for (const char *at = path;; at++) {
        size_t bytes = strcspn(at, "/");
        snprintf(part, sizeof part, "%.*s", (int)bytes, at);
        const char *found = leftover_of(part, false);
        if (found || !at[bytes]) return found;
        at += bytes;
    }
}
