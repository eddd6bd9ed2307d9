/* See device_memory.h. */
#include "tests/support/device_memory.h"
#include "tests/support/unit.h"

void must(Status st)
{
    if (st != OK) fail_msg("%s: %s", status_name(st), status_message());
}

void *to_device(Device *device, const void *host, size_t bytes)
{
    void *made = NULL;
    must(device->backend->alloc(device, bytes, &made));
    must(device->backend->upload(device, made, host, bytes));
    must(device->backend->finish(device, STREAM_COMPUTE));
    return made;
}

void to_host(Device *device, void *host, const void *from, size_t bytes)
{
    must(device->backend->download(device, host, from, bytes));
    must(device->backend->finish(device, STREAM_COMPUTE));
}
