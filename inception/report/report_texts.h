/* The frame of the report page, in which {{title}}, {{style}}, {{content}}, {{version}} and {{origin}} stand for what report.c
 * writes, and its style. They are files of this folder that the build embeds. */
#pragma once

#include "kernels/text.h"

extern const EmbeddedText report_texts[]; /* page.html and report.css; the last has a NULL name */
