/* Networks of ONNX files that a test puts together: read, with the ops that they become, or refused. */
#pragma once

#include "inception/networks/net_file.h"
#include "tests/support/graph_text.h"
#include "tests/support/onnx_maker.h"

extern NetFile *made; /* by the test that runs */

/* A file that begins with an image {n, 3, 8, 8} and ends with "logits". */
OnnxMaker *started(void);
/* What a mean over the image and a product make of "y". */
OnnxMaker *ended(OnnxMaker *m, int64_t channels);
/* The maker's file as a network; ends the maker. */
Status parsed(OnnxMaker *m);
/* It is one, or is refused with this code and a message that contains `why`. */
void good(OnnxMaker *m);
void refused(OnnxMaker *m, Status code, const char *why);
/* The network's ops in an evaluation of one image, with so many classes (0: the file's); closes it. */
void has_ops(int classes, const char *wanted);
