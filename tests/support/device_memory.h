/* Device memory for tests that use no op: copies are complete when these functions return; a failure ends the test. */
#pragma once

#include "kernels/backend.h"

void must(Status st);
void *to_device(Device *device, const void *host, size_t bytes); /* new memory; backend->release frees it */
void to_host(Device *device, void *host, const void *from, size_t bytes);
