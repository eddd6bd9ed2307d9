#!/usr/bin/env bash
# The architecture as a test: a folder may include itself and the floors below it, never one above.
#   inception -> towers -> nccl_sync -> kernels
# nccl_sync sees of kernels only status, tensor, op, optimizer and backend (never a device's own header).
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

floors=(kernels nccl_sync towers inception)
bad=0
for level in "${!floors[@]}"; do
    floor=${floors[$level]}
    for ((above = level + 1; above < ${#floors[@]}; above++)); do
        if grep -rnE --include='*.[ch]' --include='*.cu' --include='*.def' "^ *# *include \"${floors[$above]}/" "$floor"; then
            echo "layers: $floor must not include ${floors[$above]} (above)" >&2
            bad=1
        fi
    done
done
if grep -rnE --include='*.[ch]' '^ *# *include [<"](dnnl|oneapi/dnnl|cuda|cudnn|cublas)' nccl_sync towers inception | grep -v 'nccl_sync/comm_nccl'; then
    echo "layers: device libraries are included below kernels/cpu and kernels/cuda only" >&2
    bad=1
fi
if grep -rnE --include='*.[ch]' '^ *# *include "kernels/(cpu|cuda)/' kernels/*.[ch] nccl_sync towers inception; then
    echo "layers: a backend's inner headers are its own" >&2
    bad=1
fi
if grep -rnE --include='*.[ch]' 'snprintf\([^,;]* \+ ' kernels nccl_sync towers inception | grep -v '^kernels/text\.c:'; then
    echo "layers: a text made of pieces is a Text (kernels/text.h), whose lengths cannot run out of the buffer" >&2
    bad=1
fi
exit $bad
