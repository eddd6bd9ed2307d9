/* Rendering the top of a report in Chromium. */
#include "inception/report/report.h"

#include <spawn.h>
#include <sys/wait.h>

#include "towers/files/files.h"

extern char **environ;

/* Run `program` without output and wait for it; false if there is no such program or it fails. */
static bool program_run(const char *program, char *const *arguments)
{
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status = -1;
    if (posix_spawn_file_actions_init(&actions) != 0) return false;
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", 1, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", 1, 0);
    bool started = posix_spawnp(&child, program, &actions, NULL, arguments, environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    while (started && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    return started && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

Status report_png(const char *run_dir)
{
    static const char *const browsers[] = {"chromium", "chromium-browser", "google-chrome"};
    char full[PATH_BYTES], page[3 * PATH_BYTES], shot[PATH_BYTES + 32], path[PATH_BYTES];
    Text address = text_start(page, sizeof page);
    if (!realpath(run_dir, full)) return FAIL(ERR_IO, "cannot find '%s': %s", run_dir, strerror(errno));
    TRY(path_join(path, full, "report.png"));
    text_add(&address, "file://");
    for (const char *at = full; *at; at++) text_add(&address, strchr("%#?", *at) ? "%%%02x" : "%c", *at);
    text_add(&address, "/report.html");
    snprintf(shot, sizeof shot, "--screenshot=%s", path);
    for (size_t i = 0; i < sizeof browsers / sizeof *browsers; i++) {
        char *arguments[] = {(char *)browsers[i],
                             "--headless",
                             "--no-sandbox",
                             "--disable-gpu",
                             "--hide-scrollbars",
                             "--force-device-scale-factor=1.5",
                             "--window-size=1200,1150",
                             shot,
                             page,
                             NULL};
        if (program_run(browsers[i], arguments) && access(path, R_OK) == 0) return OK;
    }
    return FAIL(ERR_UNSUPPORTED,
                "cannot save the report as PNG: --png needs Chromium (package chromium); %s/report.html was written",
                run_dir);
}
