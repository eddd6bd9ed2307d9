/* A picture of the top of a report, RUN/report.png, taken by rendering RUN/report.html in Chromium. */
#pragma once

#include "kernels/status.h"

/* ERR_UNSUPPORTED if there is no Chromium, or it fails. */
NODISCARD Status report_picture(const char *run_dir);
